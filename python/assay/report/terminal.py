"""Prints a run in the terminal: tables of measurements, findings, verdicts.

rich adds colour on a terminal only; the text is the same without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from assay.records.schema import AnyRecord, Context, Failure, Finding, Measurement, Verdict
from assay.records.text import one_line
from assay.records.units import format_quantity, format_share, format_size
from assay.report.alloc import show_alloc
from assay.report.events import show_events
from assay.report.fabric import show_fabric
from assay.report.gpu import show_gpu
from assay.report.memory import show_memory
from assay.report.model import show_model
from assay.report.rdma import show_rdma
from assay.report.storage import show_storage
from assay.report.sweep import SweepRow, sweep_rows
from assay.report.tables import plain_table, quantity_cell
from assay.report.udp import show_udp
from assay.report.wire import show_wire

LEGEND = (
    "bandwidth: verified bytes of all clients / time of the slowest client; per client: of the median client.\n"
    "latency: time until an operation is complete at the target; for send: round-trip time. An all-to-all measures\n"
    "it with a few separate messages, so it is not the inverse of the rate."
)

SEPARATE_TABLES = {
    "node.memory",
    "node.memory_paced",
    "node.gpu_copy",
    "node.rdma",
    "node.udp_receive",
    "node.udp_send",
}

FINDING_STYLES = {"fault": "bold red", "warning": "bold yellow", "advice": "bold green"}
MAX_MARGIN = 10.0  # times the required value
STYLES = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}


def show_run(console: Console, records: Sequence[AnyRecord]) -> None:
    """Prints every table for which there are records."""
    if any(isinstance(r, Context) and r.facts.get("machine.virtual") == "emulated" for r in records):
        console.print(
            Text("measured in an emulated guest: rates and times are not meaningful", style="yellow")
        )
    show_fabric(console, records)
    show_memory(console, records)
    show_nodes(console, records)
    show_gpu(console, records)
    show_udp(console, records)
    show_rdma(console, records)
    show_sweep(console, sweep_rows(records))
    show_wire(console, records)
    show_events(console, records)
    show_storage(console, records)
    show_alloc(console, records)
    show_model(console, records)
    for failure in (r for r in records if isinstance(r, Failure)):
        console.print(Text.assemble(("failed: ", "bold red"), one_line(failure.problem)), soft_wrap=True)
        if failure.fix:
            console.print(f"        fix: {one_line(failure.fix)}", soft_wrap=True)
    show_findings(console, [r for r in records if isinstance(r, Finding)])


def show_nodes(console: Console, records: Iterable[AnyRecord]) -> None:
    """Prints the node measurements that have no separate table, and those without a value, with the reason."""
    measured = [r for r in records if isinstance(r, Measurement) and r.name.startswith("node.")]
    with_value = [r for r in measured if r.summary is not None and r.name not in SEPARATE_TABLES]
    if with_value:
        table = plain_table("node", "measurement", "parameters", numbers=["median", "spread", "samples"])
        for r in with_value:
            assert r.summary is not None
            params = ", ".join(f"{key} {value}" for key, value in r.params.items())
            spread = f"± {_figure(r.summary.mad, r.unit)}"
            cells = [_figure(r.summary.median, r.unit), spread, str(r.summary.n)]
            table.add_row(r.subject.host, f"{r.name}/{r.metric}", params, *cells)
        console.print(table)
        console.print()
    unmeasured = {(r.status, r.name, r.subject.host, r.reason) for r in measured if r.summary is None}
    for status, name, host, reason in sorted(unmeasured, key=str):
        console.print(Text(f"{name} on {host}: {status}, {reason}"), soft_wrap=True)
    if unmeasured:
        console.print()


def show_sweep(console: Console, rows: Sequence[SweepRow]) -> None:
    for name in dict.fromkeys(row.name for row in rows):
        chosen = [row for row in rows if row.name == name]
        ops = len({row.op for row in chosen}) > 1
        corrupted = any(row.corrupted for row in chosen)
        table = plain_table()
        titles = ["size", *(["operation"] if ops else []), "wall time", "bandwidth", "per client"]
        titles += ["latency p50", "p99", "operations/s", *(["corrupted"] if corrupted else [])]
        for title in titles:
            table.add_column(title, justify="left" if title == "operation" else "right")
        for row in chosen:
            cells = [format_size(row.size), *([row.op] if ops else []), quantity_cell(row.time, "s")]
            cells += [quantity_cell(row.bandwidth, "B/s"), quantity_cell(row.client_bandwidth, "B/s")]
            cells += [
                quantity_cell(row.latency_p50, "s"),
                quantity_cell(row.latency_p99, "s"),
                quantity_cell(row.rate, "1/s"),
            ]
            table.add_row(*cells, *([str(row.corrupted)] if corrupted else []))
        console.print(table)
        console.print(Text(LEGEND, style="dim"))
        console.print()


def show_findings(console: Console, findings: Sequence[Finding]) -> None:
    if not findings:
        return
    console.print(Text("Findings", style="bold"))
    for finding in findings:
        style = FINDING_STYLES[finding.severity]
        confidence = "" if finding.confidence is None else f"  (confidence {finding.confidence:.0%})"
        headline = Text.assemble((f"  {finding.severity}: ", style), finding.cause, confidence)
        console.print(headline, soft_wrap=True)
        for detail in finding.details:
            console.print(f"      {detail}", highlight=False, soft_wrap=True)
        if finding.fix:
            console.print(f"      fix: {finding.fix}", highlight=False, soft_wrap=True)
    console.print()


def show_verdicts(console: Console, verdicts: Sequence[Verdict], title: str = "") -> None:
    """Prints the verdicts: observed and required values, margin, reason and fix."""
    if not verdicts:
        return
    table = plain_table(title=title or None, title_justify="left")
    table.add_column("outcome")
    table.add_column("criterion", overflow="fold")
    for heading in ("observed", "required", "margin"):
        table.add_column(heading, justify="right")
    for verdict in verdicts:
        criterion = Text(verdict.criterion)
        if verdict.reason:
            criterion.append(f"\n{verdict.reason}", style="dim")
        if verdict.fix:
            criterion.append(f"\nfix: {verdict.fix}", style="dim")
        table.add_row(
            Text(verdict.outcome, style=STYLES[verdict.outcome]),
            criterion,
            verdict.observed_text or _figure(verdict.observed, verdict.unit),
            verdict.required_text or _required(verdict),
            _margin(verdict.margin),
        )
    console.print(table)
    console.print()


def _margin(margin: float | None) -> str:
    """As a share of the required value, or from MAX_MARGIN on as a bound."""
    if margin is None:
        return ""
    if abs(margin) < MAX_MARGIN:
        return f"{margin:+.1%}"
    return f"> +{MAX_MARGIN:.0%}" if margin > 0 else f"< -{MAX_MARGIN:.0%}"


def _required(verdict: Verdict) -> str:
    """Formats the required value like the observed one: "100 %" beside "102 %", "0" beside a count."""
    observed, required = verdict.observed, verdict.required
    if verdict.unit == "1" and observed is not None and required is not None and observed != int(observed):
        return format_share(required)
    return _figure(verdict.required, verdict.unit)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    is_share = unit == "1" and value != int(value)
    return format_share(value) if is_share else format_quantity(value, unit)


def show_outcome(console: Console, outcome: str | None, because: str, result: str = "") -> None:
    """Prints the outcome of a run that was judged, and the result of any run that has one."""
    if outcome:
        text = Text.assemble((outcome, STYLES[outcome]), f"  {one_line(because)}" if because else "")
        console.print(text, soft_wrap=True)
    if result:
        console.print(Text.assemble(("result", "bold"), f"  {one_line(result)}"), soft_wrap=True)
