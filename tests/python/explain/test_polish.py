"""Median polish: medians by group, the fit of planted effects, and parts of a matrix that cannot be compared."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import sampled_matrix

from assay.explain.matrix import PairMatrix
from assay.explain.polish import Groups, fit


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(-9, 9, width=32)), min_size=1, max_size=60))
def test_medians_by_group_equal_those_of_numpy(cells: list[tuple[int, float]]) -> None:
    group = np.array([group for group, _ in cells])
    value = np.array([value for _, value in cells], np.float32)
    medians = Groups(group, 7).median(value)
    for number in range(7):
        members = value[group == number]
        assert (
            medians[number] == pytest.approx(np.median(members))
            if members.size
            else np.isnan(medians[number])
        )


def test_planted_effects_are_fitted() -> None:
    rng = np.random.default_rng(3)
    transmit, receive = rng.normal(0, 0.1, 40), rng.normal(0, 0.1, 40)
    bandwidth = np.exp(transmit[:, None] + receive[None, :])
    model = fit(PairMatrix.from_dense(bandwidth, [f"n{i}" for i in range(40)]))
    assert model.transmit - np.median(model.transmit) == pytest.approx(
        transmit - np.median(transmit), abs=0.02
    )
    assert model.receive - np.median(model.receive) == pytest.approx(receive - np.median(receive), abs=0.02)


def test_a_minority_of_slow_cells_does_not_move_the_fit() -> None:
    matrix = sampled_matrix(64, 16, np.random.default_rng(5), noise=0.01)
    damaged = matrix.value.copy()
    damaged[::16] -= 3.0  # the first shift of every host
    before, after = fit(matrix), fit(PairMatrix(matrix.hosts, matrix.source, matrix.target, damaged))
    assert np.abs(before.transmit - after.transmit).max() < 0.03


def test_clients_and_servers_are_not_compared() -> None:
    # c0, c1, c2 send to s3, s4 and receive from them: two matrices in one.
    clients, servers = [0, 1, 2], [3, 4]
    pairs = [(c, s) for c in clients for s in servers] + [(s, c) for c in clients for s in servers]
    source, target = (np.array(ends, np.int32) for ends in zip(*pairs, strict=True))
    model = fit(PairMatrix([f"n{i}" for i in range(5)], source, target, np.zeros(12, np.float32)))
    senders, receivers = model.component[:5], model.component[5:]
    assert set(senders[clients]) == set(receivers[servers]) != set(senders[servers])
    assert set(senders[servers]) == set(receivers[clients])
