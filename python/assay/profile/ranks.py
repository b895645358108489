"""The processes of an MPI program added up, and those that are not like the others.

Figures add up by function, line and stack. Peaks are each process's own, at a moment of its own: their sum is what the
program needs if all are at their peaks together, which is what a job must be given.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from assay.profile.heap import HeapProfile, Node, Place, Process, Timeline, Totals, Trace, Tree

COMPARED = ("peak", "bytes", "count", "leaked")  # of the totals
FAR = 5.0  # times the usual deviation from the median
NOTABLE = 0.10  # of the median: less is no outlier, however alike the others are
NORMAL = 1.4826  # of a normal distribution: its standard deviation over its median absolute deviation

SUMMED = ("count", "bytes", "own_peak", "total_peak", "at_peak", "leaked", "leaked_count", "temporary", "reallocated",
          "frees", "lifetime", "sampled_ticks", "sampled_calls", "sampled_free_ticks", "sampled_frees",
          "foreign_reallocations")  # fmt: skip


def ranks_of(profiles: Sequence[HeapProfile]) -> list[HeapProfile]:
    """The processes of the largest MPI program among them, by rank; none where there is no such program."""
    programs: dict[str, list[HeapProfile]] = {}
    for one in profiles:
        if one.process.rank:
            programs.setdefault(one.process.program, []).append(one)
    largest = max(programs.values(), key=lambda ranks: sum(one.totals.bytes for one in ranks), default=[])
    return (
        sorted(largest, key=lambda one: (len(one.process.rank), one.process.rank)) if len(largest) > 1 else []
    )


def outliers(ranks: Sequence[HeapProfile]) -> list[list[str]]:
    """Of each, the totals in which it is far from the others."""
    found: list[list[str]] = [[] for _ in ranks]
    for name in COMPARED:
        values = [getattr(one.totals, name) for one in ranks]
        middle = statistics.median(values)
        usual = NORMAL * statistics.median(abs(value - middle) for value in values)
        for its, value in zip(found, values, strict=True):
            if abs(value - middle) > max(FAR * usual, NOTABLE * middle, 1):
                its.append(name)
    return found


def added_up(ranks: Sequence[HeapProfile]) -> HeapProfile:
    """One profile of all. Threads and variables are those of the first, addresses and fragments of none."""
    first = ranks[0]
    merged = _Merged()
    for one in ranks:
        merged.add(one)
    return HeapProfile(
        process=Process(
            pid=0,
            parent=first.process.parent,
            program=f"{first.process.program}, {len(ranks)} ranks",
            rank="",
            seconds=max(one.process.seconds for one in ranks),
            complete=all(one.process.complete for one in ranks),
        ),
        trace=_sum_trace(ranks),
        totals=_sum_totals(ranks),
        tick=first.tick,
        threads=first.threads,
        timeline=_sum_timelines([one.timeline for one in ranks]),
        sizes=_sum_lists([one.sizes for one in ranks]),
        frequent=_sum_counts([one.frequent for one in ranks]),
        lifetimes=[_sum_lists(rows) for rows in zip(*(one.lifetimes for one in ranks), strict=True)],
        touches=None,
        fragments=None,
        globals=first.globals,
        tree=merged.tree(),
    )


class _Merged:
    """Trees of calls, laid over one another."""

    def __init__(self) -> None:
        self.places: dict[tuple[str, str, int, str], int] = {}
        self.all_places: list[Place] = []
        self.nodes: dict[tuple[int, int], int] = {}
        self.all_nodes: list[Node] = []
        self.spreads: dict[int, tuple[dict[int, int], dict[int, int]]] = {}

    def add(self, profile: HeapProfile) -> None:
        places = [self._place(profile, place) for place in profile.places]
        numbers: list[int] = []
        for node in profile.nodes:
            parent = numbers[node.parent] if node.parent >= 0 else -1
            numbers.append(self._node(node, parent, places[node.place]))
        for name, spread in profile.tree.spreads.items():
            for into, (start, *counts) in zip(
                self.spreads.setdefault(numbers[int(name)], ({}, {})), spread, strict=True
            ):
                for k, count in enumerate(counts):
                    into[start + k] = into.get(start + k, 0) + count

    def _place(self, profile: HeapProfile, place: Place) -> int:
        key = (place.function, place.file, place.line, place.module)
        number = self.places.setdefault(key, len(self.all_places))
        if number == len(self.all_places):
            first = profile.places[place.first]
            same = self.places.get((first.function, first.file, first.line, first.module), number)
            self.all_places.append(replace(place, first=same))
        else:
            had = self.all_places[number]
            self.all_places[number] = replace(
                had,
                peak_own=had.peak_own + place.peak_own,
                peak_total=had.peak_total + place.peak_total,
                function_peak_own=had.function_peak_own + place.function_peak_own,
                function_peak_total=had.function_peak_total + place.function_peak_total,
            )
        return number

    def _node(self, node: Node, parent: int, place: int) -> int:
        number = self.nodes.setdefault((parent, place), len(self.all_nodes))
        if number == len(self.all_nodes):
            self.all_nodes.append(replace(node, parent=parent, place=place))
            return number
        had = self.all_nodes[number]
        both = [one for one in (had, node) if one.count]
        had.least = min((one.least for one in both), default=0)
        had.most = max(had.most, node.most)
        had.shortest = min((one.shortest for one in both if one.longest), default=0)
        had.longest = max(had.longest, node.longest)
        for name in SUMMED:
            setattr(had, name, getattr(had, name) + getattr(node, name))
        return number

    def tree(self) -> Tree:
        return Tree(
            places=self.all_places,
            nodes=self.all_nodes,
            spreads={
                str(node): (_listed(sizes), _listed(lifetimes))
                for node, (sizes, lifetimes) in self.spreads.items()
            },
        )


def _listed(counts: dict[int, int]) -> list[int]:
    if not counts:
        return [0]
    first, last = min(counts), max(counts)
    return [first, *(counts.get(k, 0) for k in range(first, last + 1))]


def _sum_lists(lists: Sequence[list[int]]) -> list[int]:
    return [sum(values) for values in zip(*lists, strict=True)]


def _sum_counts(lists: Sequence[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    sums: dict[int, int] = {}
    for one in lists:
        for size, count in one:
            sums[size] = sums.get(size, 0) + count
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))


def _sum_trace(ranks: Sequence[HeapProfile]) -> Trace:
    sums = {
        name: sum(getattr(one.trace, name) for one in ranks)
        for name in ("bytes", "events", "lost_events", "damaged_bytes", "unreadable_chunks")
    }
    return Trace(
        source="",
        **sums,
        missing_objects=sorted({path for one in ranks for path in one.trace.missing_objects}),
        unread_python=next((one.trace.unread_python for one in ranks if one.trace.unread_python), ""),
    )


def _sum_totals(ranks: Sequence[HeapProfile]) -> Totals:
    sums = {
        name: sum(getattr(one.totals, name) for one in ranks)
        for name in Totals.__struct_fields__
        if name != "peak_seconds"
    }
    return Totals(**sums, peak_seconds=max(ranks, key=lambda one: one.totals.peak).totals.peak_seconds)


def _sum_timelines(lines: Sequence[Timeline]) -> Timeline:
    """On the steps of the longest; processes begin together."""
    longest = max(lines, key=lambda one: one.step * len(one.live))
    steps, step = len(longest.live), longest.step
    live, count, total = [0] * steps, [0] * steps, [0] * steps
    for one in lines:
        most = [0] * steps
        for k in range(len(one.live)):
            at = min(steps - 1, int(k * one.step / step)) if step else 0
            most[at] = max(most[at], one.live[k])
            count[at] += one.count[k]
            total[at] += one.bytes[k]
        ended = min(steps - 1, int(len(one.live) * one.step / step)) if step else 0
        for at in range(steps):
            if at and not most[at] and at <= ended:
                most[at] = most[at - 1]  # steps of a finer grid have none of their own
            live[at] += most[at]
    samples = [
        (seconds, virtual, resident)
        for seconds, virtual, resident in zip(
            [longest.start + k * step for k in range(steps)],
            *(_sampled(lines, column, longest.start, step, steps) for column in (1, 2)),
            strict=True,
        )
    ]
    return Timeline(start=longest.start, step=step, live=live, count=count, bytes=total, samples=samples)


def _sampled(lines: Sequence[Timeline], column: int, start: float, step: float, steps: int) -> list[float]:
    """The sum of what each has at the end of each step."""
    sums = [0.0] * steps
    for one in lines:
        at, value = 0, 0.0
        last = one.samples[-1][0] if one.samples else 0.0
        for k in range(steps):
            now = start + (k + 1) * step
            while at < len(one.samples) and one.samples[at][0] <= now:
                value = one.samples[at][column]
                at += 1
            sums[k] += value if now - step <= last else 0.0
    return sums
