"""Message times as a few straight pieces: where an MPI changes its protocol, and what each costs.

Between two protocols (eager, rendezvous) the time of a message, a + b * size, changes its constants. The
breaks are found by dynamic programming: the fewest pieces such that every size lies within a tolerance of
its piece, each piece fitted to the relative errors, and among as many pieces those with the least error.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

TOLERANCE = 0.04  # of a time: what the pieces may be off by
LARGEST = 1 << 20  # B: behind it no protocol changes, and each message costs
FINEST = 1.2  # a break is looked for until its two sizes are that close


@dataclass(frozen=True)
class Segment:
    """From messages of ``start`` bytes on: ``latency`` + size * ``gap`` seconds."""

    start: int
    latency: float  # s
    gap: float  # s/B


def fit_segments(times: Mapping[int, float], doubts: Mapping[int, float] | None = None) -> list[Segment]:
    """The pieces of the times by size; the first begins at 0. ``doubts``: how far each time may be off, relative
    to it: what a noisy network varies by is no protocol."""
    sizes = np.array(sorted(times), dtype=float)
    taken = np.array([times[int(size)] for size in sizes])
    allowed = np.array([max(TOLERANCE, (doubts or {}).get(int(size), 0.0)) for size in sizes])
    pieces = _cheapest(sizes, taken, allowed)
    return [
        Segment(int(sizes[first]) if first else 0, *_line(sizes[first:end], taken[first:end]))
        for first, end in pieces
    ]


def _cheapest(sizes: Vector, times: Vector, allowed: Vector) -> list[tuple[int, int]]:
    n = len(sizes)
    best: list[tuple[int, float, int]] = [(0, 0.0, 0)]  # up to here: pieces, error, where the last begins
    for end in range(1, n + 1):
        options = []
        for first in range(end):
            error = _error(sizes[first:end], times[first:end], allowed[first:end])
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


def _line(sizes: Vector, times: Vector) -> tuple[float, float]:
    """Constants, neither negative, by least squares of the relative errors."""
    ones = np.ones_like(times)
    by_both = np.column_stack((ones / times, sizes / times))
    if len(sizes) > 1:
        (latency, gap), *_ = np.linalg.lstsq(by_both, ones, rcond=None)
        if latency >= 0 and gap >= 0:
            return float(latency), float(gap)
    flat = float(np.sum(1 / times) / np.sum(1 / times**2)), 0.0
    rising = 0.0, float(np.sum(sizes / times) / np.sum((sizes / times) ** 2))
    return min(flat, rising, key=lambda line: _off(line, sizes, times))


def _off(line: tuple[float, float], sizes: Vector, times: Vector, allowed: Vector | None = None) -> float:
    wrong = np.abs((line[0] + line[1] * sizes) / times - 1)
    return float(np.max(wrong if allowed is None else wrong / allowed))


def _error(sizes: Vector, times: Vector, allowed: Vector) -> float:
    """The largest share of what is allowed."""
    return _off(_line(sizes, times), sizes, times, allowed)


def doubt(samples: Sequence[float]) -> float:
    """How far the median of these times may be off, relative to it: twice its standard error, from the MAD."""
    values = np.asarray(samples)
    middle = float(np.median(values))
    return float(2 * 1.25 * 1.48 * np.median(np.abs(values - middle)) / len(values) ** 0.5 / middle)


def between_breaks(times: Mapping[int, float], doubts: Mapping[int, float]) -> list[int]:
    """Sizes that would tell better where one piece ends and the next begins; none when all is known."""
    starts = {segment.start for segment in fit_segments(times, doubts)}
    wanted = []
    for before, size in itertools.pairwise(sorted(times)):
        if size in starts and size > FINEST * before and before >= 64 and size <= LARGEST:
            wanted.append(round((before * size) ** 0.5))
    return wanted
