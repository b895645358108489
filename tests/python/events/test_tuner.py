"""The search against planted landscapes: within 2 % of the best of the full grid at a tenth of its cost.

All planted landscapes are tried, none is chosen, and the figures of all stand in the message of a failure. A random
search with the same budget must fall short on some: a landscape that any search solves would prove nothing.
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
def test_the_search_ends_within_two_percent_of_the_full_grid_at_a_tenth_of_its_cost() -> None:
    searched, drawn = {}, {}
    for number in LANDSCAPES:
        landscape = Landscape(number)
        asked: list[Point] = []

        def measure(point: Point, landscape: Landscape = landscape, asked: list[Point] = asked) -> float:
            asked.append(point)
            return landscape.measure(point)

        result = Tuner(SPACE, measure, seed=number).run()
        assert len(asked) == result.measured <= SPACE.size // 10
        assert result.best is not None
        searched[number] = landscape.rate(result.best) / landscape.best
        sample = random.Random(number).sample(list(SPACE.points()), budget_of(SPACE))
        drawn[number] = landscape.rate(max(sample, key=landscape.measure)) / landscape.best
    assert min(searched.values()) >= 1 - MARGIN, searched
    assert min(drawn.values()) < 1 - MARGIN, "a random search solves every planted landscape"


def test_planted_landscapes_have_few_good_points() -> None:
    for number in LANDSCAPES:
        assert Landscape(number).share_within(0.05) <= 0.02


def test_a_small_grid_is_measured_whole_and_each_point_once() -> None:
    asked: list[Point] = []
    result = Tuner(SMALL, lambda point: asked.append(point) or float(len(asked))).run()
    assert sorted(map(str, asked)) == sorted(map(str, SMALL.points()))
    assert result.best == asked[-1]


def test_points_that_cannot_be_measured_are_never_the_best_and_never_tried_again() -> None:
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


def test_nothing_measured_has_no_best() -> None:
    result = Tuner(SPACE, lambda _: None, budget=20).run()
    assert result.best is None and result.measured == 20


def test_figures_of_a_resumed_run_count_and_are_not_measured_again() -> None:
    earlier = {point: float(k) for k, point in enumerate(SMALL.points())}
    asked: list[Point] = []
    result = Tuner(SMALL, lambda point: asked.append(point) or 0.0, earlier=earlier).run()
    assert not asked and result.best == list(SMALL.points())[-1]


def test_one_lucky_measurement_does_not_win() -> None:
    truth = Landscape(2, noise=0.0)
    lucky = next(point for point in SPACE.points() if 0.7 < truth.rate(point) / truth.best < 0.75)
    seen: set[Point] = set()

    def measure(point: Point) -> float:
        first = point not in seen
        seen.add(point)
        return truth.best * 1.5 if point == lucky and first else truth.rate(point)

    tuner = Tuner(SPACE, measure, budget=80, earlier={lucky: truth.best * 1.5})
    seen.add(lucky)
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


def test_an_axis_without_a_value_or_with_one_twice_is_refused() -> None:
    for values in ((), (1, 1)):
        with pytest.raises(UserError):
            Space((Axis("credits", values),))


def test_the_parameter_that_matters_is_the_most_important_one() -> None:
    space = Space(tuple(Axis(name, tuple(range(6))) for name in ("much", "little", "nothing")))
    values = {point: 100.0 - 10 * abs(point[0] - 2) - 0.5 * point[1] for point in space.points()}
    found = importances(space, values)
    assert max(found, key=found.__getitem__) == "much"
    assert found["much"] > 0.8 and found["nothing"] < 0.05
    assert sum(found.values()) == pytest.approx(1)
    much = levels(space, values, "much")
    assert [level.value for level in much] == list(range(6))
    assert max(much, key=lambda level: level.median).value == 2
    assert all(level.points == 36 and level.best >= level.median for level in much)


def test_too_few_points_have_no_importance() -> None:
    assert importances(SMALL, {point: 1.0 for point in SMALL.points()}) == {}
