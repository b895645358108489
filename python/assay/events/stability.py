"""Throughput over time: dips, and the node that caused each.

A dip is a stretch of slices that lie below the median by more than a tenth, or by more than five robust standard
deviations where the slices vary more. The engine names the slowest rank of each slice. It caused the dip if it is the
same for most of it and was slower than its share of the whole; otherwise all were slow alike.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from assay.events.figures import Slice

MIN_SLICES = 5  # slices; fewer have no usual rate
MIN_DEPTH = 0.1
DEVIATIONS = 5 * 1.4826  # of the median absolute deviation: five standard deviations of a normal distribution
OWN_SHARE = 0.8  # of the average rank in that slice: below it, a rank is slower than the others


@dataclass(frozen=True)
class Dip:
    """``depth`` is the relative loss in its lowest slice; ``host`` is empty where no single node was slow."""

    start: float  # s
    end: float
    usual: float  # B/s
    lowest: float
    host: str
    ids: tuple[int, ...]

    @property
    def depth(self) -> float:
        return 1 - self.lowest / self.usual


def usual_rate(slices: Sequence[Slice]) -> float:
    rates = [part.rate for part in slices if not math.isnan(part.rate)]
    return statistics.median(rates) if rates else math.nan


def find_dips(slices: Sequence[Slice], ranks: int) -> list[Dip]:
    """``ranks``: how many share the rate of a slice."""
    known = [part for part in slices if not math.isnan(part.rate)]
    if len(known) < MIN_SLICES:
        return []
    usual = usual_rate(known)
    if usual <= 0:
        return []
    spread = statistics.median(abs(part.rate - usual) for part in known)
    limit = usual - max(MIN_DEPTH * usual, DEVIATIONS * spread)
    found: list[list[Slice]] = []
    previous_low = False
    for part in known:
        low = part.rate < limit
        if low and previous_low:
            found[-1].append(part)
        elif low:
            found.append([part])
        previous_low = low
    return [_dip(parts, usual, ranks) for parts in found]


def _dip(parts: Sequence[Slice], usual: float, ranks: int) -> Dip:
    slow = Counter(
        part.slowest
        for part in parts
        if part.slowest and part.slowest_rate < OWN_SHARE * part.rate / max(1, ranks)
    )
    host, count = slow.most_common(1)[0] if slow else ("", 0)
    return Dip(
        parts[0].t,
        parts[-1].end,
        usual,
        min(part.rate for part in parts),
        host if 2 * count > len(parts) else "",
        tuple(number for part in parts for number in part.ids),
    )
