"""A heap profile in the terminal: the summary, then the functions by each metric."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.profile.heap import METRICS, HeapProfile, by_function
from assay.records.units import format_quantity, format_share

ROWS = 8  # functions by each metric
COUNTED = {"count", "temporary", "reallocated"}


def show_profile(console: Console, profile: HeapProfile) -> None:
    process, totals = profile.process, profile.totals
    console.print(Text(f"{process.program} (pid {process.pid}), {process.seconds:.2f} s", style="bold"))
    rate = totals.count / process.seconds if process.seconds > 0 else 0.0
    lines = [
        f"allocated     {_bytes(totals.bytes)} in {totals.count} blocks, {format_quantity(rate, '1/s')}",
        f"peak          {_bytes(totals.peak)} in {totals.peak_count} blocks, after {totals.peak_seconds:.2f} s",
        f"never freed   {_bytes(totals.leaked)} in {totals.leaked_count} blocks",
        f"in malloc     {_share(profile, ('malloc', 'calloc', 'memalign', 'realloc'))}",
        f"in free       {_share(profile, ('free',))}",
    ]
    if profile.timeline.samples:
        lines.append(
            f"resident      {_bytes(max(resident for _, _, resident in profile.timeline.samples))} at most"
        )
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    for problem in problems(profile):
        console.print(Text(problem, style="yellow"), soft_wrap=True)
    console.print()
    for metric, words in METRICS.items():
        _show_functions(console, profile, metric, words)
    _show_threads(console, profile)


def _bytes(amount: float) -> str:
    return format_quantity(amount, "B")


def _share(profile: HeapProfile, kinds: tuple[str, ...]) -> str:
    """Time in these calls, reckoned from those that were timed, over the time of all threads that made any."""
    spent = sum(
        thread.calls[kind].seconds for thread in profile.threads for kind in kinds if kind in thread.calls
    )
    if not spent or not profile.process.seconds:
        return "-"
    return f"{format_quantity(spent, 's')}, {format_share(spent / profile.process.seconds)} of the run"


def problems(profile: HeapProfile) -> list[str]:
    """What is missing of the profile, and why."""
    trace, found = profile.trace, []
    if not profile.process.complete:
        found.append("it did not end by itself: this is what it did until then")
    if trace.lost_events:
        found.append(f"{trace.lost_events} events could not be recorded")
    if trace.damaged_bytes or trace.unreadable_chunks:
        found.append(
            f"the trace is damaged: {trace.damaged_bytes} bytes, {trace.unreadable_chunks} chunks left out"
        )
    if trace.missing_objects:
        found.append(f"not there any more, or changed since: {', '.join(trace.missing_objects[:5])}")
    return found


def _show_functions(console: Console, profile: HeapProfile, metric: str, words: str) -> None:
    found = [one for one in profile.by(metric, by_function) if one.own][:ROWS]
    if not found:
        return
    whole = sum(getattr(node, metric) for node in profile.nodes)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (words, "", "with callees"):
        table.add_column(heading, justify="right")
    table.add_column("function")
    table.add_column("at", style="dim")
    for one in found:
        unit = "1" if metric in COUNTED else "B"
        cells = [
            format_quantity(one.own, unit),
            format_share(one.own / whole),
            format_quantity(one.total, unit),
        ]
        table.add_row(*cells, one.place.function[:80], one.place.source)
    console.print(table)
    console.print()


def _show_threads(console: Console, profile: HeapProfile) -> None:
    if len(profile.threads) < 2:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("thread")
    for heading in ("allocated", "allocations", "in malloc", "frees", "in free", "of other threads' blocks"):
        table.add_column(heading, justify="right")
    for thread in profile.threads[:32]:
        gives = [
            thread.calls[kind] for kind in ("malloc", "calloc", "memalign", "realloc") if kind in thread.calls
        ]
        free = thread.calls.get("free")
        table.add_row(
            f"{thread.thread} {thread.name}",
            _bytes(thread.bytes),
            str(sum(one.count for one in gives)),
            format_quantity(sum(one.seconds for one in gives), "s"),
            str(free.count if free else 0),
            format_quantity(free.seconds if free else 0.0, "s"),
            str(thread.foreign_frees),
        )
    console.print(table)
    console.print()
