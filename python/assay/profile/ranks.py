"""The ranks of an MPI program: their profiles merged into one, and the ranks that differ from the others.

Metrics add up by function, line and stack. Each rank has its peak at its own moment: the sum of the peaks is what the
program needs if all ranks peak together, and so the memory to request for the job.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from assay.profile.heap import HeapProfile, Process, Timeline, Totals, Trace
from assay.profile.tree import Location, Node, Tree
from assay.records.statistics import median_and_mad, robust_sigma

COMPARED_TOTALS = ("peak", "bytes", "count", "leaked")
OUTLIER_DEVIATIONS = 5.0  # robust standard deviations from the median
MIN_DIFFERENCE = 0.10  # of the median; a smaller difference is no outlier

SUMMED = ("count", "bytes", "exclusive_peak", "inclusive_peak", "at_peak", "leaked", "leaked_count", "temporary",
          "reallocated", "frees", "lifetime_sum", "sampled_ticks", "sampled_calls", "sampled_free_ticks",
          "sampled_frees", "foreign_reallocations")  # fmt: skip


def mpi_ranks(profiles: Sequence[HeapProfile]) -> list[HeapProfile]:
    """The processes of the largest MPI program, by rank; empty if no program has several ranks."""
    programs: dict[str, list[HeapProfile]] = {}
    for profile in profiles:
        if profile.process.rank:
            programs.setdefault(profile.process.program, []).append(profile)
    largest = max(
        programs.values(), key=lambda ranks: sum(profile.totals.bytes for profile in ranks), default=[]
    )
    return (
        sorted(largest, key=lambda profile: (len(profile.process.rank), profile.process.rank))
        if len(largest) > 1
        else []
    )


def outliers(ranks: Sequence[HeapProfile]) -> list[list[str]]:
    """For each rank: the names of the totals in which it is an outlier."""
    names: list[list[str]] = [[] for _ in ranks]
    for name in COMPARED_TOTALS:
        values = [getattr(rank.totals, name) for rank in ranks]
        (median, _), deviation = median_and_mad(values), robust_sigma(values)
        for outlying, value in zip(names, values, strict=True):
            if abs(value - median) > max(OUTLIER_DEVIATIONS * deviation, MIN_DIFFERENCE * median, 1):
                outlying.append(name)
    return names


def merge_ranks(ranks: Sequence[HeapProfile]) -> HeapProfile:
    """One profile of all ranks: without page faults and fragmentation; threads and variables are the first rank's."""
    first = ranks[0]
    merged = MergedTree()
    for rank in ranks:
        merged.add(rank)
    return HeapProfile(
        process=Process(
            pid=0,
            parent=first.process.parent,
            program=f"{first.process.program}, {len(ranks)} ranks",
            rank="",
            seconds=max(rank.process.seconds for rank in ranks),
            complete=all(rank.process.complete for rank in ranks),
        ),
        trace=_sum_trace(ranks),
        totals=_sum_totals(ranks),
        tick=first.tick,
        threads=first.threads,
        timeline=_sum_timelines([rank.timeline for rank in ranks]),
        sizes=_sum_lists([rank.sizes for rank in ranks]),
        frequent=_sum_counts([rank.frequent for rank in ranks]),
        lifetimes=[_sum_lists(rows) for rows in zip(*(rank.lifetimes for rank in ranks), strict=True)],
        touches=None,
        fragmentation=None,
        globals=first.globals,
        tree=merged.tree(),
    )


class MergedTree:
    """Call trees merged by location and stack."""

    def __init__(self) -> None:
        self.location_numbers: dict[tuple[str, str, int, str], int] = {}
        self.locations: list[Location] = []
        self.node_numbers: dict[tuple[int, int], int] = {}
        self.nodes: list[Node] = []
        self.histograms: dict[int, tuple[dict[int, int], dict[int, int]]] = {}

    def add(self, profile: HeapProfile) -> None:
        locations = [self._location(profile, location) for location in profile.locations]
        numbers: list[int] = []
        for node in profile.nodes:
            parent = numbers[node.parent] if node.parent >= 0 else -1
            numbers.append(self._node(node, parent, locations[node.location]))
        for node_number, lists in profile.tree.histograms.items():
            for counts_by_log, (start, *counts) in zip(
                self.histograms.setdefault(numbers[int(node_number)], ({}, {})), lists, strict=True
            ):
                for k, count in enumerate(counts):
                    counts_by_log[start + k] = counts_by_log.get(start + k, 0) + count

    def _location(self, profile: HeapProfile, location: Location) -> int:
        key = (location.function, location.file, location.line, location.module)
        number = self.location_numbers.setdefault(key, len(self.locations))
        if number == len(self.locations):
            first = profile.locations[location.function_id]
            function_id = self.location_numbers.get(
                (first.function, first.file, first.line, first.module), number
            )
            self.locations.append(replace(location, function_id=function_id))
        else:
            merged = self.locations[number]
            self.locations[number] = replace(
                merged,
                exclusive_peak=merged.exclusive_peak + location.exclusive_peak,
                inclusive_peak=merged.inclusive_peak + location.inclusive_peak,
                function_exclusive_peak=merged.function_exclusive_peak + location.function_exclusive_peak,
                function_inclusive_peak=merged.function_inclusive_peak + location.function_inclusive_peak,
            )
        return number

    def _node(self, node: Node, parent: int, location: int) -> int:
        number = self.node_numbers.setdefault((parent, location), len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(replace(node, parent=parent, location=location))
            return number
        merged = self.nodes[number]
        allocating = [each_node for each_node in (merged, node) if each_node.count]
        merged.min_size = min((each_node.min_size for each_node in allocating), default=0)
        merged.max_size = max(merged.max_size, node.max_size)
        merged.min_lifetime = min(
            (each_node.min_lifetime for each_node in allocating if each_node.max_lifetime), default=0
        )
        merged.max_lifetime = max(merged.max_lifetime, node.max_lifetime)
        for name in SUMMED:
            setattr(merged, name, getattr(merged, name) + getattr(node, name))
        return number

    def tree(self) -> Tree:
        return Tree(
            locations=self.locations,
            nodes=self.nodes,
            histograms={
                str(node): (_with_first_logarithm(sizes), _with_first_logarithm(lifetimes))
                for node, (sizes, lifetimes) in self.histograms.items()
            },
        )


def _with_first_logarithm(counts: dict[int, int]) -> list[int]:
    if not counts:
        return [0]
    first, last = min(counts), max(counts)
    return [first, *(counts.get(k, 0) for k in range(first, last + 1))]


def _sum_lists(lists: Sequence[list[int]]) -> list[int]:
    return [sum(values) for values in zip(*lists, strict=True)]


def _sum_counts(lists: Sequence[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    sums: dict[int, int] = {}
    for counts in lists:
        for size, count in counts:
            sums[size] = sums.get(size, 0) + count
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))


def _sum_trace(ranks: Sequence[HeapProfile]) -> Trace:
    sums = {
        name: sum(getattr(rank.trace, name) for rank in ranks)
        for name in ("bytes", "events", "lost_events", "damaged_bytes", "unreadable_chunks")
    }
    return Trace(
        imported_from="",
        **sums,
        missing_objects=sorted({path for rank in ranks for path in rank.trace.missing_objects}),
        unsupported_python=next(
            (rank.trace.unsupported_python for rank in ranks if rank.trace.unsupported_python), ""
        ),
    )


def _sum_totals(ranks: Sequence[HeapProfile]) -> Totals:
    sums = {
        name: sum(getattr(rank.totals, name) for rank in ranks)
        for name in Totals.__struct_fields__
        if name != "peak_seconds"
    }
    return Totals(**sums, peak_seconds=max(ranks, key=lambda rank: rank.totals.peak).totals.peak_seconds)


def _sum_timelines(timelines: Sequence[Timeline]) -> Timeline:
    """On the time steps of the longest timeline; all ranks begin together."""
    longest = max(timelines, key=lambda timeline: timeline.step * len(timeline.live))
    steps, step = len(longest.live), longest.step
    live, count, total = [0] * steps, [0] * steps, [0] * steps
    for timeline in timelines:
        live_max = [0] * steps
        for k in range(len(timeline.live)):
            index = min(steps - 1, int(k * timeline.step / step)) if step else 0
            live_max[index] = max(live_max[index], timeline.live[k])
            count[index] += timeline.count[k]
            total[index] += timeline.bytes[k]
        ended = min(steps - 1, int(len(timeline.live) * timeline.step / step)) if step else 0
        for index in range(steps):
            if index and not live_max[index] and index <= ended:
                live_max[index] = live_max[
                    index - 1
                ]  # this grid may be finer: an empty step keeps the value before
            live[index] += live_max[index]
    samples = [
        (seconds, virtual, resident)
        for seconds, virtual, resident in zip(
            [longest.start + k * step for k in range(steps)],
            *(_sum_samples(timelines, column, longest.start, step, steps) for column in (1, 2)),
            strict=True,
        )
    ]
    return Timeline(start=longest.start, step=step, live=live, count=count, bytes=total, samples=samples)


def _sum_samples(
    timelines: Sequence[Timeline], column: int, start: float, step: float, steps: int
) -> list[float]:
    """The sum over all ranks of the last sample within each step."""
    sums = [0.0] * steps
    for timeline in timelines:
        index, value = 0, 0.0
        last = timeline.samples[-1][0] if timeline.samples else 0.0
        for k in range(steps):
            now = start + (k + 1) * step
            while index < len(timeline.samples) and timeline.samples[index][0] <= now:
                value = timeline.samples[index][column]
                index += 1
            sums[k] += value if now - step <= last else 0.0
    return sums
