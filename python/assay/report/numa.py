"""A NUMA profile in the terminal: the summary, the matrix, objects, lines and threads."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.numa.profile import (
    Counts,
    Profile,
    by_object,
    by_site,
    by_thread,
    first_touches,
    resident,
    total,
)
from assay.numa.recording import MODES, NOWHERE, POLICIES, as_text
from assay.records.units import format_quantity, format_share

MAX_ROWS = 10
EMULATED = "nodes are emulated: placement is simulated, and no access was slower for it"


def show_numa(console: Console, profile: Profile) -> None:
    recording = profile.recording
    counts = total(profile)
    console.print(Text(f"{profile.title}: {MODES[recording.process.mode]}", style="bold"))
    console.print(f"nodes         {_nodes(profile)}")
    what = "accesses" if profile.is_exact else "pages touched"
    console.print(f"{what:<14}{_count(profile, counts.total)}")
    console.print(f"remote        {_share(counts)}")
    if counts.total:
        console.print(f"attributed    {format_share(counts.known / counts.total)} have a known node")
    for warning in warnings(profile):
        console.print(Text(warning, style="yellow"), soft_wrap=True)
    console.print()
    _show_matrix(console, profile, counts)
    _show_objects(console, profile)
    _show_sites(console, profile)
    if not profile.is_exact:
        _show_first_touches(console, profile)
    _show_threads(console, profile)
    _show_memory(console, profile)


def warnings(profile: Profile) -> list[str]:
    """What the profile lacks, and the reasons."""
    recording = profile.recording
    messages = [EMULATED] if recording.process.emulated else []
    if len(recording.nodes) < 2:
        messages.append("this machine has one node: nothing is remote; try --emulate 2")
    messages += list(dict.fromkeys(recording.notes))
    if recording.end is None:
        messages.append("the recording ended early: it holds what happened until then")
    elif recording.end.lost:
        messages.append(f"{recording.end.lost} events could not be recorded")
    return messages


def _nodes(profile: Profile) -> str:
    nodes = profile.recording.nodes.values()
    kind = "emulated" if profile.recording.process.emulated else "real"
    shown = ", ".join(
        f"{node.id} ({len(node.processors)} CPUs"
        + (f", {format_quantity(float(node.memory), 'B')})" if node.memory else ")")
        for node in nodes
    )
    return f"{len(nodes)} {kind}: {shown}"


def _count(profile: Profile, count: int) -> str:
    if profile.is_exact:
        return f"{count:,}".replace(",", " ")
    return format_quantity(float(count * profile.recording.process.page_bytes), "B")


def _share(counts: Counts) -> str:
    return "-" if counts.remote_share is None else format_share(counts.remote_share)


def _node(node: int) -> str:
    return "unknown" if node == NOWHERE else f"node {node}"


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 else "right")
    return table


def _show_matrix(console: Console, profile: Profile, counts: Counts) -> None:
    if not counts.cells:
        return
    threads = sorted({a for a, _ in counts.cells}, key=_last_if_unknown)
    pages = sorted({b for _, b in counts.cells}, key=_last_if_unknown)
    table = _table("threads on", *(f"pages on {_node(node)}" for node in pages))
    for thread in threads:
        table.add_row(
            _node(thread), *(_count(profile, counts.cells.get((thread, node), 0)) for node in pages)
        )
    console.print(table)
    console.print()


def _last_if_unknown(node: int) -> tuple[bool, int]:
    return node == NOWHERE, node


def _split(profile: Profile, by_node: Mapping[int, int]) -> str:
    whole = sum(by_node.values())
    parts = [
        f"{_node(node)} {format_share(by_node[node] / whole)}"
        for node in sorted(by_node, key=_last_if_unknown)
        if by_node[node]
    ]
    return ", ".join(parts)


def _show_objects(console: Console, profile: Profile) -> None:
    table = _table(
        "object, allocated by",
        "kind",
        "accesses" if profile.is_exact else "touched",
        "remote",
        "pages by node",
    )
    pages = resident(profile)
    for number, counts in list(by_object(profile).items())[:MAX_ROWS]:
        placed = pages.get(number) or ({} if profile.is_exact else counts.by_page_node())
        table.add_row(
            profile.name(number),
            profile.recording.objects[number].kind,
            _count(profile, counts.total),
            _share(counts),
            _split(profile, placed) or _split(profile, counts.by_page_node()),
        )
    if table.row_count:
        console.print(table)
        console.print()


def _show_sites(console: Console, profile: Profile) -> None:
    title = "accessed by" if profile.is_exact else "touched first by"
    table = _table(title, "accesses" if profile.is_exact else "touched", "remote", "threads on")
    for location, counts in list(by_site(profile).items())[:MAX_ROWS]:
        table.add_row(
            f"{location.function} ({location.source})",
            _count(profile, counts.total),
            _share(counts),
            _split(profile, counts.by_thread_node()),
        )
    if table.row_count:
        console.print(table)
        console.print()


def _show_first_touches(console: Console, profile: Profile) -> None:
    table = _table("first touch of", "by", "thread", "touched", "policy", "huge pages")
    details: dict[tuple[int, int, int], tuple[set[int], int]] = {}
    for row in profile.recording.touches:
        policies, huge = details.get((row.object, row.thread, 0), (set(), 0))
        details[row.object, row.thread, 0] = (policies | {row.policy}, huge + row.huge)
    for (number, location, thread), counts in list(first_touches(profile).items())[:MAX_ROWS]:
        policies, huge = details[number, thread, 0]
        table.add_row(
            profile.name(number),
            f"{location.function} ({location.source})",
            str(thread),
            _count(profile, counts.total),
            ", ".join(_policy(policy) for policy in sorted(policies)),
            str(huge),
        )
    if table.row_count:
        console.print(table)
        console.print()


def _policy(mode: int) -> str:
    return POLICIES[mode] if mode < len(POLICIES) else f"mode {mode}"


def _show_threads(console: Console, profile: Profile) -> None:
    table = _table(
        "thread", "accesses" if profile.is_exact else "touched", "remote", "ran on", "bound to CPUs"
    )
    bound = {binding.thread: len(binding.processors) for binding in profile.recording.bindings}
    processors = sum(len(node.processors) for node in profile.recording.nodes.values())
    for thread, counts in list(by_thread(profile).items())[:MAX_ROWS]:
        row = profile.recording.threads[thread]
        width = bound.get(thread)
        binding = "unknown" if width is None else "unbound" if width >= processors else str(width)
        table.add_row(
            f"{thread} {as_text(row.name)}".strip(),
            _count(profile, counts.total),
            _share(counts),
            _split(profile, counts.by_thread_node()),
            binding,
        )
    if table.row_count:
        console.print(table)
        console.print()


def _show_memory(console: Console, profile: Profile) -> None:
    rows = profile.recording.memory
    if not rows:
        return
    table = _table(
        "in memory after", *(_node(node) for node in sorted({row.node for row in rows}, key=_last_if_unknown))
    )
    nodes = sorted({row.node for row in rows}, key=_last_if_unknown)
    times = sorted({row.ns for row in rows})
    shown = (
        times
        if len(times) <= MAX_ROWS
        else [times[k * (len(times) - 1) // (MAX_ROWS - 1)] for k in range(MAX_ROWS)]
    )
    pages = {(row.ns, row.node): row.pages for row in rows}
    page = profile.recording.process.page_bytes
    for ns in shown:
        table.add_row(
            format_quantity(ns * 1e-9, "s"),
            *(format_quantity(float(pages.get((ns, node), 0) * page), "B") for node in nodes),
        )
    console.print(table)
    console.print()


def show_numa_comparison(console: Console, before: Profile, after: Profile) -> None:
    """The figures of two profiles side by side: the whole, then each object that both have."""
    table = _table("", "before", "after", "remote before", "remote after")
    first, second = total(before), total(after)
    table.add_row(
        "all", _count(before, first.total), _count(after, second.total), _share(first), _share(second)
    )
    counts = {before.name(number): found for number, found in reversed(by_object(before).items())}
    others = {after.name(number): found for number, found in reversed(by_object(after).items())}
    names = sorted(counts.keys() | others.keys(), key=lambda name: -_largest(name, counts, others))
    for name in names[:MAX_ROWS]:
        old, new = counts.get(name, Counts()), others.get(name, Counts())
        table.add_row(name, _count(before, old.total), _count(after, new.total), _share(old), _share(new))
    console.print(table)


def _largest(name: str, *groups: Mapping[str, Counts]) -> int:
    return max(group[name].total for group in groups if name in group)
