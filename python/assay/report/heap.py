"""A heap profile in the terminal: the summary, then the functions by each metric."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.profile.compare import Change
from assay.profile.heap import COUNTED, METRICS, HeapProfile, by_function
from assay.profile.ranks import COMPARED, outliers
from assay.records.units import format_quantity, format_share

ROWS = 8  # functions by each metric
CHANGES = 15  # functions of a comparison
READ_PYTHONS = "3.11 to 3.13, with the GIL"
UNKNOWN_CODE = "(unknown code)"  # the analyser's word for what lies in no known object and has no name
TOTALS = {"bytes": "allocated", "count": "allocations", "peak": "peak", "leaked": "not freed"}


def show_profile(console: Console, profile: HeapProfile) -> None:
    process, totals = profile.process, profile.totals
    console.print(Text(f"{profile.title}, {process.seconds:.2f} s", style="bold"))
    rate = totals.count / process.seconds if process.seconds > 0 else 0.0
    lines = [
        f"allocated     {_bytes(totals.bytes)} in {totals.count} blocks, {format_quantity(rate, '1/s')}",
        f"peak          {_bytes(totals.peak)} in {totals.peak_count} blocks, after {totals.peak_seconds:.2f} s",
        f"not freed     {_bytes(totals.leaked)} in {totals.leaked_count} blocks",
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
    for metric in METRICS:
        _show_functions(console, profile, metric)
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
    found += _attached(profile)
    if not profile.process.complete and profile.process.ran is None:
        found.append("it did not end by itself: this is what it did until then")
    if trace.source:
        found.append(
            f"a file of {trace.source}'s: lifetimes are a guess, threads and times of calls are not known"
        )
    if profile.process.at_least:
        found.append(f"blocks under {format_quantity(profile.process.at_least, 'B')} were left out")
    if profile.process.sample:
        found.append(
            f"about one block in {format_quantity(profile.process.sample, 'B')} was recorded: figures are estimates"
        )
    if trace.lost_events:
        found.append(f"{trace.lost_events} events could not be recorded")
    if trace.damaged_bytes or trace.unreadable_chunks:
        found.append(
            f"the trace is damaged: {trace.damaged_bytes} bytes, {trace.unreadable_chunks} chunks left out"
        )
    if trace.unread_python:
        found.append(
            f"Python {trace.unread_python} is none of the versions whose functions are seen ({READ_PYTHONS})"
        )
    if any(place.function == UNKNOWN_CODE for place in profile.places):
        found.append(
            "some code has no name: it was made at run time, which Node.js names with --perf-basic-prof "
            "--interpreted-frames-native-stack, and Java with -XX:+PreserveFramePointer "
            "-XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit"
        )
    if trace.missing_objects:
        found.append(f"not there any more, or changed since: {', '.join(trace.missing_objects[:5])}")
    return found


def _attached(profile: HeapProfile) -> list[str]:
    """Of a process that ran before it was recorded: what is known of it."""
    process, freed = profile.process, profile.totals.unknown_frees
    if process.ran is None:
        return []
    found = [
        f"attached to {process.pid} for {process.seconds:.1f} s, {process.ran:.1f} s after its start; blocks from "
        f"before are unknown, {freed} of them were freed or reallocated"
    ]
    if process.left:
        found.append(
            "it goes on: what counts as not freed was in use when it was left, and may still be freed"
        )
    elif not process.complete:
        found.append("the recording was not ended by anybody: this is what was done until then")
    return found


def _show_functions(console: Console, profile: HeapProfile, metric: str) -> None:
    found = [one for one in profile.by(metric, by_function) if one.own][:ROWS]
    if not found:
        return
    whole = sum(getattr(node, metric) for node in profile.nodes)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (METRICS[metric], "", "with callees"):
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


def show_ranks(console: Console, ranks: list[HeapProfile]) -> None:
    """The ranks that are not like the others, or that there is none."""
    far = [(one, its) for one, its in zip(ranks, outliers(ranks), strict=True) if its]
    console.print(Text(f"{len(ranks)} ranks, added up above; unlike the others: {len(far) or 'none'}"))
    for one, its in far:
        words = ", ".join(
            f"{TOTALS[name]} {_amount(getattr(one.totals, name), name)}" for name in COMPARED if name in its
        )
        console.print(Text(f"  rank {one.process.rank} (pid {one.process.pid}): {words}", style="yellow"))
    console.print()


def _amount(value: float, metric: str) -> str:
    return format_quantity(value, "1" if metric in COUNTED else "B")


def _signed(value: float, metric: str) -> str:
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{_amount(abs(value), metric)}"


def show_comparison(
    console: Console, before: HeapProfile, after: HeapProfile, metric: str, found: list[Change]
) -> None:
    """Totals, then the functions whose own figure has changed most."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("in all")
    for heading in ("before", "after", "difference", ""):
        table.add_column(heading, justify="right")
    for name, words in TOTALS.items():
        old, new = getattr(before.totals, name), getattr(after.totals, name)
        share = format_share((new - old) / old) if old else ""
        table.add_row(words, _amount(old, name), _amount(new, name), _signed(new - old, name), share)
    console.print(table)
    console.print()
    if not found:
        console.print(Text(f"no function differs in: {METRICS[metric]}"))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (METRICS[metric], "before", "after"):
        table.add_column(heading, justify="right")
    table.add_column("function")
    table.add_column("at", style="dim")
    for one in found[:CHANGES]:
        table.add_row(
            _signed(one.difference, metric), _amount(one.before, metric), _amount(one.after, metric),
            one.place.function[:80], one.place.source,
        )  # fmt: skip
    console.print(table)
    if len(found) > CHANGES:
        console.print(Text(f"and {len(found) - CHANGES} more", style="dim"))
