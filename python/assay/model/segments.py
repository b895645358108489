"""Message times as a few straight pieces: where an MPI changes its protocol, and what each costs.

Between two protocols (eager, rendezvous) the time of a message, a + b * size, changes its constants. The
breaks are found by dynamic programming: the fewest pieces such that every time lies within a tolerance of
its piece, each piece fitted to the errors as shares of it, and among as many pieces those with the least error.
Several pairs may be fitted at once, each with a latency and a rate of its own: the constants are then factors
of these, as a simulator applies them to all of its routes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.model.times import Times

Vector = NDArray[np.float64]

TOLERANCE = 0.04  # of a time: what the pieces may be off by
LARGEST = 1 << 20  # B: behind it no protocol changes, and each message costs
FINEST = 1.2  # a break is looked for until its two sizes are that close


@dataclass(frozen=True)
class Segment:
    """From messages of ``start`` bytes on: ``latency`` + size * ``gap`` seconds; or factors of a pair's own."""

    start: int
    latency: float  # s
    gap: float  # s/B


@dataclass(frozen=True)
class Point:
    """A time and what it may be off by; ``latency`` and ``transfer`` are the pair's, that the constants multiply."""

    size: int
    time: float
    doubt: float  # relative to the time: what a noisy network varies by is no protocol
    latency: float
    transfer: float


def points_of(times: Times, latency: float = 1.0, gap: float = 1.0, envelope: int = 0) -> list[Point]:
    """``envelope``: bytes that go with every message."""
    found = []
    for size in sorted(times.visits):
        time = times.at(size)
        found.append(Point(size, time.value, time.reach, latency, (size + envelope) * gap))
    return found


def fit_segments(points: Iterable[Point], given: int | None = None) -> list[Segment]:
    """The pieces of the times by size; the first begins at 0. From messages of ``given`` bytes on the gap is not
    fitted: it is 1, the pair's own, and what is left of the time is start-up."""
    ordered = sorted(points, key=lambda point: point.size)
    if not ordered:
        return []
    starts = [i for i, p in enumerate(ordered) if i == 0 or p.size > ordered[i - 1].size]
    sizes = _Sizes(ordered, [*starts, len(ordered)], given)
    return [
        Segment(ordered[starts[first]].size if first else 0, *sizes.line(first, end))
        for first, end in _cheapest(sizes, len(starts))
    ]


class _Sizes:
    """The points by the number of their size; a piece is of those from ``first`` to before ``end``."""

    def __init__(self, points: Sequence[Point], bounds: Sequence[int], given: int | None) -> None:
        self._bounds = bounds
        self._sizes = [points[i].size for i in bounds[:-1]]
        self._given = given
        # All in units of what each time may be off by.
        allowed = np.array([p.time * max(TOLERANCE, p.doubt) for p in points])
        self._by_latency = np.array([p.latency for p in points]) / allowed
        self._by_size = np.array([p.transfer for p in points]) / allowed
        self._target = np.array([p.time for p in points]) / allowed

    def line(self, first: int, end: int) -> tuple[float, float]:
        """Constants, neither negative, by least squares of the errors as shares of what is allowed."""
        own = slice(self._bounds[first], self._bounds[end])
        by_latency, by_size, target = self._by_latency[own], self._by_size[own], self._target[own]
        if self._given is not None and self._sizes[end - 1] >= self._given:
            return max(0.0, _share(by_latency, target - by_size)), 1.0
        if len(target) > 1:
            (latency, gap), *_ = np.linalg.lstsq(np.column_stack((by_latency, by_size)), target, rcond=None)
            if latency >= 0 and gap >= 0:
                return float(latency), float(gap)
        flat, rising = (_share(by_latency, target), 0.0), (0.0, _share(by_size, target))
        return min(flat, rising, key=lambda line: self._off(line, own))

    def error(self, first: int, end: int) -> float:
        return self._off(self.line(first, end), slice(self._bounds[first], self._bounds[end]))

    def _off(self, line: tuple[float, float], own: slice) -> float:
        """The largest share of what is allowed."""
        errors = line[0] * self._by_latency[own] + line[1] * self._by_size[own] - self._target[own]
        return float(np.max(np.abs(errors)))


def _share(of: Vector, target: Vector) -> float:
    """The factor that brings ``of`` nearest to the target."""
    return float(of @ target / (of @ of))


def _cheapest(sizes: _Sizes, n: int) -> list[tuple[int, int]]:
    best: list[tuple[int, float, int]] = [(0, 0.0, 0)]  # up to here: pieces, error, where the last begins
    for end in range(1, n + 1):
        options = []
        for first in range(end):
            error = sizes.error(first, end)
            if error <= 1 or end - first == 1:
                pieces, before, _ = best[first]
                options.append((pieces + 1, before + error, first))
        best.append(min(options))
    found: list[tuple[int, int]] = []
    end = n
    while end > 0:
        first = best[end][2]
        found.append((first, end))
        end = first
    return found[::-1]


def between_breaks(points: Sequence[Point]) -> list[int]:
    """Sizes that would tell better where one piece ends and the next begins; none when all is known."""
    starts = {segment.start for segment in fit_segments(points)}
    wanted = []
    for before, size in itertools.pairwise(sorted({point.size for point in points})):
        if size in starts and size > FINEST * before and before >= 64 and size <= LARGEST:
            wanted.append(round((before * size) ** 0.5))
    return wanted
