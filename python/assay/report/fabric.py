"""The conflicts of a schedule in the terminal: totals, the worst steps, and the pairs that share links in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.text import Text

from assay.records.schema import AnyRecord, Context, Flows, Measurement
from assay.records.units import format_quantity, format_share
from assay.report.tables import plain_table

CONFLICTS, LINKS = "fabric.conflicts", "fabric.links"
MAX_STEPS, MAX_LINKS = 10, 10  # shown; the run has them all

LEGEND = (
    "conflicts: sum of flows - 1 over the links of a step with more than one. rounds: the steps in lockstep, each as\n"
    "long as its fullest link needs; the bound is one round a step. Steps count from 0, where a shift sends to oneself."
)


def show_fabric(console: Console, records: Iterable[AnyRecord]) -> None:
    records = list(records)
    facts = next((r.facts for r in records if isinstance(r, Context) and "fabric.topology" in r.facts), None)
    if facts is None:
        return
    console.print(
        Text(
            f"{facts['fabric.topology']}: {_nodes(facts)}, {facts['fabric.switches']} switches, "
            f"{facts['fabric.cables']} cables; tables: {facts['fabric.tables']}"
        ),
        soft_wrap=True,
    )
    if facts.get("fabric.unnamed_ports"):
        first = str(facts["fabric.unnamed"]).split("; ")[0]
        text = f"ports whose description names no host: {first}, ..."
        console.print(Text(text), soft_wrap=True)
    _show_rates(console, [r for r in records if isinstance(r, Measurement) and r.name == LINKS])
    console.print()
    measured = [r for r in records if isinstance(r, Measurement) and r.name == CONFLICTS]
    values = {r.metric: r for r in measured if "step" not in r.params}
    if "conflicts_total" not in values:
        return
    _show_totals(console, values)
    _show_steps(console, measured)
    _show_shared(console, [r for r in records if isinstance(r, Flows) and r.name == CONFLICTS])
    console.print(Text(LEGEND, style="dim"), soft_wrap=True)
    console.print()


def _nodes(facts: Mapping[str, object]) -> str:
    """Hosts, with their ports where some have several, and what else has end ports."""
    ports, aggregation, routers = (
        facts.get("fabric.ports", facts["fabric.hosts"]),
        facts.get("fabric.aggregation_nodes"),
        facts.get("fabric.router_ports"),
    )
    return (
        f"{facts['fabric.hosts']} hosts"
        + (f" with {ports} ports" if ports != facts["fabric.hosts"] else "")
        + (
            f", {facts['fabric.unnamed_ports']} ports of unknown hosts"
            if facts.get("fabric.unnamed_ports")
            else ""
        )
        + (f", {aggregation} aggregation nodes" if aggregation else "")
        + (f", {routers} ports of routers and gateways" if routers else "")
    )


def _show_rates(console: Console, measured: list[Measurement]) -> None:
    """Prints the usual rates. If all cables are equally slow, no cable is found slow unless the ports' rates are known;
    the reader can compare the usual rates with the expected ones."""
    usual = [r for r in measured if r.metric == "usual_rate"]
    if not usual:
        return
    kinds = {"host": "to hosts", "switch": "between switches"}
    rates = [f"{kinds[str(r.params['cable_kind'])]} {r.params['width']}x {r.params['speed']}" for r in usual]
    text = f"most cables: {', '.join(rates)}"
    known, cables = (int(usual[0].params[name]) for name in ("supported_known", "cables"))
    if known < cables:
        cables_text = f"of {cables - known} of {cables} cables " if known else ""
        text += f"; what the ports {cables_text}support is unknown: compare the rates with what was bought"
    console.print(Text(text), soft_wrap=True)


def _show_totals(console: Console, values: dict[str, Measurement]) -> None:
    total = values["conflicts_total"]
    rounds, bound = (values[metric].median for metric in ("rounds", "rounds_bound"))
    text = (
        f"{total.params['schedule']} of {total.params['ranks']} ranks: {total.median:.0f} conflicts, "
        f"{values['conflicts_share'].median:.3g} a pair of ranks; {rounds:.0f} rounds, bound {bound:.0f}"
    )
    if "bisection" in values:
        figure = values["bisection"]
        text += f"; effective bisection bandwidth {format_share(figure.median)}"
    console.print(Text(text, style="bold"), soft_wrap=True)
    console.print()


def _show_steps(console: Console, measured: list[Measurement]) -> None:
    loads = {r.params["step"]: r for r in measured if r.metric == "max_load" and "step" in r.params}
    steps = [r for r in measured if r.metric == "conflicts" and r.median > 0]
    if not steps:
        return
    table = plain_table(numbers=["step", "conflicts", "fullest link"])
    for r in sorted(steps, key=lambda r: -r.median)[:MAX_STEPS]:
        step = r.params["step"]
        table.add_row(str(step), f"{r.median:.0f}", f"{loads[step].median:.0f} flows")
    console.print(table)
    if len(steps) > MAX_STEPS:
        console.print(f"and {len(steps) - MAX_STEPS} more steps with conflicts")
    console.print()


def _show_shared(console: Console, shared: list[Flows]) -> None:
    if not shared:
        return
    step = shared[0].params["step"]
    of_step = [r for r in shared if r.params["step"] == step]
    table = plain_table(f"shared in step {step}", numbers=["flows"])
    table.add_column("pairs")
    for r in of_step[:MAX_LINKS]:
        pairs = [f"{a} -> {b}" for a, b in zip(r.sources, r.targets, strict=True)]
        shown = pairs[:4] + ([f"and {len(pairs) - 4} more"] if len(pairs) > 4 else [])
        # Names of rails have blanks, so a line that wraps within one would not tell where it ends.
        separator = ",\n" if any(" " in name for name in (*r.sources, *r.targets)) else ", "
        table.add_row(
            r.subject.device, format_quantity(len(pairs), "1"), separator.join(shown), end_section=True
        )
    console.print(table)
    if len(of_step) > MAX_LINKS:
        console.print(f"and {len(of_step) - MAX_LINKS} more links")
    console.print()
