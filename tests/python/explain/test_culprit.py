"""Suspects: planted slow hosts, pairs and blocks are named with the right side, and uniform matrices have none."""

import numpy as np
import pytest
from planted import TwoCabinets, sampled_matrix

from assay.explain.culprit import suspects
from assay.explain.matrix import PairMatrix


def suspect_names(matrix: PairMatrix) -> set[tuple[str, str]]:
    return {(suspect.side, host) for suspect in suspects(matrix) for host in suspect.hosts}


@pytest.mark.parametrize(("count", "seeds"), [(256, 20), (1024, 8)])
@pytest.mark.parametrize(("shifts", "false_flags"), [(10, 1.6), (16, 0.0)])
def test_a_side_at_90_percent_is_found_in_random_shifts(
    count: int, seeds: int, shifts: int, false_flags: float
) -> None:
    false = missed = planted = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        bad = [int(host) for host in rng.choice(count, 6, replace=False)]
        transmit, receive = dict.fromkeys(bad[:3], 0.9), dict.fromkeys(bad[3:], 0.9)
        truth = {("transmit", f"n{i}") for i in transmit} | {("receive", f"n{i}") for i in receive}
        suspected = suspect_names(sampled_matrix(count, shifts, rng, transmit, receive, noise=0.025))
        missed, false, planted = (
            missed + len(truth - suspected),
            false + len(suspected - truth),
            planted + len(truth),
        )
    assert missed == 0, f"of {planted}"
    assert false / seeds <= false_flags


@pytest.mark.parametrize("count", [2, 3, 4, 8, 64])
def test_equal_hosts_are_no_suspects(count: int) -> None:
    hosts = [f"h{i}" for i in range(count)]
    assert suspects(PairMatrix.from_dense(np.full((count, count), 1e9), hosts)) == []


@pytest.mark.parametrize("count", [4, 5, 8, 64])
@pytest.mark.parametrize(("axis", "side"), [(0, "transmit"), (1, "receive")])
def test_one_slow_side_among_equal_hosts_is_the_suspect(count: int, axis: int, side: str) -> None:
    bandwidth = np.full((count, count), 1e9)
    np.moveaxis(bandwidth, axis, 0)[2] *= 0.9
    (suspect,) = suspects(PairMatrix.from_dense(bandwidth, [f"h{i}" for i in range(count)]))
    assert (suspect.side, suspect.hosts) == (side, ("h2",))
    assert np.expm1(suspect.effect) == pytest.approx(-0.1, abs=0.01)
    assert suspect.chance < 0.001


def test_of_two_hosts_the_pair_is_the_suspect() -> None:
    bandwidth = np.array([[np.nan, 5e8], [1e9, np.nan]])
    (suspect,) = suspects(PairMatrix.from_dense(bandwidth, ["h0", "h1"]))
    assert (suspect.side, suspect.hosts, suspect.peers, suspect.with_best) == ("pair", ("h0",), ("h1",), True)


def test_an_empty_matrix_has_no_suspects() -> None:
    assert suspects(PairMatrix.of_bandwidth([])) == []


def client_server(clients: int, servers: int) -> tuple[np.ndarray, list[str]]:
    """Servers send to clients at three times the rate of the other direction."""
    count = clients + servers
    bandwidth = np.full((count, count), np.nan)
    bandwidth[:clients, clients:] = 1e9
    bandwidth[clients:, :clients] = 3e9
    return bandwidth, [f"c{i}" for i in range(clients)] + [f"s{i}" for i in range(servers)]


def test_different_rates_of_client_and_server_directions_are_no_suspects() -> None:
    bandwidth, hosts = client_server(12, 2)
    assert suspects(PairMatrix.from_dense(bandwidth, hosts)) == []


def test_a_slow_client_and_a_slow_server_are_suspects() -> None:
    bandwidth, hosts = client_server(12, 2)
    bandwidth[5, :] *= 0.5  # c5 sends slowly
    bandwidth[:, 13] *= 0.7  # s1 receives slowly
    suspected = suspects(PairMatrix.from_dense(bandwidth, hosts))
    assert [(suspect.side, suspect.hosts[0], suspect.with_best) for suspect in suspected] == [
        ("transmit", "c5", False),
        ("receive", "s1", True),
    ]


def test_a_slow_pair_of_a_client_with_two_servers_is_a_pair() -> None:
    bandwidth, hosts = client_server(12, 2)
    bandwidth[5, 13] *= 0.5
    suspected = suspects(PairMatrix.from_dense(bandwidth, hosts))
    assert [(suspect.hosts, suspect.peers) for suspect in suspected if suspect.side == "pair"] == [
        (("c5",), ("s1",))
    ]
    assert all(
        suspect.chance > 0.5 for suspect in suspected if suspect.side != "pair"
    )  # the ends of the pair, which are measured again as controls


def test_a_slow_pair_is_the_suspect_and_its_ends_have_no_effect() -> None:
    bandwidth = np.full((16, 16), 1e9)
    bandwidth[3, 9] = 4e8
    pair, *ends = suspects(PairMatrix.from_dense(bandwidth, [f"h{i}" for i in range(16)]))
    assert (pair.side, pair.hosts, pair.peers) == ("pair", ("h3",), ("h9",))
    assert np.expm1(pair.effect) == pytest.approx(-0.6, abs=0.01)
    assert [(suspect.side, suspect.hosts, suspect.effect) for suspect in ends] == [
        ("transmit", ("h3",), 0),
        ("receive", ("h9",), 0),
    ]


def test_a_leaf_with_a_slow_uplink_is_a_block_and_not_its_hosts() -> None:
    rng = np.random.default_rng(7)
    bandwidth = rng.lognormal(np.log(1e9), 0.03, (32, 32))
    bandwidth[8:16, :8] *= 0.6
    bandwidth[8:16, 16:] *= 0.6
    (suspect,) = suspects(PairMatrix.from_dense(bandwidth, [f"h{i}" for i in range(32)]))
    assert (suspect.side, suspect.hosts) == ("block", tuple(f"h{i}" for i in range(8, 16)))
    assert "h0" in suspect.peers and "h8" not in suspect.peers


def test_hosts_that_are_also_slow_among_themselves_are_suspects_each() -> None:
    bandwidth = np.full((32, 32), 1e9)
    bandwidth[8:12] *= 0.6
    suspected = suspects(PairMatrix.from_dense(bandwidth, [f"h{i}" for i in range(32)]))
    assert {(suspect.side, suspect.hosts) for suspect in suspected} == {
        ("transmit", (f"h{i}",)) for i in range(8, 12)
    }


def test_one_slow_direction_between_cabinets_is_a_block() -> None:
    for seed in range(20):
        lab = TwoCabinets(seed, cabinet_pairs={(0, 1): 0.5})
        blocks = [
            suspect
            for suspect in suspects(PairMatrix.of_bandwidth(lab.rows(), lab.hosts))
            if suspect.side == "block"
        ]
        assert [(suspect.hosts, suspect.peers) for suspect in blocks] == [
            (("h0", "h1", "h2", "h3"), ("h4", "h5", "h6", "h7"))
        ]


def test_paths_across_an_oversubscribed_link_are_no_blocks() -> None:
    for seed in range(20):
        lab = TwoCabinets(seed, uplink=1.5, noise=0.05)
        assert not [
            suspect
            for suspect in suspects(PairMatrix.of_bandwidth(lab.rows(), lab.hosts))
            if suspect.side == "block"
        ]
