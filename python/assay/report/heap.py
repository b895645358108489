"""A heap profile in the terminal: the summary, then the functions by each metric."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from assay.profile.compare import Change
from assay.profile.heap import COUNTED, METRICS, HeapProfile
from assay.profile.profiles import Profiles
from assay.profile.ranks import COMPARED_TOTALS, outliers
from assay.records.units import format_quantity, format_share
from assay.report.tables import plain_table

MAX_FUNCTIONS = 8  # a metric
MAX_CHANGES = 15  # functions in a comparison
MAX_UNRECORDED = 10  # programs
READ_PYTHONS = "3.11 to 3.13, with the GIL"
MIN_SECONDS = 0.01  # for a rate; times are shown, and those of imported traces are, in steps of it
UNKNOWN_CODE = "(unknown code)"  # the analyser's name for an address outside of all known objects
TOTALS = {"bytes": "allocated", "count": "allocations", "peak": "peak", "leaked": "not freed"}


def show_profiles(console: Console, profiles: Profiles, run: Path, show_all: bool = False) -> None:
    """The merged ranks or the largest process; all processes if asked for. Nothing in a run without profiles."""
    if profiles.merged is not None:
        show_profile(console, profiles.merged)
        show_ranks(console, profiles.ranks)
    first = 0 if profiles.ranks else 1
    for profile in profiles.processes if show_all else profiles.processes[:first]:
        show_profile(console, profile)
    for line in missing(profiles):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    others = len(profiles.processes) - (len(profiles.ranks) or first)
    if others > 0 and not show_all:
        noun = "process" if others == 1 else "processes"
        console.print(f"{others} more {noun}: assay heap show {run} --all", soft_wrap=True)
        console.print()


def show_profile(console: Console, profile: HeapProfile) -> None:
    process, totals = profile.process, profile.totals
    console.print(Text(f"{profile.title}, {process.seconds:.2f} s", style="bold"))
    left = "at the end" if profile.trace.cut_off else "not freed"
    rate = f", {format_quantity(totals.count / process.seconds, '1/s')}" if _is_timed(profile) else ""
    lines = [
        f"allocated     {_format_bytes(totals.bytes)} in {totals.count} blocks{rate}",
        f"peak          {_format_bytes(totals.peak)} in {totals.peak_count} blocks, after {totals.peak_seconds:.2f} s",
        f"{left:13} {_format_bytes(totals.leaked)} in {totals.leaked_count} blocks",
        *_runtime_pools(profile),
        f"in malloc     {_time_share(profile, ('malloc', 'calloc', 'memalign', 'realloc'))}",
        f"in free       {_time_share(profile, ('free',))}",
    ]
    if profile.timeline.resident:
        lines.append(f"resident      {_format_bytes(max(profile.timeline.resident))} at most")
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    for problem in problems(profile):
        console.print(Text(problem, style="yellow"), soft_wrap=True)
    console.print()
    for metric in METRICS:
        _show_functions(console, profile, metric)
    _show_threads(console, profile)


def _runtime_pools(profile: HeapProfile) -> list[str]:
    """Nothing where no runtime library keeps memory."""
    if not profile.pools:
        return []
    total = _format_bytes(sum(pool.bytes for pool in profile.pools))
    parts = ", ".join(f"{pool.name} {_format_bytes(pool.bytes)}" for pool in profile.pools)
    return [f"runtime pools {total}, no leaks: {parts}"]


def _format_bytes(amount: float) -> str:
    return format_quantity(amount, "B")


def _time_share(profile: HeapProfile, kinds: tuple[str, ...]) -> str:
    """Time in these calls, extrapolated from the timed ones, and its share of the run."""
    spent = sum(
        thread.calls[kind].seconds for thread in profile.threads for kind in kinds if kind in thread.calls
    )
    if not spent:
        return "-"
    share = f", {format_share(spent / profile.process.seconds)} of the run" if _is_timed(profile) else ""
    return f"{format_quantity(spent, 's')}{share}"


def _is_timed(profile: HeapProfile) -> bool:
    """Whether the process ran long enough for rates and shares of its time."""
    return profile.process.seconds >= MIN_SECONDS


def missing(profiles: Profiles) -> list[str]:
    """Programs that the recorded ones started and that are not recorded, with the reasons."""
    more = len(profiles.unrecorded) - MAX_UNRECORDED
    lines = [f"not recorded: {line}" for line in profiles.unrecorded[:MAX_UNRECORDED]]
    return lines + (
        [f"not recorded: {more} more, in the trace sections of RUN/heap/*.json"] if more > 0 else []
    )


def problems(profile: HeapProfile) -> list[str]:
    """Messages about missing or uncertain parts of the profile, with the reasons."""
    trace, messages = profile.trace, []
    messages += _attach_problems(profile)
    if trace.cut_off:
        messages.append("the file lacks its end: what was not freed in it may be freed later")
    elif not profile.process.complete and profile.process.attached_after is None:
        messages.append("the process did not end by itself: the profile holds what it did until then")
    if trace.imported_from:
        messages.append(
            f"imported from {trace.imported_from}: lifetimes are estimates; threads and call times are unknown"
        )
    if profile.process.at_least:
        messages.append(f"blocks under {format_quantity(profile.process.at_least, 'B')} were left out")
    if profile.process.sample:
        messages.append(
            f"about one block in {format_quantity(profile.process.sample, 'B')} was recorded: figures are estimates"
        )
    if trace.lost_events:
        messages.append(
            f"{trace.lost_events} events could not be recorded: figures are too low, and what was freed may count as "
            "not freed; record less: --at-least SIZE or --sample SIZE"
        )
    if trace.lost_faults:
        messages.append(
            f"{trace.lost_faults} page faults could not be recorded, since the kernel's buffer was full: first touches "
            "are at least the shown ones; leave a processor to the recorder, or sysctl kernel.perf_event_mlock_kb=4100"
        )
    if trace.damaged_bytes or trace.unreadable_chunks:
        messages.append(
            f"the trace is damaged: {trace.damaged_bytes} bytes, {trace.unreadable_chunks} chunks left out"
        )
    if trace.unsupported_python:
        messages.append(
            f"Python {trace.unsupported_python} is not supported: its functions are missing (supported: {READ_PYTHONS})"
        )
    if any(location.function == UNKNOWN_CODE for location in profile.calls.locations):
        messages.append(
            "some code has no name: it was generated at run time; to name it, run Node.js with --perf-basic-prof "
            "--interpreted-frames-native-stack, or Java with -XX:+PreserveFramePointer "
            "-XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit"
        )
    if trace.missing_objects:
        messages.append(f"without symbols, since missing or changed: {', '.join(trace.missing_objects[:5])}")
    return messages


def _attach_problems(profile: HeapProfile) -> list[str]:
    """Limits of a profile whose recording began in a running process."""
    process, freed = profile.process, profile.totals.unknown_frees
    if process.attached_after is None:
        return []
    messages = [
        f"attached to {process.pid} for {process.seconds:.1f} s, {process.attached_after:.1f} s after its start; "
        f"blocks from before are unknown, {freed} of them were freed or reallocated"
    ]
    if process.detached:
        messages.append("the process goes on: blocks that count as not freed may still be freed")
    elif not process.complete:
        messages.append("the recording ended early: the profile holds what was recorded until then")
    return messages


def _show_functions(console: Console, profile: HeapProfile, metric: str) -> None:
    rows = [figures for figures in profile.by(metric, "function") if figures.exclusive][:MAX_FUNCTIONS]
    if not rows:
        return
    total = profile.calls.of_stacks(metric).sum()
    table = plain_table(numbers=[METRICS[metric], "", "with callees"])
    table.add_column("function")
    table.add_column("source", style="dim")
    for figures in rows:
        unit = "1" if metric in COUNTED else "B"
        cells = [
            format_quantity(figures.exclusive, unit),
            format_share(figures.exclusive / total),
            format_quantity(figures.inclusive, unit),
        ]
        table.add_row(*cells, figures.location.function[:80], figures.location.source)
    console.print(table)
    console.print()


def _show_threads(console: Console, profile: HeapProfile) -> None:
    if len(profile.threads) < 2:
        return
    table = plain_table(
        "thread",
        numbers=["allocated", "allocations", "in malloc", "frees", "in free", "of other threads' blocks"],
    )
    for thread in profile.threads[:32]:
        allocations = [
            thread.calls[kind] for kind in ("malloc", "calloc", "memalign", "realloc") if kind in thread.calls
        ]
        free = thread.calls.get("free")
        table.add_row(
            f"{thread.thread} {thread.name}",
            _format_bytes(thread.bytes),
            str(sum(calls.count for calls in allocations)),
            format_quantity(sum(calls.seconds for calls in allocations), "s"),
            str(free.count if free else 0),
            format_quantity(free.seconds if free else 0.0, "s"),
            str(thread.foreign_frees),
        )
    console.print(table)
    console.print()


def show_ranks(console: Console, ranks: list[HeapProfile]) -> None:
    """The ranks that are outliers, or that there are none."""
    outlying = [(rank, names) for rank, names in zip(ranks, outliers(ranks), strict=True) if names]
    console.print(Text(f"{len(ranks)} ranks, merged above; outliers: {len(outlying) or 'none'}"))
    for rank, names in outlying:
        totals = ", ".join(
            f"{TOTALS[name]} {_amount(getattr(rank.totals, name), name)}"
            for name in COMPARED_TOTALS
            if name in names
        )
        console.print(Text(f"  rank {rank.process.rank} (pid {rank.process.pid}): {totals}", style="yellow"))
    console.print()


def _amount(value: float, metric: str) -> str:
    return format_quantity(value, "1" if metric in COUNTED else "B")


def _signed(value: float, metric: str) -> str:
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{_amount(abs(value), metric)}"


def show_comparison(
    console: Console, before: HeapProfile, after: HeapProfile, metric: str, changes: list[Change]
) -> None:
    """Prints totals, then the functions whose exclusive figure changed most."""
    table = plain_table("total", numbers=["before", "after", "difference", ""])
    for name, title in TOTALS.items():
        old, new = getattr(before.totals, name), getattr(after.totals, name)
        share = format_share((new - old) / old) if old else ""
        table.add_row(title, _amount(old, name), _amount(new, name), _signed(new - old, name), share)
    console.print(table)
    console.print()
    if not changes:
        console.print(Text(f"no function differs in: {METRICS[metric]}"))
        return
    table = plain_table(numbers=[METRICS[metric], "before", "after"])
    table.add_column("function")
    table.add_column("source", style="dim")
    for change in changes[:MAX_CHANGES]:
        table.add_row(
            _signed(change.difference, metric), _amount(change.before, metric), _amount(change.after, metric),
            change.location.function[:80], change.location.source,
        )  # fmt: skip
    console.print(table)
    if len(changes) > MAX_CHANGES:
        console.print(Text(f"and {len(changes) - MAX_CHANGES} more", style="dim"))
