"""The search of ``assay eb tune`` on planted landscapes: within 2 % of the full grid's best at a tenth of its cost.

The test uses all landscapes, and the message of a failure has the results of all. A random search with the same budget
must fail on some of them; otherwise the test would prove nothing.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_landscape import SPACE, Landscape

from assay.errors import UserError
from assay.events.landscape import importances, levels
from assay.events.space import Axis, Point, Space
from assay.events.tuner import Tuner, budget_of

LANDSCAPES = range(1, 9)
MARGIN = 0.02
SMALL = Space((Axis("credits", (1, 2, 4)), Axis("schedule", ("shift", "random"), ordered=False)))


@pytest.mark.slow
def test_the_search_is_within_2_percent_of_the_best_at_a_tenth_of_the_cost() -> None:
    tuned_results, random_results = {}, {}
    for number in LANDSCAPES:
        landscape = Landscape(number)
        measured_points: list[Point] = []

        def measure(
            point: Point, landscape: Landscape = landscape, measured_points: list[Point] = measured_points
        ) -> float:
            measured_points.append(point)
            return landscape.measure(point)

        result = Tuner(SPACE, measure, seed=number).run()
        assert len(measured_points) == result.measured <= SPACE.size // 10
        assert result.best is not None
        tuned_results[number] = landscape.rate(result.best) / landscape.best
        sample = random.Random(number).sample(list(SPACE.points()), budget_of(SPACE))
        random_results[number] = landscape.rate(max(sample, key=landscape.measure)) / landscape.best
    assert min(tuned_results.values()) >= 1 - MARGIN, tuned_results
    assert min(random_results.values()) < 1 - MARGIN, "a random search solves every planted landscape"


def test_planted_landscapes_have_few_good_points() -> None:
    for number in LANDSCAPES:
        assert Landscape(number).share_within(0.05) <= 0.02


def test_every_point_of_a_small_grid_is_measured_once() -> None:
    measured_points: list[Point] = []
    result = Tuner(SMALL, lambda point: measured_points.append(point) or float(len(measured_points))).run()
    assert sorted(map(str, measured_points)) == sorted(map(str, SMALL.points()))
    assert result.best == measured_points[-1]


def test_points_that_cannot_be_measured_are_not_repeated_and_never_best() -> None:
    landscape, refused = Landscape(1), []

    def measure(point: Point) -> float | None:
        if point[0] >= 1 << 20:
            refused.append(point)
            return None
        return landscape.measure(point)

    result = Tuner(SPACE, measure, budget=60).run()
    assert refused and len(set(refused)) == len(refused)
    assert result.best is not None and result.best[0] < 1 << 20
    assert result.failed == set(refused)


def test_without_a_measurement_there_is_no_best_point() -> None:
    result = Tuner(SPACE, lambda _: None, budget=20).run()
    assert result.best is None and result.measured == 20


def test_measurements_of_a_resumed_run_are_not_repeated() -> None:
    earlier = {point: float(k) for k, point in enumerate(SMALL.points())}
    measured_points: list[Point] = []
    result = Tuner(SMALL, lambda point: measured_points.append(point) or 0.0, earlier=earlier).run()
    assert not measured_points and result.best == list(SMALL.points())[-1]


def test_a_single_outlier_is_not_the_best_point() -> None:
    truth = Landscape(2, noise=0.0)
    lucky = next(point for point in SPACE.points() if 0.7 < truth.rate(point) / truth.best < 0.75)
    measured_before: set[Point] = set()

    def measure(point: Point) -> float:
        first = point not in measured_before
        measured_before.add(point)
        return truth.best * 1.5 if point == lucky and first else truth.rate(point)

    tuner = Tuner(SPACE, measure, budget=80, earlier={lucky: truth.best * 1.5})
    measured_before.add(lucky)
    assert tuner.run().best != lucky


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=4),
    st.data(),
)
def test_neighbours_are_points_of_the_grid_that_differ_in_one_axis(shape, data) -> None:
    space = Space(tuple(Axis(f"p{k}", tuple(range(n)), ordered) for k, (n, ordered) in enumerate(shape)))
    point = data.draw(st.sampled_from(list(space.points())))
    neighbours = space.neighbours(point)
    assert len(set(neighbours)) == len(neighbours)
    for other in neighbours:
        (axis,) = [k for k in range(len(shape)) if other[k] != point[k]]
        assert other in set(space.points())
        assert not space.axes[axis].ordered or abs(other[axis] - point[axis]) == 1


def test_an_axis_without_values_or_with_a_repeated_one_is_refused() -> None:
    for values in ((), (1, 1)):
        with pytest.raises(UserError):
            Space((Axis("credits", values),))


def test_the_parameter_with_the_largest_effect_is_the_most_important() -> None:
    space = Space(tuple(Axis(name, tuple(range(6))) for name in ("much", "little", "nothing")))
    values = {point: 100.0 - 10 * abs(point[0] - 2) - 0.5 * point[1] for point in space.points()}
    importance = importances(space, values)
    assert max(importance, key=importance.__getitem__) == "much"
    assert importance["much"] > 0.8 and importance["nothing"] < 0.05
    assert sum(importance.values()) == pytest.approx(1)
    much = levels(space, values, "much")
    assert [level.value for level in much] == list(range(6))
    assert max(much, key=lambda level: level.median).value == 2
    assert all(level.points == 36 and level.best >= level.median for level in much)


def test_too_few_points_have_no_importance() -> None:
    assert importances(SMALL, {point: 1.0 for point in SMALL.points()}) == {}
