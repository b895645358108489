"""Groups of hosts behind a slow shared path: they are suspects by the matrix, and measuring all their flows at once
tells a slow path from a busy one. Also cables that only some destinations use."""

from __future__ import annotations

import numpy as np
import pytest

from assay.explain import Evidence, plan_groups, plan_retest, suspects
from assay.explain.group_retest import MEASUREMENT, SHAPE, group_outcome
from assay.explain.matrix import PairMatrix
from assay.explain.slow import slow_block
from assay.explain.suspect import Suspect
from assay.records.schema import AnyRecord, Flows, Measurement, Pairs, Subject, Summary

HOSTS = [f"h{i}" for i in range(32)]


def healthy_matrix(seed: int, noise: float = 0.02) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(np.log(1e9), noise, (32, 32))


def rows(bandwidth: np.ndarray) -> list[AnyRecord]:
    return [
        Pairs(name="network.all_to_all", metric="bandwidth", unit="B/s", subject=Subject(host=host),
              params={"size": 1 << 20, "op": "send"}, peers=[p for p in HOSTS if p != host],
              values=[float(bandwidth[i, j]) for j, p in enumerate(HOSTS) if p != host])
        for i, host in enumerate(HOSTS)
    ]  # fmt: skip


def group_flows(rounds: list[list[tuple[str, str]]], slow: set[str], share: float) -> list[AnyRecord]:
    return [
        Flows(name=MEASUREMENT, metric="rate", unit="B/s", params={"shape": SHAPE},
              sources=[a for a, _ in flows], targets=[b for _, b in flows],
              values=[1e9 * (share if a in slow and b not in slow else 1.0) for a, b in flows])
        for flows in rounds
    ]  # fmt: skip


def healthy_retests(pairs: list[tuple[str, str]]) -> list[AnyRecord]:
    return [
        Measurement(name="network.pairs", metric="bandwidth", unit="B/s", subject=Subject(host=a, peer=b),
                    summary=Summary(n=1, median=1e9))
        for a, b in pairs
    ]  # fmt: skip


@pytest.mark.parametrize("share", [0.4, 0.7, 0.88])
@pytest.mark.parametrize("side", [0, 1])
def test_a_slow_trunk_is_found_by_flows_at_once(share: float, side: int) -> None:
    bandwidth = healthy_matrix(1)
    view = bandwidth if side == 0 else bandwidth.T
    view[8:16, :8] *= share
    view[8:16, 16:] *= share
    records = rows(bandwidth)
    matrix = PairMatrix.of_bandwidth(records, HOSTS)
    (suspect,) = suspects(matrix)
    assert (suspect.hosts if side == 0 else suspect.peers) == tuple(HOSTS[8:16])
    rounds = plan_groups([suspect], matrix)
    assert all(len({a for a, _ in flows}) == len({b for _, b in flows}) == 8 for flows in rounds)
    rounds_of_suspect = [flows for flows in rounds if all(suspect.covers(*flow) for flow in flows)]
    assert len(rounds_of_suspect) == 2 and len(rounds) == 8  # twice each, with three other groups
    records += healthy_retests(plan_retest([suspect], matrix))
    group = set(HOSTS[8:16])
    slow = group if side == 0 else set(HOSTS) - group
    (finding,) = slow_block(Evidence(records + group_flows(rounds, slow, share), HOSTS))
    assert finding.effect == pytest.approx(share - 1, abs=0.02) and finding.severity == "fault"
    assert any("8 flows at once" in line for line in finding.details)
    # All flows at once are fast, so the path was only busy with other traffic: no fault.
    assert slow_block(Evidence(records + group_flows(rounds, slow, 1.0), HOSTS)) == []


def test_a_group_that_sends_and_receives_slowly_is_suspected_on_both_sides() -> None:
    """A host that sends slowly is late to receive. In most shifts of three groups, most pairs are then slow."""
    hosts = HOSTS[:12]
    rng = np.random.default_rng(4)
    bandwidth = rng.lognormal(np.log(1e9), 0.02, (12, 12))
    bandwidth[8:, :8] *= 0.35
    bandwidth[:8, 8:] *= 0.4
    found = suspects(PairMatrix.from_dense(bandwidth, hosts))
    group, others = tuple(hosts[8:]), tuple(hosts[:8])
    assert {(s.side, s.hosts, s.peers) for s in found} == {("block", group, others), ("block", others, group)}


def test_a_group_without_a_comparison_has_no_outcome() -> None:
    suspect = Suspect("block", tuple(HOSTS[:16]), tuple(HOSTS[16:]), -0.7, -9.0, 0.0)
    flows = group_flows([[(HOSTS[i], HOSTS[16 + i]) for i in range(16)]], set(HOSTS[:16]), 0.5)
    assert group_outcome(suspect, [suspect], [r for r in flows if isinstance(r, Flows)]) is None


def test_a_slow_up_cable_is_a_block_to_its_destinations() -> None:
    bandwidth = healthy_matrix(2)
    targets = [1, 17, 25]  # by destination modulo 8
    bandwidth[np.ix_(range(8, 16), targets)] *= 0.6
    (suspect,) = suspects(PairMatrix.from_dense(bandwidth, HOSTS))
    assert (suspect.side, suspect.hosts) == ("block", tuple(HOSTS[8:16]))
    assert suspect.peers == tuple(HOSTS[t] for t in targets)


def test_a_slow_down_cable_to_one_host_is_a_block() -> None:
    bandwidth = healthy_matrix(3)
    bandwidth[:8, 12] *= 0.6
    bandwidth[16:, 12] *= 0.6
    (suspect,) = suspects(PairMatrix.from_dense(bandwidth, HOSTS))
    assert (suspect.side, suspect.peers) == ("block", ("h12",))
    assert set(suspect.hosts) == set(HOSTS) - set(HOSTS[8:16])


def test_uniform_matrices_have_no_suspects() -> None:
    for seed in range(20):
        assert suspects(PairMatrix.from_dense(healthy_matrix(seed, 0.05), HOSTS)) == []
