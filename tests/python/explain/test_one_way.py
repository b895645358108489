"""A slow side that is hidden while both directions carry traffic is found by one-way measurements. Every verdict of no
fault states its power: the share of its peers' rate at which a slow side would have been found."""

from __future__ import annotations

import numpy as np
import pytest
from planted import TwoCabinets

from assay.explain import Evidence, all_suspects, explain, plan_retest, state_power
from assay.explain.culprit import one_way_suspects
from assay.explain.matrix import ONE_WAY, PairMatrix
from assay.explain.power import describe_power, detectable_share
from assay.records.schema import AnyRecord, Finding, Pairs, Subject, Verdict

pytestmark = pytest.mark.slow

# The rate of a faulty side, relative to a healthy one. Both directions together reach 1.6, i.e. 0.8 each, so the sweep
# cannot show the fault.
HIDDEN = 0.8


def one_way_rows(cluster: TwoCabinets, noise: float) -> list[AnyRecord]:
    """Each host with its neighbours in a ring, nothing in the other direction."""
    rows: list[AnyRecord] = []
    for i, host in enumerate(cluster.hosts):
        peers = sorted({(i + d) % cluster.count for d in (1, 2, -1, -2)} - {i})
        values = [cluster.uncontended_rate(i, j) * float(np.exp(cluster.rng.normal(0, noise))) for j in peers]
        row = Pairs(
            id=300 + i, name=ONE_WAY, metric="bandwidth", unit="B/s", subject=Subject(host=host),
            params={"op": "send", "size": 1 << 20}, peers=[cluster.hosts[j] for j in peers], values=values,
        )  # fmt: skip
        rows.append(row)
    return rows


def simulate_run(
    seed: int,
    transmit: dict[int, float],
    receive: dict[int, float],
    with_one_way: bool = True,
    noise: float = 0.02,
) -> tuple[list[Finding], Evidence]:
    """The findings of a simulated run. Its all-to-all sweep is healthy, since the limit on both directions hides the
    fault. Its one-way measurement and the retest of its suspects see the fault."""
    loaded = TwoCabinets(seed, noise=0.05)  # in the all-to-all sweep
    alone = TwoCabinets(seed, transmit=transmit, receive=receive, noise_alone=noise)
    rows = loaded.rows() + (one_way_rows(alone, noise) if with_one_way else [])
    matrix, one_way = PairMatrix.of_bandwidth(rows, alone.hosts), PairMatrix.of_one_way(rows, alone.hosts)
    rows += alone.retest(plan_retest(all_suspects(matrix, one_way), matrix))
    return explain(rows, alone.hosts), Evidence(rows, alone.hosts)


def test_a_pair_that_the_sweep_hides_is_suspected_one_way() -> None:
    rows = one_way_rows(TwoCabinets(5, pairs={(2, 3): 0.7}), 0.01)
    (suspect,) = one_way_suspects(PairMatrix.of_one_way(rows, TwoCabinets(5).hosts))
    assert (suspect.side, suspect.hosts, suspect.peers, suspect.one_way) == ("pair", ("h2",), ("h3",), True)


@pytest.mark.parametrize("side", ["transmit", "receive"])
def test_a_side_hidden_by_a_limit_on_both_directions_is_found(side: str) -> None:
    for seed in range(50):
        faults = {seed % 8: HIDDEN}
        found, _ = simulate_run(
            seed, faults if side == "transmit" else {}, faults if side == "receive" else {}
        )
        assert [(f.rule, f.side, f.subject.host) for f in found] == [("slow_host", side, f"h{seed % 8}")]
        assert found[0].effect == pytest.approx(HIDDEN - 1, abs=0.05)


def test_without_one_way_the_fault_is_hidden_and_the_power_says_so() -> None:
    found, evidence = simulate_run(1, {3: HIDDEN}, {}, with_one_way=False)
    assert found == []
    assert "were not measured one at a time" in describe_power(evidence)


def test_with_time_for_one_retest_the_one_way_suspect_is_chosen() -> None:
    """The all-to-all sweep has another suspect."""
    loaded = TwoCabinets(2, transmit={6: 0.7}, noise=0.02)
    alone = TwoCabinets(2, receive={3: HIDDEN})
    rows = loaded.rows() + one_way_rows(alone, 0.02)
    matrix, one_way = PairMatrix.of_bandwidth(rows, alone.hosts), PairMatrix.of_one_way(rows, alone.hosts)
    suspected = all_suspects(matrix, one_way)
    assert {suspect.hosts[0] for suspect in suspected} == {"h3", "h6"}
    planned = plan_retest(suspected, matrix, 1)
    assert [target for _, target in planned].count("h3") >= 4
    assert not [pair for pair in planned if pair[0] == "h6"]


def test_a_side_at_90_percent_is_found_if_noise_is_low() -> None:
    found = [simulate_run(seed, {3: 0.9}, {}, noise=0.005)[0] for seed in range(40)]
    assert sum(bool(findings) for findings in found) >= 36
    assert {f.subject.host for findings in found for f in findings} == {"h3"}


def test_a_healthy_cluster_has_no_finding() -> None:
    for seed in range(100):
        for noise in (0.005, 0.02, 0.1):
            assert simulate_run(seed, {}, {}, noise=noise)[0] == [], (seed, noise)


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.06])
def test_faults_of_the_stated_share_are_found(noise: float) -> None:
    """A side at the stated share of its peers' rate is found in nearly all runs with the noise of the healthy run
    that stated it."""
    found = runs = 0
    for seed in range(60):
        _, healthy = simulate_run(1000 + seed, {}, {}, noise=noise)
        stated = detectable_share(healthy.one_way, one_way=True)
        assert 0.3 < stated < 0.95
        findings, _ = simulate_run(seed, {5: stated}, {}, noise=noise)
        found, runs = found + any(f.subject.host == "h5" for f in findings), runs + 1
    assert found >= 0.85 * runs


def test_every_verdict_of_no_fault_states_the_power() -> None:
    _, evidence = simulate_run(1, {}, {})
    passed = Verdict(criterion="no fault was found", outcome="PASS", observed=0.0, unit="1")
    failed = Verdict(criterion="no fault was found", outcome="FAIL", observed=1.0, unit="1", reason="h3")
    other = Verdict(criterion="fast", outcome="PASS", metric="network.wire/share", observed=0.0, unit="1")
    state_power([passed, failed, other], evidence)
    assert "of its peers' rate would have been found" in passed.reason
    assert (failed.reason, other.reason) == ("h3", "")


def test_the_power_of_two_hosts_and_of_no_pairs() -> None:
    two = TwoCabinets(1, count=2)
    assert "only pairs are compared" in describe_power(Evidence(two.rows(), two.hosts))
    assert describe_power(Evidence([])) == ""
