"""The ranks of an MPI program: their profiles merged into one, and the ranks that differ from the others.

Metrics add up by function, line and stack. Each rank has its peak at its own moment: the sum of the peaks is what the
program needs if all ranks peak together, and so the memory to request for the job.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.profile.heap import HeapProfile
from assay.profile.merge import MergedTree
from assay.records.heap import (
    METRICS,
    HeapHistograms,
    HeapPool,
    HeapProcess,
    HeapTimeline,
    HeapTotals,
    HeapTrace,
)
from assay.records.statistics import median_and_mad, robust_sigma

COMPARED_TOTALS = ("peak", "bytes", "count", "leaked")
OUTLIER_DEVIATIONS = 5.0  # robust standard deviations from the median
MIN_DIFFERENCE = 0.10  # of the median; a smaller difference is not an outlier


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
    merged = MergedTree(METRICS)
    histograms: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
    for rank in ranks:
        locations = merged.add(rank.calls)
        for function, counts in rank.histograms.items():
            sums = histograms.setdefault(merged.locations.function_id[locations[int(function)]], ({}, {}))
            for by_log, (start, *values) in zip(sums, (counts.sizes, counts.lifetimes), strict=True):
                for k, count in enumerate(values, start):
                    by_log[k] = by_log.get(k, 0) + count
    frequent = _sum_counts(ranks)
    return HeapProfile(
        process=HeapProcess(
            pid=0,
            parent=first.process.parent,
            program=f"{first.process.program}, {len(ranks)} ranks",
            rank="",
            seconds=max(rank.process.seconds for rank in ranks),
            complete=all(rank.process.complete for rank in ranks),
        ),
        trace=_sum_trace(ranks),
        totals=_sum_totals(ranks),
        pools=_sum_pools(ranks),
        tick=first.tick,
        threads=first.threads,  # the first rank's locations keep their numbers
        timeline=_sum_timelines([rank.timeline for rank in ranks]),
        sizes=_sum_lists([rank.sizes for rank in ranks]),
        frequent_size=[size for size, _ in frequent],
        frequent_count=[count for _, count in frequent],
        lifetimes=[_sum_lists(rows) for rows in zip(*(rank.lifetimes for rank in ranks), strict=True)],
        touches=None,
        fragmentation=None,
        objects=first.objects,
        variables=first.variables,
        histograms={
            str(function): HeapHistograms(_with_first_logarithm(sizes), _with_first_logarithm(lifetimes))
            for function, (sizes, lifetimes) in histograms.items()
        },
        tree=merged.tree(),
    )


def _with_first_logarithm(counts: dict[int, int]) -> list[int]:
    if not counts:
        return [0]
    first, last = min(counts), max(counts)
    return [first, *(counts.get(k, 0) for k in range(first, last + 1))]


def _sum_lists(lists: Sequence[list[int]]) -> list[int]:
    return [sum(values) for values in zip(*lists, strict=True)]


def _sum_counts(ranks: Sequence[HeapProfile]) -> list[tuple[int, int]]:
    """The frequent sizes and their blocks, the most frequent first."""
    sums: dict[int, int] = {}
    for rank in ranks:
        for size, count in zip(rank.frequent_size, rank.frequent_count, strict=True):
            sums[size] = sums.get(size, 0) + count
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))


def _sum_trace(ranks: Sequence[HeapProfile]) -> HeapTrace:
    sums = {
        name: sum(getattr(rank.trace, name) for rank in ranks)
        for name in ("bytes", "events", "lost_events", "damaged_bytes", "unreadable_chunks")
    }
    return HeapTrace(
        imported_from="",
        **sums,
        # The kernel does not say whose they were, so all that ran then have them.
        lost_faults=max(rank.trace.lost_faults for rank in ranks),
        missing_objects=sorted({path for rank in ranks for path in rank.trace.missing_objects}),
        unsupported_python=next(
            (rank.trace.unsupported_python for rank in ranks if rank.trace.unsupported_python), ""
        ),
        unrecorded=sorted({line for rank in ranks for line in rank.trace.unrecorded}),
    )


def _sum_totals(ranks: Sequence[HeapProfile]) -> HeapTotals:
    sums = {
        name: sum(getattr(rank.totals, name) for rank in ranks)
        for name in HeapTotals.__struct_fields__
        if name != "peak_seconds"
    }
    return HeapTotals(**sums, peak_seconds=max(ranks, key=lambda rank: rank.totals.peak).totals.peak_seconds)


def _sum_pools(ranks: Sequence[HeapProfile]) -> list[HeapPool]:
    sums: dict[str, HeapPool] = {}
    for rank in ranks:
        for pool in rank.pools:
            merged = sums.setdefault(pool.name, HeapPool(pool.name, 0, 0))
            merged.bytes += pool.bytes
            merged.count += pool.count
    return sorted(sums.values(), key=lambda pool: -pool.bytes)


def _sum_timelines(timelines: Sequence[HeapTimeline]) -> HeapTimeline:
    """The sum on the time steps of the longest timeline; all ranks begin at the same time."""
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
                # The longest timeline's steps may be finer: an empty step keeps the value of the step before.
                live_max[index] = live_max[index - 1]
            live[index] += live_max[index]
    return HeapTimeline(
        start=longest.start,
        step=step,
        live=live,
        count=count,
        bytes=total,
        seconds=[longest.start + k * step for k in range(steps)],
        virtual=_sum_samples([(line.seconds, line.virtual) for line in timelines], longest),
        resident=_sum_samples([(line.seconds, line.resident) for line in timelines], longest),
    )


def _sum_samples(samples: Sequence[tuple[list[float], list[float]]], longest: HeapTimeline) -> list[float]:
    """The sum over all ranks of the last sample within each step; samples are times and values."""
    sums = [0.0] * len(longest.live)
    for times, values in samples:
        index, value = 0, 0.0
        last = times[-1] if times else 0.0
        for k in range(len(sums)):
            now = longest.start + (k + 1) * longest.step
            while index < len(times) and times[index] <= now:
                value = values[index]
                index += 1
            sums[k] += value if now - longest.step <= last else 0.0
    return sums
