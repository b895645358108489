"""Findings about speed on planted clusters: exactly the planted fault is found."""

from collections import Counter

import numpy as np
import pytest
from planted import TwoCabinets

from assay.explain import explain, plan_retest, suspects
from assay.explain.matrix import PairMatrix
from assay.records.schema import AnyRecord, Finding, Measurement, Pairs, Scalar, Subject, Summary

pytestmark = pytest.mark.slow


def findings_of_run(lab: TwoCabinets) -> list[Finding]:
    """The findings of a simulated run: a measurement, the retest of its suspects, and their explanation."""
    rows = lab.rows()
    matrix = PairMatrix.of_bandwidth(rows, lab.hosts)
    return explain(rows + lab.retest(plan_retest(suspects(matrix), matrix)), lab.hosts)


def kinds(findings: list[Finding]) -> set[tuple[str, str, str | None]]:
    return {(finding.rule, finding.side, finding.subject.host) for finding in findings}


@pytest.mark.parametrize(
    "cluster",
    [
        {},
        {"noise": 0.25, "noise_alone": 0.1},
        {"uplink": 1.5},
        {"count": 16, "uplink": 5.0},
        {"count": 4},
        {"count": 2},
    ],
    ids=str,
)
def test_a_healthy_oversubscribed_cluster_has_no_finding(cluster: dict[str, float]) -> None:
    for seed in range(200):
        assert findings_of_run(TwoCabinets(seed, **cluster)) == [], f"seed {seed}"  # type: ignore[arg-type]


@pytest.mark.parametrize(("end", "side"), [("transmit", "transmit"), ("receive", "receive")])
def test_a_host_at_half_its_rate_on_one_side_is_always_found(end: str, side: str) -> None:
    for seed in range(100):
        findings = findings_of_run(TwoCabinets(seed, **{end: {seed % 8: 0.5}}))  # type: ignore[arg-type]
        assert kinds(findings) == {("slow_host", side, f"h{seed % 8}")}, f"seed {seed}"


def test_a_host_at_80_percent_is_usually_found() -> None:
    counts: Counter[tuple[str, str, str | None]] = Counter()
    for seed in range(100):
        counts.update(kinds(findings_of_run(TwoCabinets(seed, transmit={3: 0.8}))))
    assert counts["slow_host", "transmit", "h3"] >= 70
    assert sum(count for (_, _, host), count in counts.items() if host != "h3") == 0


def test_a_host_that_is_slow_on_both_sides_is_one_finding() -> None:
    (finding,) = findings_of_run(TwoCabinets(4, transmit={2: 0.5}, receive={2: 0.4}))
    assert (finding.side, finding.subject) == ("both", Subject(host="h2"))
    assert finding.effect == pytest.approx(-0.6, abs=0.1)


def test_two_slow_hosts_are_two_findings() -> None:
    findings = findings_of_run(TwoCabinets(1, transmit={1: 0.5, 6: 0.6}))
    assert kinds(findings) == {("slow_host", "transmit", "h1"), ("slow_host", "transmit", "h6")}


def test_a_slow_path_between_two_hosts_is_a_pair() -> None:
    (finding,) = findings_of_run(TwoCabinets(2, pairs={(1, 6): 0.3}))
    assert (finding.rule, finding.subject, finding.severity) == ("slow_pair", Subject("h1", "h6"), "fault")


def test_a_slow_uplink_is_a_block() -> None:
    (finding,) = findings_of_run(TwoCabinets(2, cabinet_pairs={(0, 1): 0.5}))
    assert (finding.rule, finding.side, finding.severity) == ("slow_block", "block", "fault")
    assert "from h[0-3] to h[4-7]" in finding.cause


def test_of_two_hosts_the_pair_is_named_and_the_reason_given() -> None:
    for seed in range(40):
        (finding,) = findings_of_run(TwoCabinets(seed, count=2, noise_alone=0.02, transmit={1: 0.5}))
        assert (finding.rule, finding.subject) == ("slow_pair", Subject("h1", "h0"))
        assert any("too few hosts" in line for line in finding.details)


def test_a_finding_has_cause_effect_confidence_evidence_and_fix() -> None:
    (finding,) = findings_of_run(TwoCabinets(0, transmit={3: 0.5}))
    assert finding.rule == "slow_host" and finding.severity == "fault"
    assert finding.cause.startswith("h3 sends at ") and finding.cause.endswith(" of its peers' rate")
    assert finding.effect == pytest.approx(-0.5, abs=0.1)
    assert finding.confidence == 0.95
    assert 103 in finding.evidence and any(number >= 500 for number in finding.evidence)
    assert any(line.startswith("alone: ") and "over 7 pairs" in line for line in finding.details)
    assert "cable" in finding.fix and "h3" in finding.fix


def test_without_a_retest_the_confidence_is_lower() -> None:
    lab = TwoCabinets(0, transmit={3: 0.5})
    (finding,) = explain(lab.rows(), lab.hosts)
    assert (finding.subject.host, finding.side, finding.confidence) == ("h3", "transmit", 0.7)
    assert any("not retested" in line for line in finding.details)


def test_a_slowness_that_vanishes_alone_is_at_most_congestion() -> None:
    large, small = (
        TwoCabinets(0, transmit={3: 0.4}, noise=0.05),
        TwoCabinets(0, transmit={3: 0.8}, noise=0.05),
    )
    for lab, expected in ((large, {("congestion", "transmit", "h3")}), (small, set())):
        rows = lab.rows()
        matrix = PairMatrix.of_bandwidth(rows, lab.hosts)
        plan = plan_retest(suspects(matrix), matrix)
        assert plan
        # The retest finds a healthy cluster.
        findings = explain(rows + TwoCabinets(9).retest(plan), lab.hosts)
        assert kinds(findings) == expected
        assert all(finding.severity == "warning" for finding in findings)


def test_servers_that_share_their_clients_unevenly_are_no_finding() -> None:
    def row(host: str, values: dict[str, float]) -> Pairs:
        params: dict[str, Scalar] = {"op": "put", "size": 1 << 20}
        return Pairs(
            name="network.client_server",
            metric="bandwidth",
            unit="B/s",
            subject=Subject(host=host),
            params=params,
            peers=list(values),
            values=list(values.values()),
        )

    rows: list[AnyRecord] = [row(f"c{i}", {"s0": 3e6, "s1": 9e6}) for i in range(6)]
    matrix = PairMatrix.of_bandwidth(rows)
    plan = plan_retest(suspects(matrix), matrix)
    assert any(target == "s0" for _, target in plan)
    alone: list[AnyRecord] = [
        Measurement(
            name="network.pairs",
            metric="bandwidth",
            unit="B/s",
            subject=Subject(host=source, peer=target),
            summary=Summary(n=3, median=12e6),
        )
        for source, target in plan
    ]
    assert explain(rows + alone) == []


def test_a_slow_adapter_of_a_server_is_named() -> None:
    """A server has a rank for each adapter: s1:1 is the one on the second. Clients c0 to c4."""

    def rows(name: str, op: str, slow: float, noise: float) -> list[AnyRecord]:
        rng = np.random.default_rng(6)
        ranks = [f"s{i}:{n}" for i in range(3) for n in range(2)]
        return [
            Pairs(
                name=name, metric="bandwidth", unit="B/s", subject=Subject(host=rank),
                params={"op": op, "size": 1 << 20}, peers=[f"c{i}" for i in range(5)],
                values=(rng.normal(1e9, noise * 1e9, 5) * (slow if rank == "s1:1" else 1)).tolist(),
            )
            for rank in ranks
        ]  # fmt: skip

    options = {"servers": ["s[0-2]"], "servers_hcas": ["eth2", "eth3"]}
    found = explain(rows("network.client_server", "send", 0.5, 0.01), options=options)
    (finding,) = [finding for finding in found if finding.rule == "slow_host"]
    assert (finding.subject.host, finding.subject.device, finding.side) == ("s1", "eth3", "transmit")
    assert finding.cause.startswith("eth3 of s1 sends at 5")


def counter(host: str, name: str, value: float) -> Measurement:
    subject = Subject(host=host, device="mlx5_0")
    return Measurement(
        id=900,
        name="network.counters",
        metric=name,
        unit="1",
        subject=subject,
        summary=Summary(n=1, median=value),
    )


def test_port_errors_of_the_same_host_raise_the_confidence() -> None:
    lab = TwoCabinets(0, transmit={3: 0.5})
    rows: list[AnyRecord] = lab.rows()
    errors = [
        counter("h3", "symbol_error", 41),
        counter("h5", "port_xmit_wait", 9),
        counter("h3", "link_downed", 0),
    ]
    without_errors = explain(rows, lab.hosts)[0]
    with_errors = explain(rows + errors, lab.hosts)[0]
    assert with_errors.rule == without_errors.rule == "slow_host"
    assert (
        with_errors.confidence is not None
        and without_errors.confidence is not None
        and with_errors.confidence > without_errors.confidence
    )
    assert "mlx5_0 symbol_error grew by 41" in with_errors.details and 900 in with_errors.evidence
    assert not [line for line in with_errors.details if "link_downed" in line or "xmit_wait" in line]
