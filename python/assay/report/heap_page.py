"""A heap profile as the report's page wants it: in columns, with the sources that it speaks of, and without what is
too small to be seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from msgspec.structs import asdict, fields

from assay.profile.heap import Fragments, HeapProfile, Node, Touches, by_line
from assay.profile.ranks import added_up, outliers, ranks_of
from assay.records.heap_page import (
    HeapCalls,
    HeapFragments,
    HeapNodes,
    HeapObject,
    HeapPage,
    HeapPlaces,
    HeapRank,
    HeapSource,
    HeapSpread,
    HeapThread,
    HeapTimeline,
    HeapTotals,
    HeapTouches,
    HeapVariable,
)
from assay.report.heap import problems

MOST_PROCESSES = 16
MOST_TOUCHED = 200  # stacks
MOST_NODES = (
    60_000  # a page with more would open in seconds; what is left out is less than one part in 10,000
)
LEAST_SHARE = 1e-4
SOURCES_BYTES = 8 << 20  # of all files together
SOURCE_BYTES = 1 << 20  # of one
SUMS = ("count", "bytes", "at_peak", "leaked", "leaked_count", "temporary", "reallocated", "frees", "lifetime",
        "sampled_ticks", "sampled_calls", "sampled_free_ticks", "sampled_frees", "foreign_reallocations")  # fmt: skip
SEEN = (
    "count",
    "bytes",
    "at_peak",
    "leaked",
    "temporary",
    "reallocated",
    "frees",
)  # what makes a node worth showing


def heap_pages(profiles: Sequence[HeapProfile], dumps: Sequence[HeapProfile], ran: str) -> Iterator[HeapPage]:
    """Of the processes of a run, the largest first; before them the sum of those of an MPI program, after them the
    profiles that were written on the way."""
    if ranks := ranks_of(profiles):
        whole = added_up(ranks)
        page = heap_page(whole, whole.title, ran)
        page.ranks = [
            HeapRank(
                name=f"rank {one.process.rank}",
                pid=one.process.pid,
                peak=one.totals.peak,
                bytes=one.totals.bytes,
                count=one.totals.count,
                leaked=one.totals.leaked,
                seconds=one.process.seconds,
                outlier=far,
            )
            for one, far in zip(ranks, outliers(ranks), strict=True)
        ]
        yield page
    for profile in profiles[:MOST_PROCESSES]:
        yield heap_page(profile, profile.title, ran)
    for profile in dumps[:MOST_PROCESSES]:
        yield heap_page(profile, f"{profile.title}, after {profile.process.seconds:.2f} s", ran)


def heap_page(profile: HeapProfile, title: str, ran: str, most_nodes: int = MOST_NODES) -> HeapPage:
    """``title`` tells the process from the run's others; ``ran`` is when the run began (ISO 8601)."""
    kept = _kept(profile, most_nodes)
    renumbered = {old: new for new, old in enumerate(kept)}
    nodes = _merged(profile, renumbered)
    totals = asdict(profile.totals)
    timeline, pages = profile.timeline, profile.fragments
    return HeapPage(
        program=profile.process.program,
        pid=profile.process.pid,
        title=title,
        seconds=profile.process.seconds,
        complete=profile.process.complete,
        tick=profile.tick,
        problems=problems(profile),
        totals=HeapTotals(**{field.name: totals[field.name] for field in fields(HeapTotals)}),
        ranks=[],
        threads=[
            HeapThread(
                thread=one.thread, name=one.name, bytes=one.bytes, first=one.first, last=one.last,
                foreign_frees=one.foreign_frees,
                calls={kind: HeapCalls(calls.count, calls.seconds) for kind, calls in one.calls.items()},
                deepest=one.stack.deepest, deepest_seconds=one.stack.seconds,
                deepest_node=_shown(profile, renumbered, one.stack.node),
                resident=one.stack.resident, depth=one.stack.depth,
            )
            for one in profile.threads
        ],
        timeline=HeapTimeline(
            start=timeline.start, step=timeline.step, live=timeline.live, count=timeline.count, bytes=timeline.bytes,
            seconds=[sample[0] for sample in timeline.samples],
            virtual=[sample[1] for sample in timeline.samples],
            resident=[sample[2] for sample in timeline.samples],
        ),
        sizes=profile.sizes,
        frequent_size=[size for size, _ in profile.frequent],
        frequent_count=[count for _, count in profile.frequent],
        lifetimes=profile.lifetimes,
        touches=None if profile.touches is None else _touches(profile, profile.touches, renumbered),
        fragments=None if pages is None else _fragments(profile, pages, renumbered),
        objects=[HeapObject(**asdict(one)) for one in profile.globals.objects],
        variables=[HeapVariable(**asdict(one)) for one in profile.globals.variables],
        places=_places(profile),
        nodes=nodes,
        spreads={
            str(renumbered[int(node)]): HeapSpread(*spread)
            for node, spread in profile.tree.spreads.items()
            if int(node) in renumbered
        },
        sources=_sources(profile, ran),
        left_out=len(profile.nodes) - len(kept),
    )  # fmt: skip


def _touches(profile: HeapProfile, touches: Touches, renumbered: dict[int, int]) -> HeapTouches:
    stacks = sorted(touches.stacks, key=lambda one: -one.pages)[:MOST_TOUCHED]
    return HeapTouches(
        outside=touches.outside,
        line_function=[one.function for one in touches.lines],
        line_file=[one.file for one in touches.lines],
        line=[one.line for one in touches.lines],
        line_pages=[one.pages for one in touches.lines],
        node=[_shown(profile, renumbered, one.node) for one in stacks],
        node_pages=[one.pages for one in stacks],
        node_with_huge=[one.with_huge for one in stacks],
        thread=[thread for thread, _ in touches.threads],
        thread_pages=[pages for _, pages in touches.threads],
    )


def _fragments(profile: HeapProfile, pages: Fragments, renumbered: dict[int, int]) -> HeapFragments:
    return HeapFragments(
        seconds=pages.seconds,
        resident=pages.resident,
        live=pages.live,
        page_bytes=pages.page_bytes,
        pages=pages.pages,
        filled=pages.filled,
        pin_node=[_shown(profile, renumbered, pin.node) for pin in pages.pins],
        pin_bytes=[pin.bytes for pin in pages.pins],
        pin_blocks=[pin.blocks for pin in pages.pins],
    )


def _kept(profile: HeapProfile, most: int) -> Sequence[int]:
    """The nodes to show, callers before what they call."""
    if len(profile.nodes) <= most:
        return range(len(profile.nodes))
    shares = [0.0] * len(profile.nodes)
    for metric in SEEN:
        total = sum(getattr(node, metric) for node in profile.nodes)
        if not total:
            continue
        below: list[int] = [getattr(node, metric) for node in profile.nodes]
        for number in range(len(below) - 1, -1, -1):
            shares[number] = max(shares[number], below[number] / total)
            if (parent := profile.nodes[number].parent) >= 0:
                below[parent] += below[number]
    # A caller's share is never less than that of what it calls: with a node, all its callers are kept.
    ranked = sorted(range(len(shares)), key=lambda number: (-shares[number], number))
    return sorted(number for number in ranked[:most] if shares[number] >= LEAST_SHARE)


def _shown(profile: HeapProfile, renumbered: dict[int, int], node: int) -> int:
    """The nearest caller that is shown; -1 for none."""
    return next((renumbered[at] for at in profile.stack(node) if at in renumbered), -1)


def _merged(profile: HeapProfile, renumbered: dict[int, int]) -> HeapNodes:
    names = [field.name for field in fields(Node)]
    rows = [[getattr(profile.nodes[old], name) for name in names] for old in renumbered]
    for row in rows:
        row[0] = renumbered[row[0]] if row[0] >= 0 else -1
    sums = [names.index(name) for name in SUMS]
    if len(renumbered) < len(profile.nodes):
        shown: list[int] = []  # of each node, the nearest one outwards
        for number, node in enumerate(profile.nodes):
            shown.append(renumbered.get(number, shown[node.parent] if node.parent >= 0 else -1))
            has_any = node.count or node.frees or node.reallocated
            if has_any and number not in renumbered and shown[number] >= 0:
                for column in sums:
                    rows[shown[number]][column] += getattr(node, names[column])
    return HeapNodes(*(list(column) for column in zip(*rows, strict=True)) if rows else [[]] * len(names))


def _places(profile: HeapProfile) -> HeapPlaces:
    names = [field.name for field in fields(HeapPlaces)]
    return HeapPlaces(*([getattr(place, name) for place in profile.places] for name in names))


def _sources(profile: HeapProfile, ran: str) -> dict[str, HeapSource]:
    """The files that are there, those of the most expensive lines first, as far as there is room."""
    began = datetime.fromisoformat(ran).timestamp()
    wanted = [one.place.file for metric in ("bytes", "count") for one in profile.by(metric, by_line)]
    found: dict[str, HeapSource] = {}
    left = SOURCES_BYTES
    for name in dict.fromkeys(wanted):
        path = Path(name)
        try:
            about = path.stat() if name and path.is_absolute() else None
            if about is None or about.st_size > min(left, SOURCE_BYTES):
                continue
            text = path.read_text(errors="replace")
        except OSError:
            continue
        found[name] = HeapSource(text=text, changed=about.st_mtime > began + 1)
        left -= len(text)
    return found
