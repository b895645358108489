"""Cabinets found by latency alone, in far fewer pairs than there are."""

from __future__ import annotations

import random

import pytest
from planted_network import Planted, cluster, line

from assay.model.network import Network


def groups(cabinets) -> set[frozenset[str]]:
    return {frozenset(hosts) for hosts in cabinets.values()}


@pytest.mark.parametrize("cabinets, hosts", [(1, 9), (2, 4), (5, 20), (3, 1), (2, 1)])
def test_every_host_in_its_cabinet(cabinets: int, hosts: int):
    planted = Planted(cluster(cabinets, hosts), line(20e-6), line(26e-6))
    discovered = planted.study().cabinets
    if hosts == 1:  # all are equally far from each other: that is one cabinet, as far as anyone can tell
        assert len(discovered) == 1
        return
    assert groups(discovered) == groups(planted.network.cabinets)
    n = cabinets * hosts
    assert planted.pairs <= 2 * (cabinets + 1) * n + 2


def test_a_host_alone_in_its_cabinet_comes_first():
    network = Network({"a": ["n0"], "b": ["n1", "n2", "n3", "n4"]})
    for host in network.cabinet_of:
        network.capacity["host", host, "up"] = network.capacity["host", host, "down"] = 1e8
    assert groups(Planted(network, line(20e-6), line(30e-6)).study().cabinets) == groups(network.cabinets)


def test_times_that_only_vary_show_no_cabinets():
    noise = random.Random(4)
    planted = Planted(
        cluster(2, 6), lambda _: noise.uniform(20e-6, 60e-6), lambda _: noise.uniform(20e-6, 60e-6)
    )
    assert len(planted.study().cabinets) == 1
