"""Cabinets found by contention, where all hosts are equally far from each other; and nothing where it does not show."""

from __future__ import annotations

import random
from collections.abc import Generator

import hidden_platforms
import pytest
from planted_network import Planted, cluster, conduct, line

from assay.model.contention import discover_by_contention
from assay.model.network import Network, Topology
from assay.model.rounds import Result, Round
from assay.model.study import Effort, Study


def same(discovered: Topology, truth: Topology) -> bool:
    return {frozenset(hosts) for hosts in discovered.values()} == {
        frozenset(hosts) for hosts in truth.values()
    }


def planted(network: Network, noise: float = 0.0) -> Planted:
    """All messages take the same time; rates vary by as much as ``noise``."""
    chance = random.Random(7)

    def spoil(record) -> None:
        record.values = [rate * chance.uniform(1 - noise, 1 + noise) for rate in record.values]

    return Planted(network, line(20e-6), line(20e-6), spoil)


def discovered(network: Network, noise: float = 0.0) -> tuple[Topology, list[Round]]:
    study = Study(list(network.cabinet_of), Effort(), single=max(network.capacity.values()))

    def conversation() -> Generator[Round, Result, None]:
        study.cabinets = yield from discover_by_contention(study)

    rounds = conduct(conversation(), planted(network, noise).answer)
    return study.cabinets, rounds


@pytest.mark.parametrize("seed", [1, 3, 4, 8, 12, 16])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_every_host_in_its_cabinet(seed: int, noise: float):
    """Random platforms: names that tell nothing, hosts alike or not, with limiters or without."""
    hidden = hidden_platforms.draw(seed, (2, 8), (4, 32))
    grouped, _ = discovered(Network(hidden.cabinets, dict(hidden.capacity)), noise)
    assert same(grouped, hidden.cabinets)


def test_in_far_fewer_flows_than_there_are_pairs():
    network = cluster(4, 40)
    for name in network.cabinets:
        for direction in ("up", "down"):
            network.capacity["cabinet", name, direction] = 40 * 1e8 / 4
    grouped, rounds = discovered(network)
    assert same(grouped, network.cabinets)
    assert sum(len(request.flows) for request in rounds) < 160 * 160 / 4


def test_the_study_says_what_the_cabinets_were_found_by():
    network = cluster(2, 4)
    network.capacity["cabinet", "rack0", "up"] = network.capacity["cabinet", "rack1", "up"] = 1e8
    study = planted(network).study()
    assert same(study.cabinets, network.cabinets) and study.grouped_by == "contention"


@pytest.mark.parametrize("cabinets, hosts", [(1, 12), (3, 6), (1, 2), (1, 3)])
def test_where_no_link_is_ever_full_nobody_can_tell(cabinets: int, hosts: int):
    study = planted(cluster(cabinets, hosts, limiter=1.4e8), noise=0.05).study()
    assert len(study.cabinets) == 1 and study.grouped_by == ""
