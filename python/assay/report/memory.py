"""Prints memory measurements: bandwidth between NUMA nodes, and the paced workload in the format of COBALT's mem-test.

COBALT is the correlator of the LOFAR radio telescope; mem-test is one of its acceptance tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from assay.records.schema import AnyRecord, Histogram, Measurement
from assay.records.units import format_bit_rate, format_quantity
from assay.report.tables import plain_table

PEAK, PACED = "node.memory", "node.memory_paced"
BAR = 40  # characters of the longest bar


def show_memory(console: Console, records: Iterable[AnyRecord]) -> None:
    measured = [r for r in records if isinstance(r, Measurement) and r.summary is not None]
    for host in dict.fromkeys(r.subject.host for r in measured):
        _show_peak(console, [r for r in measured if r.name == PEAK and r.subject.host == host])
        _show_paced(console, [r for r in measured if r.name == PACED and r.subject.host == host])


def _show_peak(console: Console, records: Sequence[Measurement]) -> None:
    """Prints a row for each operation and kind of store, a column for each set of cores and memory."""
    if not records:
        return
    columns = list(dict.fromkeys(_describe_cores(r) for r in records))
    table = plain_table(f"memory of {records[0].subject.host}", "stores", numbers=columns)
    for key in dict.fromkeys((str(r.params["operation"]), str(r.params["stores"])) for r in records):
        cells = {
            _describe_cores(r): f"{format_quantity(r.median, r.unit)} ± {_spread(r):.1%}"
            for r in records
            if (r.params["operation"], r.params["stores"]) == key
        }
        table.add_row(key[0], "" if key[1] == "none" else key[1], *(cells.get(c, "-") for c in columns))
    console.print(table)
    best = max(records, key=lambda record: record.median)
    peak = f"peak {format_quantity(best.median, best.unit)} ({best.params['operation']}, {_describe_cores(best)})"
    legend = "; bytes moved: a regular store reads its line first, unless the processor is measured not to"
    console.print(Text(peak + legend, style="dim"))
    console.print()


def _spread(record: Measurement) -> float:
    return record.summary.mad / record.summary.median if record.summary and record.summary.median else 0.0


def _describe_cores(record: Measurement) -> str:
    threads, memory = record.params["threads"], record.params["memory_node"]
    count = f"{threads} thread" + ("" if threads == 1 else "s")
    if memory in ("local", "nearest"):
        return f"all nodes, {count}"
    node = "no node" if record.subject.numa is None else f"node {record.subject.numa}"
    remote = ", remote" if record.params.get("locality") == "remote" else ""
    return f"{node} -> {memory}{remote}, {count}"


def _show_paced(console: Console, records: Sequence[Measurement]) -> None:
    figures = {r.metric: r for r in records if not r.metric.startswith("step_")}
    if "measured" not in figures:
        return
    measured_record = figures["measured"]
    desired, measured = figures["desired"].median, measured_record.median
    achieved, late = figures["achieved"].median, figures["late"].median
    workload, scale = measured_record.params["workload"], measured_record.params["scale"]
    title = f"paced workload {workload} on {measured_record.subject.host}, {measured_record.params['threads']} threads"
    console.print(Text(title + ("" if scale == 1 else f", at {scale:.0%} of its rates"), style="bold"))
    console.print(f"Desired speed:   {format_bit_rate(desired)}")
    console.print(f"Measured speed:  {format_bit_rate(measured)} ({achieved:.2%} of desired)")
    console.print(f"Average late:    {late:.3%}")
    console.print()
    _show_steps(console, records)
    lateness = figures.get("lateness")
    if lateness is not None and lateness.histogram is not None and lateness.summary is not None:
        s = lateness.summary
        line = f"lateness of {s.n} blocks: median {format_quantity(s.median, 's')}"
        if s.p99 is not None and s.max is not None:
            line += f", 99 % under {format_quantity(s.p99, 's')}, at most {format_quantity(s.max, 's')}"
        console.print(line)
        show_histogram(console, lateness.histogram, "s")
    console.print()


def _show_steps(console: Console, records: Sequence[Measurement]) -> None:
    table = plain_table("step", "operation", numbers=["block", "achieved", "late"])
    table.columns[0].justify = "right"
    late = {r.params["step"]: r.median for r in records if r.metric == "step_late"}
    for r in records:
        if r.metric == "step_achieved":
            block = format_quantity(float(r.params["size"]), "B")
            step = r.params["step"]
            table.add_row(
                str(step), str(r.params["operation"]), block, f"{r.median:.2%}", f"{late[step]:.3%}"
            )
    console.print(table)


def show_histogram(console: Console, histogram: Histogram, unit: str) -> None:
    """Prints a bar for each bin without the empty ends; a bin with any sample has a visible bar."""
    filled = [k for k, count in enumerate(histogram.counts) if count]
    if not filled:
        return
    total, highest = sum(histogram.counts), max(histogram.counts)
    for k in range(filled[0], filled[-1] + 1):
        count, low, high = histogram.counts[k], histogram.edges[k], histogram.edges[k + 1]
        name = f"under {format_quantity(high, unit)}" if low <= 0 else f"from {format_quantity(low, unit)}"
        bar = "#" * max(1 if count else 0, round(BAR * count / highest))
        console.print(f"  {name:>14}  {bar:<{BAR}}  {count} ({count / total:.2%})")
