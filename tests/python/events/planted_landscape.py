"""Planted landscapes: the throughput of an event builder as a function of its parameters, for tests of ``assay eb
tune``.

They are shaped like measurements of an event builder on 16 nodes: 1620 points, of which about one in fifty reaches the
best rate, and parameters that depend on each other. The rate is that of a link, reduced by the overhead of small
messages, by waiting if few transfers are in flight, by congestion if many are, and by copying if the buffers exceed the
cache. The best point and the roughness depend on the landscape's number, which is the seed. ``noise`` is the relative
deviation of one measurement.
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
    """A landscape. ``rate(point)`` is the true throughput in B/s, ``measure(point)`` that of one noisy measurement."""

    def __init__(self, number: int, noise: float = 0.01) -> None:
        self._random = np.random.default_rng(number)
        rng = self._random
        self._in_flight = 2 ** rng.uniform(3, 5)  # 8 to 32 transfers a rank fill the link
        self._overhead = 2 ** rng.uniform(14, 16)  # bytes that a message's overhead is worth
        self._cache = 2 ** rng.uniform(22.5, 24.5)  # bytes in flight that a cache holds
        self._credits = rng.choice([1, 2, 4])
        order = rng.permutation(3)
        self._schedule = {name: 1.0 - 0.09 * order[k] for k, name in enumerate(("shift", "random", "all"))}
        self._processes = {1: 1.0, 2: 1.0 + rng.uniform(-0.05, 0.1)}
        rough = rng.normal(0, 0.015, SPACE.size)
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
