"""Cabinets found by contention, where all hosts are equally far apart; no cabinets where no link is ever full."""

from __future__ import annotations

import random
from collections.abc import Generator

import hidden_platforms
import pytest
from planted_network import PlantedNetwork, answer_rounds, cluster, linear_time

from assay.model.contention import discover_by_contention
from assay.model.network import Network, Topology
from assay.model.rounds import Result, Round
from assay.model.study import Effort, Study


def same_grouping(discovered: Topology, truth: Topology) -> bool:
    return {frozenset(hosts) for hosts in discovered.values()} == {
        frozenset(hosts) for hosts in truth.values()
    }


def planted(network: Network, noise: float = 0.0) -> PlantedNetwork:
    """All messages take the same time; rates vary by as much as ``noise``."""
    rng = random.Random(7)

    def distort(record) -> None:
        record.values = [rate * rng.uniform(1 - noise, 1 + noise) for rate in record.values]

    return PlantedNetwork(network, linear_time(20e-6), linear_time(20e-6), distort)


def discovered(network: Network, noise: float = 0.0) -> tuple[Topology, list[Round]]:
    study = Study(list(network.cabinet_of), Effort(), pair_rate=max(network.capacity.values()))

    def conversation() -> Generator[Round, Result, None]:
        study.cabinets = yield from discover_by_contention(study)

    rounds = answer_rounds(conversation(), planted(network, noise).answer)
    return study.cabinets, rounds


@pytest.mark.parametrize("seed", [1, 3, 4, 8, 12, 16])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_every_host_is_put_in_its_cabinet(seed: int, noise: float):
    """Random platforms: shuffled host names, equal or unequal hosts, with and without limiters."""
    hidden = hidden_platforms.draw_platform(seed, (2, 8), (4, 32))
    grouped, _ = discovered(Network(hidden.cabinets, dict(hidden.capacity)), noise)
    assert same_grouping(grouped, hidden.cabinets)


def test_discovery_needs_far_fewer_flows_than_pairs():
    network = cluster(4, 40)
    for name in network.cabinets:
        for direction in ("up", "down"):
            network.capacity["cabinet", name, direction] = 40 * 1e8 / 4
    grouped, rounds = discovered(network)
    assert same_grouping(grouped, network.cabinets)
    assert sum(len(request.flows) for request in rounds) < 160 * 160 / 4


def test_the_study_records_that_contention_gave_the_cabinets():
    network = cluster(2, 4)
    network.capacity["cabinet", "rack0", "up"] = network.capacity["cabinet", "rack1", "up"] = 1e8
    study = planted(network).study()
    assert same_grouping(study.cabinets, network.cabinets) and study.grouped_by == "contention"


@pytest.mark.parametrize("cabinets, hosts", [(1, 12), (3, 6), (1, 2), (1, 3)])
def test_without_a_full_link_all_hosts_are_one_cabinet(cabinets: int, hosts: int):
    study = planted(cluster(cabinets, hosts, limiter=1.4e8), noise=0.05).study()
    assert len(study.cabinets) == 1 and study.grouped_by == ""
