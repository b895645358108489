"""Merges the NUMA profiles of an MPI program's ranks: adds up call trees, matrices, objects and first touches.

Nodes with the same number are added up. On one machine ranks share them. If the nodes of ranks differ (in number,
memory or processors), as on several machines, the profile's ``problems`` say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from assay.profile.merge import MergedTree
from assay.profile.numa import NumaProfile, rows
from assay.records.numa import (
    METRICS,
    NumaAbsent,
    NumaAdvice,
    NumaApplied,
    NumaCells,
    NumaFirstTouches,
    NumaNode,
    NumaObject,
    NumaSampling,
    NumaSlices,
    NumaThread,
    NumaTimeline,
)
from assay.records.numa import NumaProfile as RecordedProfile

OTHER_NODES = "the ranks have different nodes: nodes of the same number are added up"


def note_missing_ranks(profiles: Sequence[RecordedProfile]) -> None:
    """Adds a problem to the profiles of ranks that count accesses, where other ranks of the same program have no
    counts: a process that is killed writes none."""
    counted = [profile for profile in profiles if profile.process.rank and profile.accesses]
    for program in {profile.process.program for profile in counted}:
        exact = [profile for profile in counted if profile.process.program == program]
        with_counts = {profile.process.rank for profile in exact}
        of_program = {
            profile.process.rank
            for profile in profiles
            if profile.process.rank and profile.process.program == program
        }
        missing = sorted(of_program - with_counts, key=lambda rank: (len(rank), rank))
        if not missing:
            continue
        message = (
            f"no counts of accesses from rank {', '.join(missing)}: a process that is killed writes none"
        )
        for profile in exact:
            profile.problems.append(message)


def merge_ranks(ranks: Sequence[NumaProfile]) -> NumaProfile:
    """One profile of all ranks. Threads are those of all, named by their rank."""
    first = ranks[0]
    tree = MergedTree(METRICS)
    nodes = _nodes(ranks)
    objects: dict[tuple[str, str, int], NumaObject] = {}
    numbers: dict[tuple[str, str, int], int] = {}
    threads: list[NumaThread] = []
    touches = NumaFirstTouches([], [], [], [], [], [])
    advice: dict[tuple[int, str, tuple[int, ...]], NumaAdvice] = {}
    for rank in ranks:
        locations = tree.add(rank.calls).tolist()
        merged = []
        for part in rank.objects:
            site = locations[part.site] if part.site >= 0 else -1
            key = (part.kind, part.name, site)
            numbers.setdefault(key, len(numbers))
            merged.append(numbers[key])
            spread = _on_nodes(replace(part, site=site), rank.nodes, nodes)
            objects[key] = _sum_objects(objects[key], spread) if key in objects else spread
        _add_touches(touches, rank, merged, locations, len(threads))
        for row in rank.advice:
            number, toucher = merged[row.object], locations[row.toucher] if row.toucher >= 0 else -1
            _add_advice(advice, replace(row, object=number, toucher=toucher))
        threads += [replace(row, name=f"rank {rank.process.rank}: {row.name}") for row in rank.threads]
    is_exact = all(rank.is_exact for rank in ranks)
    return NumaProfile(
        process=replace(
            first.process,
            pid=0,
            rank="",
            program=f"{first.process.program}, {len(ranks)} ranks",
            seconds=max(rank.process.seconds for rank in ranks),
            complete=all(rank.process.complete for rank in ranks),
            lost_events=sum(rank.process.lost_events for rank in ranks),
        ),
        problems=_problems(ranks),
        nodes=nodes,
        accesses=_sum([rank.matrix for rank in ranks]) if is_exact else None,
        touched=_sum([rank.touched for rank in ranks]),
        objects=list(objects.values()),
        threads=threads,
        first_touches=touches,
        timeline=NumaTimeline([], [[] for _ in range(len(nodes) + 1)], NumaSlices([], 0.0, [], [], [])),
        sampling=_sampling([rank.sampling for rank in ranks if rank.sampling]),
        advice=sorted(advice.values(), key=lambda row: -row.gain),
        applied=_applied(ranks),
        absent=[*first.absent, NumaAbsent("Over time", "ranks do not start together: choose one of them")],
        tree=tree.tree(),
    )


def _nodes(ranks: Sequence[NumaProfile]) -> list[NumaNode]:
    nodes: dict[int, NumaNode] = {}
    for rank in ranks:
        for node in rank.nodes:
            nodes.setdefault(node.id, node)
    return [nodes[number] for number in sorted(nodes)]


def _problems(ranks: Sequence[NumaProfile]) -> list[str]:
    messages = [message for rank in ranks for message in rank.problems]
    if any(rank.nodes != ranks[0].nodes for rank in ranks):
        messages.append(OTHER_NODES)
    return list(dict.fromkeys(messages))


def _sum(matrices: Iterable[NumaCells]) -> NumaCells:
    sums: dict[tuple[int, int], int] = {}
    for matrix in matrices:
        for thread_node, page_node, count in rows(matrix):
            sums[thread_node, page_node] = sums.get((thread_node, page_node), 0) + count
    keys = sorted(sums)
    return NumaCells([a for a, _ in keys], [b for _, b in keys], [sums[key] for key in keys])


def _on_nodes(part: NumaObject, stored: Sequence[NumaNode], nodes: Sequence[NumaNode]) -> NumaObject:
    """The figures by node in the order of the merged profile's nodes."""
    if list(stored) == list(nodes):
        return part
    row = {node.id: k for k, node in enumerate(stored)}
    resident = [part.resident[row[node.id]] if node.id in row else 0 for node in nodes]
    width = len(part.parts[0]) if part.parts else 0
    parts = [part.parts[row[node.id]] if node.id in row else [0] * width for node in nodes]
    return replace(part, resident=[*resident, part.resident[-1]], parts=parts if width else [])


def _sum_objects(first: NumaObject, second: NumaObject) -> NumaObject:
    accesses = [cells for cells in (first.accesses, second.accesses) if cells is not None]
    return replace(
        first,
        bytes=first.bytes + second.bytes,
        blocks=first.blocks + second.blocks,
        accesses=_sum(accesses) if accesses else None,
        touched=_sum([first.touched, second.touched]),
        resident=[a + b for a, b in zip(first.resident, second.resident, strict=True)],
        moved=first.moved + second.moved,
        parts=[
            [a + b for a, b in zip(row, other_row, strict=True)]
            for row, other_row in zip(first.parts, second.parts, strict=True)
        ]
        if first.parts and second.parts
        else first.parts or second.parts,
    )


def _add_touches(
    sums: NumaFirstTouches, rank: NumaProfile, objects: list[int], locations: list[int], first_thread: int
) -> None:
    stored = rank.first_touches
    sums.object += [objects[number] for number in stored.object]
    sums.location += [locations[number] for number in stored.location]
    sums.thread += [first_thread + number for number in stored.thread]
    sums.bytes += stored.bytes
    sums.policy += stored.policy
    sums.huge += stored.huge


def _add_advice(advice: dict[tuple[int, str, tuple[int, ...]], NumaAdvice], row: NumaAdvice) -> None:
    """Adds advice, or merges it with equal advice of another rank; shares are weighted by the gain."""
    key = (row.object, row.action, tuple(row.nodes))
    merged = advice.get(key)
    if merged is None:
        advice[key] = row
        return
    merged_weight, row_weight = max(1, merged.gain), max(1, row.gain)
    for name in ("before", "predicted"):
        weighted = getattr(merged, name) * merged_weight + getattr(row, name) * row_weight
        mean = weighted / (merged_weight + row_weight)
        setattr(merged, name, mean)
    merged.gain += row.gain


def _sampling(ranks: Sequence[NumaSampling]) -> NumaSampling | None:
    """The samples of all ranks; ``throttled`` counts for the whole machine, so it is not added up."""
    if not ranks:
        return None
    return replace(
        ranks[0],
        samples=sum(rank.samples for rank in ranks),
        attributed=sum(rank.attributed for rank in ranks),
        samples_by_source=[sum(c) for c in zip(*(rank.samples_by_source for rank in ranks), strict=False)],
        throttled=max(rank.throttled for rank in ranks),
    )


def _applied(ranks: Sequence[NumaProfile]) -> list[NumaApplied]:
    return [
        replace(row, name=f"rank {rank.process.rank}: {row.name}") for rank in ranks for row in rank.applied
    ]
