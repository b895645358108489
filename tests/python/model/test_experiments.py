"""The number of rounds that a study expects, for the time left, against those that it asks for."""

from __future__ import annotations

import pytest
from planted_network import PlantedNetwork, answer_rounds, cluster, linear_time

from assay.model.experiments import expected_rounds, experiments
from assay.model.study import Effort, Study

CALLS = 24  # most rounds on the calls of an MPI, which a planted network does not have


@pytest.mark.parametrize(("cabinets", "hosts"), [(1, 12), (2, 8), (3, 6), (6, 12)])
def test_the_rounds_that_plateaus_add_are_expected(cabinets: int, hosts: int) -> None:
    network = cluster(cabinets, hosts)
    for name in network.cabinets:
        network.capacity["inside", name, "through"] = 0.35 * hosts * 1e8
        for direction in ("up", "down"):
            network.capacity["cabinet", name, direction] = 0.4 * hosts * 1e8
    planted = PlantedNetwork(network, linear_time(20e-6), linear_time(30e-6))
    study = Study(list(network.cabinet_of), Effort(), dict(network.cabinets))
    asked = len(answer_rounds(experiments(study), planted.answer))
    assert 0.9 * asked <= expected_rounds(study) <= asked + CALLS
