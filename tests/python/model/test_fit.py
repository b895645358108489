"""Experiments and fit recover the capacities of a planted network, and mark those that no traffic can measure."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from planted_network import PlantedNetwork, cluster, linear_time

from assay.model.fit import fit
from assay.model.rounds import REPLACES
from assay.records.schema import Flows


def fitted(planted: PlantedNetwork, level: str, resource: str, direction: str):
    study = planted.study(planted.network.cabinets)
    capacity = fit(planted.records, study.cabinets).find(level, resource, direction)
    assert capacity is not None
    return capacity


def planted(network, **more) -> PlantedNetwork:
    return PlantedNetwork(network, linear_time(20e-6), linear_time(30e-6), **more)


def test_up_down_and_limiter_of_each_host_are_recovered():
    network = cluster(1, 7, up=1e8, down=1.2e8, limiter=1.5e8)
    network.capacity["host", "n3", "up"] = 0.6e8
    for (level, resource, direction), truth in network.capacity.items():
        capacity = fitted(planted(network), level, resource, direction)
        assert capacity.value == pytest.approx(truth, rel=1e-6), (resource, direction)
        assert capacity.state == "measured" and capacity.evidence


def test_without_a_limiter_only_a_lower_bound_is_known():
    capacity = fitted(planted(cluster(1, 6)), "host", "n0", "limiter")
    assert capacity.state == "at_least" and capacity.value == pytest.approx(2e8)


def slower_both_ways(share: float) -> Callable[[Flows], None]:
    """Hosts that send and receive at once carry this share less than in each direction alone."""

    def distort(record: Flows) -> None:
        both_ways = set(record.sources) & set(record.targets)
        for i, ends in enumerate(zip(record.sources, record.targets, strict=True)):
            if both_ways & set(ends):
                record.values[i] *= 1 - share
                record.slices[i] = [rate * (1 - share) for rate in record.slices[i]]

    return distort


@pytest.mark.parametrize("acknowledgements", [45 / 1538, 0.05, 90 / 1538, 0.05 + 0.085])
def test_acknowledgements_are_no_limiter(acknowledgements: float):
    """TCP's of each second segment and of each one, and SimGrid's cross traffic, 5 %; last with pauses of messages."""
    network = cluster(3, 6)
    for name in network.cabinets:
        for direction in ("up", "down"):
            network.capacity["cabinet", name, direction] = 3e8
    distort = slower_both_ways(1 - 1 / (1 + acknowledgements))
    for level, resource in (("host", "n2"), ("cabinet", "rack1")):
        limiter = fitted(planted(network, distort=distort), level, resource, "limiter")
        assert limiter.state == "at_least"
        assert limiter.explanations in ([], ["limiter", "acknowledgements"]), limiter.reason


def test_less_than_acknowledgements_explain_is_a_limiter():
    limiter = fitted(planted(cluster(1, 6), distort=slower_both_ways(0.16)), "host", "n2", "limiter")
    assert limiter.state == "measured" and limiter.value == pytest.approx(1.68e8)


def test_a_limiter_as_narrow_as_the_link_hides_the_link():
    up = fitted(planted(cluster(1, 6, limiter=1e8)), "host", "n2", "up")
    assert up.state == "at_least"
    assert "limiter or up link" in up.reason


def test_a_limit_inside_a_cabinet_is_recovered():
    network = cluster(1, 12)
    network.capacity["inside", "rack0", "through"] = 4e8
    capacity = fitted(planted(network), "inside", "rack0", "through")
    assert capacity.state == "measured" and capacity.value == pytest.approx(4e8)
    assert fitted(planted(cluster(1, 12)), "inside", "rack0", "through").state == "at_least"


def test_two_cabinets_cannot_tell_an_up_link_from_a_down_link():
    network = cluster(2, 8)
    network.capacity["cabinet", "rack0", "up"] = 4e8
    network.capacity["cabinet", "rack1", "down"] = 6e8
    up = fitted(planted(network), "cabinet", "rack0", "up")
    assert up.value == pytest.approx(4e8) and up.state == "at_least"
    assert "the up link of rack0 or the down link of rack1" in up.reason and "a third would tell" in up.reason


def test_links_limiters_and_backbone_of_many_cabinets_are_recovered():
    network = cluster(4, 8)
    for i, name in enumerate(network.cabinets):
        network.capacity["cabinet", name, "up"] = 3e8 + i * 1e7
        network.capacity["cabinet", name, "down"] = 4e8 + i * 1e7
    network.capacity["cabinet", "rack2", "limiter"] = 5e8
    network.capacity["backbone", "", "through"] = 9e8
    study = planted(network)
    cabinets = study.study(network.cabinets).cabinets
    model = fit(study.records, cabinets)
    for link, truth in network.capacity.items():
        capacity = model.find(*link)
        assert capacity is not None and capacity.value == pytest.approx(truth, rel=1e-6), link
        assert capacity.state == "measured", link
    assert model.find("cabinet", "rack1", "limiter").state == "at_least"  # type: ignore[union-attr]


def test_one_round_far_off_does_not_move_a_capacity():
    """Half of a round's slices are too slow: the round is uncertain, is repeated, and the median is right."""
    distorted: list[str] = []

    def distort(record: Flows) -> None:
        if record.params["experiment"] == "host" and record.params["direction"] == "up" and not distorted:
            distorted.append(record.params["round"])
            record.slices = [
                [rate * (0.3 if i < 3 else 1.0) for i, rate in enumerate(row)] for row in record.slices
            ]

    capacity = fitted(planted(cluster(1, 6), distort=distort), "host", "n0", "up")
    assert distorted and capacity.value == pytest.approx(1e8)


def test_rounds_that_were_too_short_are_replaced():
    """The first result of each round is from a window of one message and twice too high; the next is right."""

    def distort(record: Flows) -> None:
        if record.params["experiment"] == "host" and REPLACES not in record.params:
            record.slices = [[2 * rate for rate in row] for row in record.slices]
            record.values = [2 * rate for rate in record.values]
            record.params["window_s"] = record.params["size"] / min(record.values)

    study = planted(cluster(1, 6), distort=distort)
    model = fit(study.records, study.study(study.network.cabinets).cabinets)
    assert sum(REPLACES in r.params for r in study.records) >= 6
    for host in study.network.cabinet_of:
        for direction in ("up", "down"):
            capacity = model.find("host", host, direction)
            assert capacity is not None and capacity.value == pytest.approx(1e8)


def test_a_host_that_was_not_measured_stays_unknown():
    study = planted(cluster(1, 6))
    study.study(study.network.cabinets)
    records = [
        r for r in study.records if not (isinstance(r, Flows) and "n4" in str(r.params.get("centres")))
    ]
    capacity = fit(records, study.network.cabinets).find("host", "n4", "up")
    assert capacity is not None and capacity.state == "unknown" and capacity.value is None


def test_a_change_of_protocol_starts_a_segment():
    def times(size: int) -> float:
        return 20e-6 + size / 4e7 if size <= 5000 else 60e-6 + size / 1e8

    network = cluster(1, 4)
    study = PlantedNetwork(network, times, times).study(network.cabinets)
    assert len(study.segments) == 2
    assert 5000 < study.segments[1].start < 5000 * 1.25
    assert study.segments[0].latency == pytest.approx(20e-6, rel=0.02)
    assert 1 / study.segments[1].gap == pytest.approx(1e8, rel=0.02)


def test_a_cabinet_link_that_the_others_cannot_fill_has_a_lower_bound():
    network = cluster(3, 8)
    for name in network.cabinets:
        network.capacity["cabinet", name, "up"] = 7e8 if name == "rack0" else 3e8
        network.capacity["cabinet", name, "down"] = 2.5e8
    study = planted(network)
    study.study(network.cabinets)
    model = fit(study.records, network.cabinets)
    up = model.find("cabinet", "rack0", "up")
    assert up is not None and up.state == "at_least" and up.value == pytest.approx(5e8)
    assert model.find("cabinet", "rack1", "up").state == "measured"  # type: ignore[union-attr]
    assert model.find("cabinet", "rack2", "down").value == pytest.approx(2.5e8)  # type: ignore[union-attr]
