"""Capacities that other rounds refute."""

from __future__ import annotations

import pytest

from assay.model.carried import correct
from assay.model.network import Network
from assay.records.schema import Capacity, Flows


def capacity(level: str, resource: str, direction: str, value: float) -> Capacity:
    return Capacity(
        level=level, resource=resource, direction=direction, unit="B/s", state="measured", value=value,
        low=0.99 * value, high=1.01 * value, n=8, reason="plateau",
    )  # fmt: skip


def flows(rates: dict[tuple[str, str], float]) -> Flows:
    return Flows(
        id=7, name="network.saturation", metric="rate", unit="B/s", sources=[a for a, _ in rates],
        targets=[b for _, b in rates], values=list(rates.values()), slices=[[rate] * 8 for rate in rates.values()],
        params={"experiment": "strides"},
    )  # fmt: skip


def corrected(limit: Capacity, rates: dict[tuple[str, str], float]) -> tuple[Capacity, Network]:
    network = Network({"c1": ["a", "b"], "c2": ["c", "d"]})
    network.capacity[limit.level, limit.resource, limit.direction] = limit.value or 0.0
    correct(network, [limit], [flows(rates)], [limit.level])
    return limit, network


@pytest.mark.parametrize(
    ("link", "rates", "carried"),
    [
        (("host", "a", "up"), {("a", "b"): 60, ("a", "c"): 60}, 120),
        (("host", "a", "down"), {("b", "a"): 60, ("c", "a"): 70}, 130),
        (("host", "a", "limiter"), {("a", "b"): 60, ("c", "a"): 60}, 120),
        (("inside", "c1", "through"), {("a", "b"): 60, ("b", "c"): 60}, 120),
        (("cabinet", "c1", "up"), {("a", "c"): 60, ("b", "d"): 60, ("a", "b"): 50}, 120),
        (("cabinet", "c1", "down"), {("c", "a"): 60, ("d", "b"): 60}, 120),
        (("cabinet", "c1", "limiter"), {("c", "a"): 60, ("b", "d"): 60}, 120),
        (("backbone", "", "through"), {("c", "a"): 60, ("b", "d"): 60, ("a", "b"): 50}, 120),
    ],
)
def test_a_link_that_carried_more_is_not_measured(link, rates, carried):
    limit, network = corrected(capacity(*link, 100.0), rates)
    assert limit.state == "at_least" and limit.value == carried and limit.evidence == [7]
    assert "another round carried more (strides)" in limit.reason
    assert network.capacity[link] == carried


@pytest.mark.parametrize(
    "rates", [{("a", "b"): 50, ("a", "c"): 50}, {("a", "b"): 50, ("a", "c"): 51.5}, {("b", "a"): 300}]
)
def test_a_link_that_carried_no_more_stays_measured(rates):
    """102 B/s is not above the interval's end, 101 B/s, by more than the margin."""
    limit, network = corrected(capacity("host", "a", "up", 100.0), rates)
    assert (limit.state, limit.value, limit.reason) == ("measured", 100.0, "plateau")
    assert network.capacity["host", "a", "up"] == 100.0
