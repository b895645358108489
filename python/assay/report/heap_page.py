"""A heap profile as the report's page takes it: by column, with the source files, without nodes too small to see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import asdict, fields

from assay.profile.heap import Fragmentation, HeapProfile, Touches
from assay.profile.ranks import merge_ranks, mpi_ranks, outliers
from assay.profile.sources import Sources
from assay.profile.tree import Node
from assay.records.heap_page import (
    HeapCalls,
    HeapFragmentation,
    HeapHistograms,
    HeapLocations,
    HeapNodes,
    HeapObject,
    HeapPage,
    HeapRank,
    HeapSource,
    HeapThread,
    HeapTimeline,
    HeapTotals,
    HeapTouches,
    HeapVariable,
)
from assay.report.heap import problems

MAX_PROCESSES = 16
MAX_TOUCHED_STACKS = 200
MAX_NODES = 60_000  # a page with more takes seconds to open
MIN_SHARE = 1e-4  # of some metric's total; a smaller node is left out
MAX_EMBEDDED_BYTES = 32 << 20  # of the source files on all pages of a report
SUMMED = ("count", "bytes", "at_peak", "leaked", "leaked_count", "temporary", "reallocated", "frees", "lifetime_sum",
          "sampled_ticks", "sampled_calls", "sampled_free_ticks", "sampled_frees",
          "foreign_reallocations")  # fmt: skip
KEPT_BY = (
    "count",
    "bytes",
    "at_peak",
    "leaked",
    "temporary",
    "reallocated",
    "frees",
)  # metrics whose shares decide which nodes are kept


def heap_pages(
    profiles: Sequence[HeapProfile], dumps: Sequence[HeapProfile], sources: Sources
) -> Iterator[HeapPage]:
    """First the merged ranks of an MPI program, then the processes of the run, the largest first, then the profiles
    that were written while the program ran."""
    room = MAX_EMBEDDED_BYTES
    for page in _pages(profiles, dumps):
        page.sources = _sources(page.locations.file, sources, room)
        room -= sum(len(source.text) for source in page.sources.values())
        yield page


def _pages(profiles: Sequence[HeapProfile], dumps: Sequence[HeapProfile]) -> Iterator[HeapPage]:
    if ranks := mpi_ranks(profiles):
        merged = merge_ranks(ranks)
        page = heap_page(merged, merged.title)
        page.ranks = [
            HeapRank(
                name=f"rank {rank.process.rank}",
                pid=rank.process.pid,
                peak=rank.totals.peak,
                bytes=rank.totals.bytes,
                count=rank.totals.count,
                leaked=rank.totals.leaked,
                seconds=rank.process.seconds,
                outlier=outlying,
            )
            for rank, outlying in zip(ranks, outliers(ranks), strict=True)
        ]
        yield page
    for profile in profiles[:MAX_PROCESSES]:
        yield heap_page(profile, profile.title)
    for profile in dumps[:MAX_PROCESSES]:
        yield heap_page(profile, f"{profile.title}, after {profile.process.seconds:.2f} s")


def heap_page(profile: HeapProfile, title: str, max_nodes: int = MAX_NODES) -> HeapPage:
    """Without source files. ``title`` tells the process from the run's others."""
    kept = _kept_nodes(profile, max_nodes)
    renumbered = {old: new for new, old in enumerate(kept)}
    nodes = _node_columns(profile, renumbered)
    totals = asdict(profile.totals)
    timeline, fragmentation = profile.timeline, profile.fragmentation
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
                thread=thread.thread, name=thread.name, bytes=thread.bytes, first=thread.first, last=thread.last,
                foreign_frees=thread.foreign_frees,
                calls={kind: HeapCalls(calls.count, calls.seconds) for kind, calls in thread.calls.items()},
                deepest=thread.stack.deepest, deepest_seconds=thread.stack.seconds,
                deepest_node=_nearest_kept(profile, renumbered, thread.stack.node),
                resident=thread.stack.resident, depth=thread.stack.depth,
            )
            for thread in profile.threads
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
        fragmentation=None if fragmentation is None else _fragmentation(profile, fragmentation, renumbered),
        objects=[HeapObject(**asdict(data)) for data in profile.globals.objects],
        variables=[HeapVariable(**asdict(variable)) for variable in profile.globals.variables],
        locations=_locations(profile),
        nodes=nodes,
        histograms={
            str(renumbered[int(node)]): HeapHistograms(*histograms)
            for node, histograms in profile.tree.histograms.items()
            if int(node) in renumbered
        },
        sources={},
        left_out=len(profile.nodes) - len(kept),
    )  # fmt: skip


def _touches(profile: HeapProfile, touches: Touches, renumbered: dict[int, int]) -> HeapTouches:
    stacks = sorted(touches.stacks, key=lambda touched: -touched.pages)[:MAX_TOUCHED_STACKS]
    return HeapTouches(
        outside=touches.outside,
        line_function=[touched.function for touched in touches.lines],
        line_file=[touched.file for touched in touches.lines],
        line=[touched.line for touched in touches.lines],
        line_pages=[touched.pages for touched in touches.lines],
        node=[_nearest_kept(profile, renumbered, touched.node) for touched in stacks],
        node_pages=[touched.pages for touched in stacks],
        node_with_huge=[touched.with_huge for touched in stacks],
        thread=[thread for thread, _ in touches.threads],
        thread_pages=[pages for _, pages in touches.threads],
    )


def _fragmentation(
    profile: HeapProfile, fragmentation: Fragmentation, renumbered: dict[int, int]
) -> HeapFragmentation:
    return HeapFragmentation(
        seconds=fragmentation.seconds,
        resident=fragmentation.resident,
        live=fragmentation.live,
        page_bytes=fragmentation.page_bytes,
        pages=fragmentation.pages,
        filled=fragmentation.filled,
        pin_node=[_nearest_kept(profile, renumbered, pin.node) for pin in fragmentation.pins],
        pin_bytes=[pin.bytes for pin in fragmentation.pins],
        pin_blocks=[pin.blocks for pin in fragmentation.pins],
    )


def _kept_nodes(profile: HeapProfile, max_nodes: int) -> Sequence[int]:
    """The nodes to show, callers before callees."""
    if len(profile.nodes) <= max_nodes:
        return range(len(profile.nodes))
    shares = [0.0] * len(profile.nodes)
    for metric in KEPT_BY:
        total = sum(getattr(node, metric) for node in profile.nodes)
        if not total:
            continue
        subtree: list[int] = [getattr(node, metric) for node in profile.nodes]
        for number in range(len(subtree) - 1, -1, -1):
            shares[number] = max(shares[number], subtree[number] / total)
            if (parent := profile.nodes[number].parent) >= 0:
                subtree[parent] += subtree[number]
    # A caller's share is never below a callee's, so all callers of a kept node are kept.
    ranked = sorted(range(len(shares)), key=lambda number: (-shares[number], number))
    return sorted(number for number in ranked[:max_nodes] if shares[number] >= MIN_SHARE)


def _nearest_kept(profile: HeapProfile, renumbered: dict[int, int], node: int) -> int:
    """The new number of the node or of its nearest kept caller; -1 for none."""
    return next((renumbered[ancestor] for ancestor in profile.stack(node) if ancestor in renumbered), -1)


def _node_columns(profile: HeapProfile, renumbered: dict[int, int]) -> HeapNodes:
    names = [field.name for field in fields(Node)]
    rows = [[getattr(profile.nodes[old], name) for name in names] for old in renumbered]
    for row in rows:
        row[0] = renumbered[row[0]] if row[0] >= 0 else -1
    summed = [names.index(name) for name in SUMMED]
    if len(renumbered) < len(profile.nodes):
        kept_caller: list[int] = []  # by node: the new number of its nearest kept caller
        for number, node in enumerate(profile.nodes):
            kept_caller.append(renumbered.get(number, kept_caller[node.parent] if node.parent >= 0 else -1))
            has_any = node.count or node.frees or node.reallocated
            if has_any and number not in renumbered and kept_caller[number] >= 0:
                for column in summed:
                    rows[kept_caller[number]][column] += getattr(node, names[column])
    return HeapNodes(*(list(column) for column in zip(*rows, strict=True)) if rows else [[]] * len(names))


def _locations(profile: HeapProfile) -> HeapLocations:
    names = [field.name for field in fields(HeapLocations)]
    return HeapLocations(*([getattr(location, name) for location in profile.locations] for name in names))


def _sources(names: Sequence[str], sources: Sources, room: int) -> dict[str, HeapSource]:
    """Those of the run's source files that a page names, of at most ``room`` characters together."""
    chosen: dict[str, HeapSource] = {}
    for name in dict.fromkeys(names):
        source = sources.files.get(name)
        if source is not None and len(source.text) <= room:
            chosen[name] = source
            room -= len(source.text)
    return chosen
