"""Throughput over time: dips, and the node that caused each.

A dip is a stretch of slices that lie below the median by more than a tenth, or by more than five robust standard
deviations where the slices vary more. The engine names the slowest rank of each slice. A host caused the dip if it had
the slowest rank in most slices of the dip, far below the average rank; otherwise all were slow alike. That is not said
of slices in which a rank was gone: the others build less without it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.events.figures import Slice

MIN_SLICES = 5  # slices; fewer have no usual rate
MIN_DEPTH = 0.1
DEVIATIONS = 5 * 1.4826  # of the median absolute deviation: five standard deviations of a normal distribution
MAX_SLOW_SHARE = 0.8  # a rank is slow below this share of the slice's average rank


@dataclass(frozen=True)
class Dip:
    """``depth`` is the relative loss in its lowest slice; ``host`` is empty where no single node was slow."""

    start: float  # s
    end: float
    usual: float  # B/s
    lowest: float
    host: str
    ids: tuple[int, ...]
    has_lost: bool = False  # a rank was gone

    @property
    def depth(self) -> float:
        return 1 - self.lowest / self.usual


def usual_rate(slices: Sequence[Slice]) -> float:
    rates = [interval.rate for interval in slices if not math.isnan(interval.rate)]
    return statistics.median(rates) if rates else math.nan


def find_dips(
    slices: Sequence[Slice],
    ranks: int,
    end: float = math.inf,
    had_lost: Callable[[Slice], bool] = lambda _: False,
) -> list[Dip]:
    """The dips in order of time. ``ranks``: the number of ranks of the event builder. In the first slice the ranks
    begin, one after the other: that it alone is low is no dip. ``end``: when the last event was assigned, in s;
    afterwards only what is open is built. ``had_lost``: whether some rank was gone in a slice."""
    measured = [part for part in slices if not math.isnan(part.rate) and part.end <= end]
    if len(measured) < MIN_SLICES:
        return []
    usual = usual_rate(measured)
    if usual <= 0:
        return []
    spread = statistics.median(abs(interval.rate - usual) for interval in measured)
    limit = usual - max(MIN_DEPTH * usual, DEVIATIONS * spread)
    dips: list[list[Slice]] = []
    previous = (False, False)
    for interval in measured:
        low = interval.rate < limit
        state = (low, had_lost(interval))
        if low and state == previous:
            dips[-1].append(interval)
        elif low:
            dips.append([interval])
        previous = state
    found = [
        _dip(intervals, usual, ranks, had_lost(intervals[0]))
        for intervals in dips
        if intervals != measured[:1]
    ]
    return [dip for dip in found if dip.host or not dip.has_lost]


def _dip(intervals: Sequence[Slice], usual: float, ranks: int, has_lost: bool) -> Dip:
    slow = Counter(
        interval.slowest
        for interval in intervals
        if interval.slowest and interval.slowest_rate < MAX_SLOW_SHARE * interval.rate / max(1, ranks)
    )
    host, count = slow.most_common(1)[0] if slow else ("", 0)
    return Dip(
        intervals[0].t,
        intervals[-1].end,
        usual,
        min(interval.rate for interval in intervals),
        host if 2 * count > len(intervals) else "",
        tuple(number for interval in intervals for number in interval.ids),
        has_lost,
    )
