"""Planted landscapes shaped like the one that event builders of 16 nodes have shown: 1620 points, of which about one in
fifty reaches the best rate, and parameters that only suit each other.

A rate is what a link carries, less what small messages lose in overhead, few transfers in flight in waiting, many in
congestion, and buffers beyond the cache in copying. Where the best point lies, and how rough the landscape is, depends
on the number of the landscape. ``noise`` is the relative deviation of one measurement.
"""

from __future__ import annotations

import math

import numpy as np

from assay.events.space import Axis, Point, Space

KIB = 1024
SPACE = Space(
    (
        Axis("fragment", tuple(KIB << k for k in range(4, 13))),  # 16 KiB to 4 MiB
        Axis("credits", (1, 2, 4, 8, 16)),
        Axis("parallel", (1, 2, 4, 8, 16, 32)),
        Axis("schedule", ("shift", "random", "all"), ordered=False),
        Axis("processes", (1, 2)),
    )
)


class Landscape:
    """``rate(point)`` is the true figure; ``measure(point)`` that of one measurement."""

    def __init__(self, number: int, noise: float = 0.01) -> None:
        self._random = np.random.default_rng(number)
        draw = self._random
        self._in_flight = 2 ** draw.uniform(3, 5)  # 8 to 32 transfers a rank fill the link
        self._overhead = 2 ** draw.uniform(14, 16)  # bytes that a message's overhead is worth
        self._cache = 2 ** draw.uniform(22.5, 24.5)  # bytes in flight that a cache holds
        self._credits = draw.choice([1, 2, 4])
        order = draw.permutation(3)
        self._schedule = {name: 1.0 - 0.09 * order[k] for k, name in enumerate(("shift", "random", "all"))}
        self._processes = {1: 1.0, 2: 1.0 + draw.uniform(-0.05, 0.1)}
        rough = draw.normal(0, 0.015, SPACE.size)
        self.true = {point: self._smooth(point) * (1 + rough[k]) for k, point in enumerate(SPACE.points())}
        self._noise = noise
        self.best = max(self.true.values())

    def _smooth(self, point: Point) -> float:
        size, credits, parallel, schedule, processes = (point[k] for k in range(5))
        assert isinstance(size, int) and isinstance(credits, int) and isinstance(parallel, int)
        assert isinstance(processes, int)
        flight = credits * parallel * processes
        rate = size / (size + self._overhead)
        rate *= math.exp(-0.12 * abs(math.log2(flight / self._in_flight)) ** 1.5)
        rate /= 1 + (flight * size / self._cache) ** 2 / 4
        rate *= math.exp(-0.05 * abs(math.log2(credits / self._credits)))
        return 12.5e9 * rate * self._schedule[str(schedule)] * self._processes[processes]

    def rate(self, point: Point) -> float:
        return self.true[point]

    def measure(self, point: Point) -> float:
        return self.true[point] * (1 + self._random.normal(0, self._noise))

    def share_within(self, margin: float) -> float:
        return sum(rate >= (1 - margin) * self.best for rate in self.true.values()) / SPACE.size
