"""A search for the best point of a grid at a tenth of its cost.

Two phases share the budget. The first is the tree-structured Parzen estimator of Optuna (Bergstra et al., NIPS 2011),
multivariate, so that parameters that only work together (credits and parallel communications) are drawn together. The
second starts at the best points and measures their neighbours, best first, since the estimator spends its last points
on the surroundings of the best only by chance. The last points are repetitions: the best few are measured again, and
the median decides, so that one lucky measurement does not win.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from assay.events.space import Point, Space

SHARE_OF_GRID = 0.1
ESTIMATOR_SHARE = 0.6  # of the budget; the rest is for neighbours and repetitions
FINALISTS, REPEATS = 3, 2  # points that are measured again, and how often
MIN_POINTS = 8  # points; a smaller grid is measured whole
MAX_REPEATED_PROPOSALS = (
    50  # after this many consecutive proposals that were already measured, the search has converged
)

# A point's figure, higher is better; None where it could not be measured.
Measure = Callable[[Point], float | None]


@dataclass
class Tuning:
    """The measured points of a search, in order."""

    space: Space
    values: dict[Point, list[float]] = field(default_factory=dict)
    failed: set[Point] = field(default_factory=set)
    measured: int = 0  # number of measurements, repetitions included: the cost of the search

    def value(self, point: Point) -> float:
        return statistics.median(self.values[point])

    @property
    def best(self) -> Point | None:
        return max(self.values, key=self.value, default=None)

    def ranked(self) -> list[Point]:
        return sorted(self.values, key=self.value, reverse=True)

    def share_within(self, margin: float) -> float:
        """The share of the measured points whose figure is within ``margin`` of the best."""
        if self.best is None:
            return math.nan
        limit = (1 - margin) * self.value(self.best)
        return sum(self.value(point) >= limit for point in self.values) / len(self.values)


def budget_of(space: Space) -> int:
    """Measurements that a search of this grid may make: a tenth of the grid, a small grid whole."""
    return space.size if space.size <= MIN_POINTS else max(MIN_POINTS, int(SHARE_OF_GRID * space.size))


class Tuner:
    """A search. ``measure`` is called for one point at a time; if it raises KeyboardInterrupt, ``result`` holds the
    points measured so far.

    ``earlier``: figures of points that a resumed run has measured already.
    """

    def __init__(
        self,
        space: Space,
        measure: Measure,
        budget: int | None = None,
        seed: int = 1,
        earlier: Mapping[Point, float] | None = None,
    ) -> None:
        self.space = space
        self.budget = min(budget or budget_of(space), space.size)
        self._measure = measure
        self._seed = seed
        self.result = Tuning(space)
        for point, value in (earlier or {}).items():
            self.result.values[point] = [value]
            self.result.measured += 1

    @property
    def _remaining(self) -> int:
        return self.budget - self.result.measured

    def run(self) -> Tuning:
        if self.budget >= self.space.size:
            for point in self.space.points():
                self._measure_new(point)
            return self.result
        reserved = FINALISTS * REPEATS if self.budget >= 4 * FINALISTS * REPEATS else 0
        self._run_estimator(int(ESTIMATOR_SHARE * self.budget))
        self._measure_neighbours(reserved)
        self._repeat_best()
        return self.result

    def _measure_new(self, point: Point) -> float | None:
        result = self.result
        if point in result.values:
            return result.value(point)
        if point in result.failed:
            return None
        result.measured += 1
        value = self._measure(point)
        if value is None:
            result.failed.add(point)
        else:
            result.values[point] = [value]
        return value

    def _run_estimator(self, budget: int) -> None:
        from assay.events.distributions import TrialState, distributions, new_study, point_of

        study = new_study(self._seed, max(MIN_POINTS, budget // 3))
        distribution_by_axis = distributions(self.space)
        repeated_proposals = 0
        while self.result.measured < budget and repeated_proposals < MAX_REPEATED_PROPOSALS:
            trial = study.ask(distribution_by_axis)
            before = self.result.measured
            value = self._measure_new(point_of(self.space, trial.params))
            repeated_proposals = repeated_proposals + 1 if self.result.measured == before else 0
            if value is None:
                study.tell(trial, state=TrialState.FAIL)
            else:
                study.tell(trial, value)

    def _measure_neighbours(self, reserved: int) -> None:
        """Measures neighbours of the best points, best first, and any point if all neighbours are measured. The last
        ``reserved`` measurements are left for repetitions."""
        others = list(self.space.points())
        random.Random(self._seed).shuffle(others)
        while self._remaining > reserved:
            neighbours = map(self._new_neighbours, self.result.ranked())
            new_points = next((points for points in neighbours if points), None)
            self._measure_new(new_points[0] if new_points else self._first_new(others))

    def _first_new(self, points: list[Point]) -> Point:
        """Removes and returns the first point that has not been tried; the grid is larger than the budget."""
        return next(point for point in iter(points.pop, None) if self._is_new(point))

    def _is_new(self, point: Point) -> bool:
        return point not in self.result.values and point not in self.result.failed

    def _new_neighbours(self, point: Point) -> list[Point]:
        return [p for p in self.space.neighbours(point) if self._is_new(p)]

    def _repeat_best(self) -> None:
        """Measures the best few again, as long as the budget lasts."""
        for _ in range(REPEATS):
            for point in self.result.ranked()[:FINALISTS]:
                if self._remaining <= 0:
                    return
                self.result.measured += 1
                value = self._measure(point)
                if value is not None:
                    self.result.values[point].append(value)
