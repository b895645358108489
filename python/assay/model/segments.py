"""Piecewise linear message times: the sizes at which an MPI changes its protocol, and each protocol's latency and gap.

The time of a message is a + b * size; the constants change between protocols (eager, rendezvous). A break is a size at
which a segment starts. Dynamic programming finds the breaks: the fewest segments such that every time lies within its
tolerance, and among these the segments with the least error. Errors are relative to the tolerance. Several pairs may
be fitted at once, each with its latency and rate: the constants are then factors of these, as SimGrid applies them to
all routes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.model.estimate import Estimate
from assay.model.times import MessageTimes

Vector = NDArray[np.float64]

# Largest relative error of a segment. Similar hosts differ by 1 or 2 %, which a fit to several pairs has to cover.
TOLERANCE = 0.03
MAX_BREAK_SIZE = 1 << 20  # B: no protocol changes beyond, and long messages take long to measure
MIN_NETWORK_SHARE = (
    0.02  # least share of a message's time that is left after the time in MPI calls is subtracted
)
MAX_BREAK_RATIO = 1.2  # a break is known precisely enough when the sizes on its two sides have this ratio


@dataclass(frozen=True)
class Segment:
    """The time of a message from ``start`` bytes on: ``latency`` + size * ``gap`` seconds. In a fit to several pairs
    both are factors of the pair's own latency and gap."""

    start: int
    latency: float  # s
    gap: float  # s/B


@dataclass(frozen=True)
class Point:
    """A measured time. The fit multiplies ``latency`` and ``transfer`` (s), those of its pair."""

    size: int
    time: float
    uncertainty: float  # relative to the time
    latency: float
    transfer: float


def points_of(
    times: MessageTimes,
    latency: float = 1.0,
    gap: float = 1.0,
    envelope: int = 0,
    time_in_calls: Callable[[int], float] = lambda _: 0.0,
) -> list[Point]:
    """One point per size. ``gap``: s/B of the pair; ``envelope``: bytes of header that the MPI adds to each message;
    ``time_in_calls``: seconds of a message of this size that its MPI calls take, which are subtracted. The absolute
    error that is allowed stays that of the whole time."""
    points = []
    for size in sorted(times.visits):
        time = times.time_of(size)
        rest = max(time.value - time_in_calls(size), MIN_NETWORK_SHARE * time.value)
        uncertainty = time.uncertainty if rest == time.value else allowed_error(time) / rest
        points.append(Point(size, rest, uncertainty, latency, (size + envelope) * gap))
    return points


def allowed_error(time: Estimate) -> float:
    """The largest error of a segment in s."""
    return time.value * max(TOLERANCE, time.uncertainty)


def fit_segments(points: Iterable[Point], fixed_from: int | None = None) -> list[Segment]:
    """The segments of times by size; the first starts at 0.

    From ``fixed_from`` bytes on the gap factor is 1, i.e. the pair's gap, and only the latency is fitted.
    """
    ordered = sorted(points, key=lambda point: point.size)
    if not ordered:
        return []
    starts = [i for i, p in enumerate(ordered) if i == 0 or p.size > ordered[i - 1].size]
    sizes = _Sizes(ordered, [*starts, len(ordered)], fixed_from)
    return [
        Segment(ordered[starts[first]].size if first else 0, *sizes.line(first, end))
        for first, end in _fewest_segments(sizes, len(starts))
    ]


class _Sizes:
    """Points grouped by size; a segment covers the sizes with index ``first`` to ``end`` - 1."""

    def __init__(self, points: Sequence[Point], bounds: Sequence[int], fixed_from: int | None) -> None:
        self._bounds = bounds
        self._sizes = [points[i].size for i in bounds[:-1]]
        self._fixed_from = fixed_from
        # Each equation is divided by its allowed error, so that an error of 1 is the limit.
        allowed_error = np.array([p.time * max(TOLERANCE, p.uncertainty) for p in points])
        self._by_latency = np.array([p.latency for p in points]) / allowed_error
        self._by_size = np.array([p.transfer for p in points]) / allowed_error
        self._target = np.array([p.time for p in points]) / allowed_error

    def line(self, first: int, end: int) -> tuple[float, float]:
        """Latency and gap by least squares; neither is negative."""
        rows = slice(self._bounds[first], self._bounds[end])
        by_latency, by_size, target = self._by_latency[rows], self._by_size[rows], self._target[rows]
        if self._fixed_from is not None and self._sizes[end - 1] >= self._fixed_from:
            return max(0.0, _best_factor(by_latency, target - by_size)), 1.0
        if len(target) > 1:
            (latency, gap), *_ = np.linalg.lstsq(np.column_stack((by_latency, by_size)), target, rcond=None)
            if latency >= 0 and gap >= 0:
                return float(latency), float(gap)
        flat, rising = (_best_factor(by_latency, target), 0.0), (0.0, _best_factor(by_size, target))
        return min(flat, rising, key=lambda line: self._largest_error(line, rows))

    def error(self, first: int, end: int) -> float:
        return self._largest_error(self.line(first, end), slice(self._bounds[first], self._bounds[end]))

    def _largest_error(self, line: tuple[float, float], rows: slice) -> float:
        """The largest error, in units of the allowed one."""
        errors = line[0] * self._by_latency[rows] + line[1] * self._by_size[rows] - self._target[rows]
        return float(np.max(np.abs(errors)))


def _best_factor(values: Vector, target: Vector) -> float:
    """The f that minimizes the sum of squares of f * values - target."""
    return float(values @ target / (values @ values))


def _fewest_segments(sizes: _Sizes, n: int) -> list[tuple[int, int]]:
    """The (first, end) size indices of each segment: the fewest segments, and of these the least error."""
    # best[n], for the n smallest sizes: number of segments, sum of errors, index of the last segment's first size.
    best: list[tuple[int, float, int]] = [(0, 0.0, 0)]
    for end in range(1, n + 1):
        options = []
        for first in range(end):
            error = sizes.error(first, end)
            if error <= 1 or end - first == 1:
                segments, previous_error, _ = best[first]
                options.append((segments + 1, previous_error + error, first))
        best.append(min(options))
    ranges: list[tuple[int, int]] = []
    end = n
    while end > 0:
        first = best[end][2]
        ranges.append((first, end))
        end = first
    return ranges[::-1]


def sizes_near_breaks(points: Sequence[Point]) -> list[int]:
    """Sizes to measure next, each between the two sizes on the sides of a break; empty if all breaks are located to
    within MAX_BREAK_RATIO."""
    starts = {segment.start for segment in fit_segments(points)}
    new_sizes = []
    for before, size in itertools.pairwise(sorted({point.size for point in points})):
        if size in starts and size > MAX_BREAK_RATIO * before and before >= 64 and size <= MAX_BREAK_SIZE:
            new_sizes.append(round((before * size) ** 0.5))
    return new_sizes
