"""Cabinets found by latency alone, from far fewer measured pairs than exist."""

from __future__ import annotations

import random

import pytest
from planted_network import PlantedNetwork, answer_rounds, cluster, linear_time

from assay.model.discover import discover
from assay.model.network import Network, Topology
from assay.model.rounds import NAME, Result, Round
from assay.records.schema import Measurement, Subject, Summary


def groups(cabinets) -> set[frozenset[str]]:
    return {frozenset(hosts) for hosts in cabinets.values()}


@pytest.mark.parametrize("cabinets, hosts", [(1, 9), (2, 4), (5, 20), (3, 1), (2, 1)])
def test_every_host_is_put_in_its_cabinet(cabinets: int, hosts: int):
    planted = PlantedNetwork(cluster(cabinets, hosts), linear_time(20e-6), linear_time(26e-6))
    discovered = planted.study().cabinets
    if hosts == 1:  # all are equally far apart, which looks like one cabinet
        assert len(discovered) == 1
        return
    assert groups(discovered) == groups(planted.network.cabinets)
    n = cabinets * hosts
    assert planted.pairs <= 2 * (cabinets + 1) * n + 2


def test_the_first_host_may_be_alone_in_its_cabinet():
    network = Network({"a": ["n0"], "b": ["n1", "n2", "n3", "n4"]})
    for host in network.cabinet_of:
        network.capacity["host", host, "up"] = network.capacity["host", host, "down"] = 1e8
    study = PlantedNetwork(network, linear_time(20e-6), linear_time(30e-6)).study()
    assert groups(study.cabinets) == groups(network.cabinets)


def test_times_that_only_vary_show_no_cabinets():
    noise = random.Random(4)
    planted = PlantedNetwork(
        cluster(2, 6), lambda _: noise.uniform(20e-6, 60e-6), lambda _: noise.uniform(20e-6, 60e-6)
    )
    assert len(planted.study().cabinets) == 1


def discovered_by(microseconds: list[list[float]]) -> Topology:
    """The cabinets that these latencies of hosts h0, h1, ... give. Each visit differs by 0.1 % from the one before."""
    topologies: list[Topology] = []

    def answer(request: Round) -> Result:
        visit = int(request.params["visit"])
        records = []
        for a, b in request.flows:
            time = microseconds[int(a[1:])][int(b[1:])] * 1e-6 * (1 + 0.001 * (visit % 2))
            records.append(
                Measurement(
                    id=len(records) + 1, name=NAME, metric="latency", unit="s", subject=Subject(host=a, peer=b),
                    params=request.params, summary=Summary(n=3, median=time), samples=[time] * 3,
                )
            )  # fmt: skip
        return Result(latencies=records)

    def conversation():
        topologies.append((yield from discover([f"h{i}" for i in range(len(microseconds))], 100)))

    answer_rounds(conversation(), answer)
    return topologies[0]


def test_processors_with_steady_latencies_are_no_cabinets():
    """Ranks share the processors of one machine: a latency depends on the two processors, and hardly varies."""
    times = {(0, 0): 6.8, (0, 1): 9.8, (0, 2): 13.0, (1, 2): 10.2, (2, 2): 10.2}
    processor = [0, 0, 0, 1, 2, 2]
    table = [[times[min(a, b), max(a, b)] if (a, b) != (1, 1) else 0.0 for b in processor] for a in processor]
    assert len(discovered_by(table)) == 1


def test_a_slow_processor_needs_the_confirmation_of_a_second_host():
    """h0 runs where h4 and h5 are far from it; they are near to all others."""
    table = [[10.0] * 6 for _ in range(6)]
    for other in (4, 5):
        table[0][other] = table[other][0] = 13.0
    assert len(discovered_by(table)) == 1


def test_steady_times_of_two_cabinets_are_confirmed():
    cabinet = [0, 0, 0, 1, 1, 1]
    table = [[10.0 if a == b else 12.0 for b in cabinet] for a in cabinet]
    assert groups(discovered_by(table)) == {frozenset({"h0", "h1", "h2"}), frozenset({"h3", "h4", "h5"})}
