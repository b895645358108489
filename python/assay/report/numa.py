"""A NUMA profile in the terminal: the summary, the matrix, objects, lines and threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.numa.recording import MODES
from assay.profile.compare import Change
from assay.profile.numa import (
    METRICS,
    UNITS,
    UNKNOWN_NODE,
    NumaProfile,
    by_node,
    known,
    remote_share,
    rows,
    total,
)
from assay.profile.profiles import Profiles
from assay.records.numa import NumaCells, NumaSampling
from assay.records.units import format_quantity, format_share
from assay.report.tables import plain_table

if TYPE_CHECKING:
    from assay.numa.predict import Prediction

MAX_ROWS = 10


def show_numa_profiles(console: Console, profiles: Profiles, run: Path, show_all: bool = False) -> None:
    """The merged ranks or the first process; all processes if asked for. Nothing in a run without NUMA profiles."""
    if profiles.numa_merged is not None:
        show_numa(console, profiles.numa_merged)
        _show_ranks(console, profiles.numa_ranks)
    first = 0 if profiles.numa_ranks else 1
    for profile in profiles.numa if show_all else profiles.numa[:first]:
        show_numa(console, profile)
    others = len(profiles.numa) - (len(profiles.numa_ranks) or first)
    if others > 0 and not show_all:
        noun = "process" if others == 1 else "processes"
        console.print(f"{others} more {noun}: assay numa show {run} --all", soft_wrap=True)
        console.print()


def show_numa(console: Console, profile: NumaProfile) -> None:
    counts = profile.matrix
    console.print(Text(f"{profile.title}: {MODES.get(profile.process.mode, profile.process.mode)}", "bold"))
    console.print(f"nodes         {_nodes(profile)}")
    column = "accesses" if profile.is_exact else "pages touched"
    console.print(f"{column:<14}{_count(profile, total(counts))}")
    console.print(f"remote        {_share(counts)}")
    if total(counts):
        console.print(f"attributed    {format_share(known(counts) / total(counts))} have a known node")
    if profile.sampling:
        _show_sampling(console, profile.sampling)
    for problem in profile.problems:
        console.print(Text(problem, style="yellow"), soft_wrap=True)
    console.print()
    _show_matrix(console, profile, counts)
    _show_objects(console, profile)
    _show_lines(console, profile)
    _show_first_touches(console, profile)
    _show_threads(console, profile)
    _show_memory(console, profile)
    _show_applied(console, profile)


def _show_sampling(console: Console, sampling: NumaSampling) -> None:
    if not sampling.samples:
        return
    share = format_share(sampling.attributed / sampling.samples)
    console.print(f"objects       {share} of the samples could be given to an object")
    by_source = dict(zip(sampling.sources, sampling.samples_by_source, strict=False))
    shown = [f"{source} {format_share(n / sampling.samples)}" for source, n in by_source.items() if n]
    console.print(Text(f"answered by   {', '.join(shown)}"), soft_wrap=True)


def _nodes(profile: NumaProfile) -> str:
    kind = "emulated" if profile.process.emulated else "real"
    shown = ", ".join(
        f"{node.id} ({node.processors or 'no'} {'CPU' if node.processors == 1 else 'CPUs'}"
        + (f", {format_quantity(float(node.memory), 'B')})" if node.memory else ")")
        for node in profile.nodes
    )
    return f"{len(profile.nodes)} {kind}: {shown}"


def _count(profile: NumaProfile, count: int) -> str:
    return f"{count:,}".replace(",", " ") if profile.is_exact else _bytes(count)


def _bytes(amount: int) -> str:
    return format_quantity(float(amount), "B")


def _share(counts: NumaCells) -> str:
    share = remote_share(counts)
    return "-" if share is None else format_share(share)


def _node(node: int) -> str:
    return "unknown" if node == UNKNOWN_NODE else f"node {node}"


def _table(first: str, *headings: str) -> Table:
    return plain_table(first, numbers=headings)


def _print(console: Console, table: Table) -> None:
    if table.row_count:
        console.print(table)
        console.print()


def _show_matrix(console: Console, profile: NumaProfile, counts: NumaCells) -> None:
    cells = {(a, b): count for a, b, count in rows(counts)}
    threads = sorted({a for a, _ in cells}, key=_last_if_unknown)
    pages = sorted({b for _, b in cells}, key=_last_if_unknown)
    table = _table("threads on", *(f"pages on {_node(node)}" for node in pages))
    for thread in threads:
        table.add_row(_node(thread), *(_count(profile, cells.get((thread, node), 0)) for node in pages))
    _print(console, table)


def _last_if_unknown(node: int) -> tuple[bool, int]:
    return node == UNKNOWN_NODE, node


def _split(by_number: Mapping[int, int]) -> str:
    whole = sum(by_number.values())
    parts = [
        f"{_node(node)} {format_share(by_number[node] / whole)}"
        for node in sorted(by_number, key=_last_if_unknown)
        if by_number[node]
    ]
    return ", ".join(parts)


def _show_objects(console: Console, profile: NumaProfile) -> None:
    column = "accesses" if profile.is_exact else "touched"
    table = _table("object, allocated by", "kind", column, "remote", "pages by node")
    numbers = [*(node.id for node in profile.nodes), UNKNOWN_NODE]
    for row in profile.objects[:MAX_ROWS]:
        counts = profile.counts(row)
        placed = dict(zip(numbers, row.resident, strict=True))
        table.add_row(
            row.name,
            row.kind,
            _count(profile, total(counts)),
            _share(counts),
            _split(placed) or _split(by_node(counts, of_pages=True)),
        )
    _print(console, table)


def _show_lines(console: Console, profile: NumaProfile) -> None:
    metric = "accesses" if profile.is_exact else "touched"
    remotes = profile.calls.exclusive("line", "remote" if profile.is_exact else "touched_remote")
    heading = ("accessed by", "accesses") if profile.is_exact else ("touched first by", "touched")
    table = _table(*heading, "remote")
    table_of = profile.calls.tables.locations
    numbers = {location: k for k, location in reversed(list(enumerate(profile.calls.locations)))}
    for figures in profile.by(metric, "line")[:MAX_ROWS]:
        if not figures.exclusive:
            break
        line = table_of.line_id[numbers[figures.location]]
        table.add_row(
            figures.location.place,
            _count(profile, round(figures.exclusive)),
            format_share(remotes.get(line, 0.0) / figures.exclusive),
        )
    _print(console, table)


def _show_first_touches(console: Console, profile: NumaProfile) -> None:
    table = _table("first touch of", "by", "thread", "touched", "policy", "huge pages")
    touches = profile.first_touches
    for k in range(min(MAX_ROWS, len(touches.object))):
        location = profile.calls.locations[touches.location[k]]
        table.add_row(
            profile.objects[touches.object[k]].name,
            location.place,
            profile.threads[touches.thread[k]].name,
            _bytes(touches.bytes[k]),
            touches.policy[k],
            str(touches.huge[k]),
        )
    _print(console, table)


def _show_threads(console: Console, profile: NumaProfile) -> None:
    column = "accesses" if profile.is_exact else "touched"
    table = _table("thread", column, "remote", "ran on", "bound to CPUs")
    for thread in sorted(profile.threads, key=lambda thread: -total(profile.counts(thread)))[:MAX_ROWS]:
        counts = profile.counts(thread)
        bound = "unknown" if not thread.bindings else thread.bindings[-1].processors
        unbound = " (of several nodes)" if thread.pinned is False else ""
        table.add_row(
            thread.name,
            _count(profile, total(counts)),
            _share(counts),
            _split(by_node(counts, of_pages=False)),
            bound + unbound,
        )
    _print(console, table)


def _show_memory(console: Console, profile: NumaProfile) -> None:
    times, resident = profile.timeline.seconds, profile.timeline.resident
    numbers = [*(node.id for node in profile.nodes), UNKNOWN_NODE]
    used = [k for k, values in enumerate(resident) if any(values)]
    table = _table("in memory after", *(_node(numbers[k]) for k in used))
    last = len(times) - 1
    shown = range(len(times)) if last < MAX_ROWS else [k * last // (MAX_ROWS - 1) for k in range(MAX_ROWS)]
    for k in shown:
        table.add_row(format_quantity(times[k], "s"), *(_bytes(resident[node][k]) for node in used))
    _print(console, table)


def _show_applied(console: Console, profile: NumaProfile) -> None:
    table = _table("applied to", "placement", "remote before", "predicted", "measured")
    for row in profile.applied:
        table.add_row(
            row.name,
            row.action,
            format_share(row.before),
            format_share(row.predicted),
            "not measured" if row.measured is None else format_share(row.measured),
        )
    _print(console, table)


def _show_ranks(console: Console, ranks: Sequence[NumaProfile]) -> None:
    table = _table("rank", "accesses" if all(rank.is_exact for rank in ranks) else "touched", "remote")
    for rank in ranks:
        table.add_row(rank.process.rank, _count(rank, total(rank.matrix)), _share(rank.matrix))
    _print(console, table)


def show_numa_comparison(
    console: Console, before: NumaProfile, after: NumaProfile, metric: str, changes: list[Change]
) -> None:
    """Prints the figures of two profiles side by side: totals, then each object, then the functions that changed."""
    table = _table("", "before", "after", "remote before", "remote after")
    table.add_row(
        "all",
        _count(before, total(before.matrix)),
        _count(after, total(after.matrix)),
        _share(before.matrix),
        _share(after.matrix),
    )
    for name, old, new in compared_objects(before, after)[:MAX_ROWS]:
        table.add_row(name, _count(before, total(old)), _count(after, total(new)), _share(old), _share(new))
    _print(console, table)
    functions = _table(METRICS[metric], "before", "after", "function")
    for change in changes[:MAX_ROWS]:
        sign = "+" if change.difference > 0 else "-"
        amounts = [
            format_quantity(float(abs(value)), UNITS[metric])
            for value in (change.difference, change.before, change.after)
        ]
        functions.add_row(sign + amounts[0], amounts[1], amounts[2], change.location.function[:80])
    _print(console, functions)
    if not changes:
        console.print(Text(f"no function differs in: {METRICS[metric]}"))


def show_prediction(
    console: Console, prediction: Prediction, nodes: Mapping[int, str], emulated: int
) -> None:
    """Prints the predicted remote shares. ``nodes``: the processors of each number, empty for a node with memory alone.
    ``emulated``: the number of emulated nodes of the recording, 0 for real ones."""
    shown = ", ".join(f"{k} ({processors or 'memory alone'})" for k, processors in nodes.items())
    console.print(f"nodes         {shown}", soft_wrap=True)
    if prediction.recorded is not None:
        marked = f" on {emulated} emulated nodes" if emulated else ""
        console.print(f"recorded      {format_share(prediction.recorded)} remote{marked}")
    console.print()
    table = _table("predicted remote share", *prediction.shares)
    table.add_row("all", *(format_share(share) for share in prediction.shares.values()))
    for name, shares in list(prediction.objects.items())[:MAX_ROWS]:
        table.add_row(name, *(format_share(share) for share in shares.values()))
    _print(console, table)
    console.print(
        Text("placements other than the first touch are of heap blocks and mappings", style="dim"),
        soft_wrap=True,
    )


def compared_objects(before: NumaProfile, after: NumaProfile) -> list[tuple[str, NumaCells, NumaCells]]:
    """Objects by name, the largest first; those of one name are added up."""
    old, new = _by_name(before), _by_name(after)
    none = NumaCells([], [], [])
    names = sorted(old.keys() | new.keys())
    objects = [(name, old.get(name, none), new.get(name, none)) for name in names]
    return sorted(objects, key=lambda row: -max(total(row[1]), total(row[2])))


def _by_name(profile: NumaProfile) -> dict[str, NumaCells]:
    sums: dict[str, NumaCells] = {}
    for row in profile.objects:
        counts, before = profile.counts(row), sums.get(row.name)
        sums[row.name] = (
            counts
            if before is None
            else NumaCells(
                before.thread_node + counts.thread_node,
                before.page_node + counts.page_node,
                before.count + counts.count,
            )
        )
    return sums
