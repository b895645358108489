"""Message times as a few straight pieces: where an MPI changes its protocol, and what each costs.

Between two protocols (eager, rendezvous) the time of a message, a + b * size, changes its constants. The
breaks are found by dynamic programming: the fewest pieces such that every size lies within a tolerance of
its piece, each piece fitted to the relative errors, and among as many pieces those with the least error.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

TOLERANCE = 0.04  # of a time: what the pieces may be off by
FINEST = 1.2  # a break is looked for until its two sizes are that close


@dataclass(frozen=True)
class Segment:
    """From messages of ``start`` bytes on: ``latency`` + size * ``gap`` seconds."""

    start: int
    latency: float  # s
    gap: float  # s/B


def fit_segments(times: Mapping[int, float]) -> list[Segment]:
    """The pieces of the times by size; the first begins at 0."""
    sizes = np.array(sorted(times), dtype=float)
    taken = np.array([times[int(size)] for size in sizes])
    pieces = _cheapest(sizes, taken)
    return [
        Segment(int(sizes[first]) if first else 0, *_line(sizes[first:end], taken[first:end])) for first, end in pieces
    ]


def _cheapest(sizes: np.ndarray, times: np.ndarray) -> list[tuple[int, int]]:
    n = len(sizes)
    best: list[tuple[int, float, int]] = [(0, 0.0, 0)]  # up to here: pieces, error, where the last begins
    for end in range(1, n + 1):
        options = []
        for first in range(end):
            error = _error(sizes[first:end], times[first:end])
            if error <= TOLERANCE or end - first == 1:
                pieces, before, _ = best[first]
                options.append((pieces + 1, before + error, first))
        best.append(min(options))
    pieces, end = [], n
    while end > 0:
        first = best[end][2]
        pieces.append((first, end))
        end = first
    return pieces[::-1]


def _line(sizes: np.ndarray, times: np.ndarray) -> tuple[float, float]:
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


def _off(line: tuple[float, float], sizes: np.ndarray, times: np.ndarray) -> float:
    return float(np.max(np.abs((line[0] + line[1] * sizes) / times - 1)))


def _error(sizes: np.ndarray, times: np.ndarray) -> float:
    return _off(_line(sizes, times), sizes, times)


def between_breaks(times: Mapping[int, float]) -> list[int]:
    """Sizes that would tell better where one piece ends and the next begins; none when all is known."""
    starts = {segment.start for segment in fit_segments(times)}
    wanted = []
    for before, size in itertools.pairwise(sorted(times)):
        if size in starts and size > FINEST * before and size > 64:
            wanted.append(round((before * size) ** 0.5))
    return wanted
