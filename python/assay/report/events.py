"""Prints event building: rates as shares of the network's rate, the ledger of events and fragments, rates over time,
deaths of ranks, and the best points of a search for parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from assay.events.figures import LEDGER, TUNE, Building, buildings
from assay.events.shares import NetworkRates, network_rates
from assay.events.stability import usual_rate
from assay.records.schema import AnyRecord, Measurement
from assay.records.units import format_quantity, format_share, format_size
from assay.report.tables import plain_table

BLOCKS = "▁▂▃▄▅▆▇█"
COLUMNS = 60  # characters of the line of rates over time
MAX_POINTS = 5  # of a search that are printed, the best first

LEDGER_TITLES = {
    "events_built": "events built",
    "events_incomplete": "events incomplete",
    "events_reassigned": "events reassigned",
    "fragments_built": "fragments built",
    "fragments_partial": "fragments of incomplete events",
    "fragments_lost": "fragments lost",
    "fragments_corrupt": "fragments corrupt",
    "fragments_duplicate": "fragments twice",
    "fragments_unaccounted": "fragments unaccounted",
}


def show_events(console: Console, records: Sequence[AnyRecord]) -> None:
    """Prints a table of rates, the ledger and the line over time of each building, and a search's best points."""
    built = [b for b in buildings(records) if b.totals or b.slices]
    if built:
        _show_rates(console, built, network_rates(records))
        _show_ledger(console, built)
        for building in built:
            _show_time(console, building, several=len(built) > 1)
    _show_search(console, [r for r in records if isinstance(r, Measurement) and r.name == TUNE])


def _cell(value: float | None, unit: str) -> str:
    return "-" if value is None or math.isnan(value) else format_quantity(value, unit)


def _show_rates(console: Console, built: Sequence[Building], reference: NetworkRates) -> None:
    table = plain_table(
        "event building",
        numbers=["built", "between ranks", "of pairs", "of MPI_Alltoall", "latency p50", "p99"],
    )
    for building in built:
        rate = building.network_throughput
        latency = building.totals.get("latency")
        summary = latency.summary if latency else None
        table.add_row(
            building.label,
            _cell(building.throughput, "B/s"),
            _cell(rate, "B/s"),
            _share(rate, reference.pairs),
            _share(rate, reference.alltoall),
            _cell(summary.median if summary else None, "s"),
            _cell(summary.p99 if summary else None, "s"),
        )
    console.print(table)
    limits = [
        f"{name} {format_quantity(value, 'B/s')}"
        for name, value in (
            ("pairs of ranks at once carry", reference.pairs),
            ("MPI_Alltoall", reference.alltoall),
            ("MPI_Alltoallv", reference.alltoallv),
            ("MPI_Alltoall with all bytes written and checked", reference.alltoall_verified),
        )
        if not math.isnan(value)
    ]
    if limits:
        console.print(Text("in the same run: " + ", ".join(limits), style="dim"), soft_wrap=True)
    console.print()


def _share(rate: float, limit: float) -> str:
    return "-" if math.isnan(rate) or not limit > 0 else format_share(rate / limit)


def _show_ledger(console: Console, built: Sequence[Building]) -> None:
    table = plain_table("ledger", numbers=(b.label if len(built) > 1 else "" for b in built))
    for metric in LEDGER:
        counts = [building.count(metric) for building in built]
        if any(count is not None for count in counts):
            cells = ["not counted" if count is None else f"{count:,.0f}" for count in counts]
            table.add_row(LEDGER_TITLES[metric], *cells)
    resent = [sum(building.packets("packets_resent").values()) for building in built]
    sent = [sum(building.packets("packets_sent").values()) for building in built]
    if any(sent):
        packets = [
            f"{again:,.0f} of {total:,.0f}" if total else "not counted"
            for again, total in zip(resent, sent, strict=True)
        ]
        table.add_row("packets sent again", *packets)
    if table.row_count:
        console.print(table)
        console.print()


def _show_time(console: Console, building: Building, several: bool) -> None:
    rates = [part.rate for part in building.slices if not math.isnan(part.rate)]
    if len(rates) > 1:
        title = f"{building.label}: " if several else ""
        median = building.throughput  # without the rest that is built when no events are assigned any more
        if math.isnan(median):
            median = usual_rate(building.slices)
        line = "".join(_block(rate, max(rates)) for rate in _lowest_by_column(rates))
        console.print(
            Text(
                f"{title}over {building.slices[-1].end:.0f} s  {line}  median "
                f"{format_quantity(median, 'B/s')}, lowest {format_quantity(min(rates), 'B/s')}"
            ),
            soft_wrap=True,
        )
    for record in building.resumes:
        resumed = (
            f"building resumed after {format_quantity(record.median, 's')}"
            if record.summary
            else "the run ended before building resumed"
        )
        console.print(Text(f"lost {record.params.get('lost')}: {resumed}"), soft_wrap=True)
    for record in building.returns:
        after = format_quantity(record.median, "s")
        console.print(
            Text(f"{record.params.get('lost')} came back, and took part again {after} after its loss"),
            soft_wrap=True,
        )
    for record in building.replans:
        after = format_quantity(record.median, "s")
        console.print(
            Text(
                f"planned anew for the ranks that were there: {record.params.get('steps')} steps, after {after}"
            ),
            soft_wrap=True,
        )
    if len(rates) > 1 or building.resumes:
        console.print()


def _lowest_by_column(rates: Sequence[float]) -> list[float]:
    """At most COLUMNS values: the lowest of each stretch, so that no dip is hidden."""
    if len(rates) <= COLUMNS:
        return list(rates)
    bounds = [len(rates) * k // COLUMNS for k in range(COLUMNS + 1)]
    return [min(rates[first:last]) for first, last in itertools.pairwise(bounds)]


def _block(rate: float, most: float) -> str:
    share = rate / most if most > 0 else 0.0
    if not 0 < share < 1:  # a run of another user may hold any figures
        return BLOCKS[-1] if share >= 1 else BLOCKS[0]
    return BLOCKS[int(len(BLOCKS) * share)]


def _show_search(console: Console, records: Sequence[Measurement]) -> None:
    points = sorted(
        (r for r in records if r.metric == "throughput" and r.summary), key=lambda r: r.median, reverse=True
    )
    if not points:
        return
    names = list(points[0].params)
    table = plain_table(numbers=[*names, "throughput", "of the best", "measured"])
    for record in points[:MAX_POINTS]:
        values = [
            format_size(int(value)) if name == "fragment" else str(value)
            for name, value in record.params.items()
        ]
        share = format_share(record.median / points[0].median) if points[0].median > 0 else "-"
        times = record.summary.n if record.summary else 0
        table.add_row(*values, format_quantity(record.median, "B/s"), share, f"{times}x")
    console.print(table)
    shares = {r.metric: r.median for r in records if r.metric in ("reached", "cost")}
    if "reached" in shares:
        console.print(
            f"{len(points)} points measured, {format_share(shares.get('cost', math.nan))} of the grid's cost; "
            f"{format_share(shares['reached'])} of them within 2 % of the best"
        )
    important = sorted(
        ((r.median, str(r.params.get("parameter"))) for r in records if r.metric == "importance"),
        reverse=True,
    )
    if important:
        listed = ", ".join(f"{name} {format_share(value)}" for value, name in important)
        console.print(f"what matters: {listed}")
    console.print()
