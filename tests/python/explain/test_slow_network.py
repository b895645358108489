"""A network that is slow as a whole: planted rates below and within the interval that follows from the links."""

from __future__ import annotations

import numpy as np
import pytest
from planted_machine import GBIT

from assay.explain import Evidence, explain, state_power
from assay.explain.expected import expected_figures
from assay.records.schema import (
    AnyRecord,
    Context,
    Finding,
    Measurement,
    Pairs,
    Scalar,
    Subject,
    Summary,
    Verdict,
)

HOSTS = [f"n{i}" for i in range(8)]
SIZE = 1 << 20
TCP = (1500 - 52) / (1500 + 38)  # payload of a full frame


def cluster(
    reached: float, speed: float = 10 * GBIT, rate_of_n3: float | None = None, noise: float = 0.02, seed: int = 1,
    **facts: Scalar,
) -> list[AnyRecord]:  # fmt: skip
    """Records of hosts whose traffic used eth0, a link of ``speed`` B/s. Each pair reaches ``reached`` B/s, the pairs
    of n3 ``rate_of_n3``. ``noise``: the standard deviation of the logarithm."""
    rng = np.random.default_rng(seed)
    records: list[AnyRecord] = []
    for i, host in enumerate(HOSTS):
        link: dict[str, Scalar] = {"interface.kind": "physical", "interface.link_layer": "Ethernet",
                "interface.state": "up", "interface.speed": speed, "interface.mtu": 1500}  # fmt: skip
        records.append(Context(subject=Subject(host=host, device="eth0"), facts=link | facts))
        records.append(
            Measurement(
                id=200 + i, name="network.counters", metric="tx_bytes", unit="B",
                subject=Subject(host=host, device="eth0"), summary=Summary(n=1, median=1e9),
            )
        )  # fmt: skip
        peers = [peer for peer in HOSTS if peer != host]
        rates = [
            (rate_of_n3 if rate_of_n3 is not None and "n3" in (host, peer) else reached)
            * np.exp(rng.normal(0, noise))
            for peer in peers
        ]
        for name in ("network.all_to_all", "network.one_way"):
            row = Pairs(
                id=100 + i, name=name, metric="bandwidth", unit="B/s", better="higher",
                subject=Subject(host=host), params={"op": "send", "size": SIZE}, peers=peers, values=rates,
            )  # fmt: skip
            records.append(row)
    return records


def findings_of_rule(records: list[AnyRecord], rule: str = "slow_network") -> list[Finding]:
    return [finding for finding in explain(records, HOSTS) if finding.rule == rule]


@pytest.mark.parametrize(
    ("share", "severity"), [(0.1, "fault"), (0.3, "fault"), (0.5, "warning"), (0.7, "warning")]
)
def test_equally_slow_hosts_are_found_without_a_specification(share: float, severity: str) -> None:
    """Every pair reaches the same share of a link of 10 Gbit/s, so comparing hosts finds nothing."""
    (finding,) = findings_of_rule(cluster(share * 10 * GBIT * TCP))
    assert finding.severity == severity
    assert finding.cause.startswith("all 8 hosts are slower than their links")
    assert finding.effect == pytest.approx(share / 0.8 - 1, abs=0.06)
    assert any("(1500 - 52) / (1500 + 38)" in step for step in finding.details)
    assert "n[0-7]" in finding.details[0] and finding.evidence
    assert not findings_of_rule(cluster(share * 10 * GBIT * TCP), "slow_host")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("share", [0.85, 0.95])
def test_a_healthy_network_has_no_finding(share: float, seed: int) -> None:
    records = cluster(share * 10 * GBIT * TCP, seed=seed)
    assert explain(records, HOSTS) == []


def test_a_single_slow_host_is_left_to_the_rule_of_hosts() -> None:
    records = cluster(0.95 * 10 * GBIT * TCP, rate_of_n3=0.3 * 10 * GBIT * TCP)
    assert findings_of_rule(records) == []
    assert {f.subject.host for f in explain(records, HOSTS)} == {"n3"}


def test_one_tcp_stream_is_not_expected_to_fill_a_fast_link() -> None:
    """A core limits a TCP stream, so 12 Gbit/s on a link of 100 Gbit/s are not a fault, but 1 Gbit/s is."""
    assert findings_of_rule(cluster(12 * GBIT, speed=100 * GBIT)) == []
    assert [f.severity for f in findings_of_rule(cluster(0.94 * GBIT, speed=100 * GBIT))] == ["fault"]


def test_the_interval_of_an_rdma_port_follows_from_its_rate() -> None:
    """The traffic uses the port of an HDR adapter. 16 Gbit/s, as of MPI over TCP, are a fault."""
    port: dict[str, Scalar] = {"rdma.state": "ACTIVE", "rdma.rate": 200 * GBIT, "rdma.link": "4X HDR",
            "rdma.link_layer": "InfiniBand", "device.pci": "0000:02:00.0"}  # fmt: skip

    def over_rdma(reached: float) -> list[AnyRecord]:
        records = cluster(reached, speed=GBIT)
        for record in records:
            if isinstance(record, Measurement):
                record.subject, record.metric = (
                    Subject(host=record.subject.host, device="mlx5_0:1"),
                    "port_xmit_data",
                )
        contexts = [
            Context(subject=Subject(host=host, device="mlx5_0:1"), facts=dict(port)) for host in HOSTS
        ]
        return [*records, *contexts]

    assert findings_of_rule(over_rdma(190 * GBIT)) == []
    (finding,) = findings_of_rule(over_rdma(16 * GBIT))
    assert finding.severity == "fault" and finding.subject.device == "mlx5_0:1"


def test_the_interval_of_a_lab_follows_from_its_planted_rate() -> None:
    """The lab's virtual links claim 10 Gbit/s. Its planted rate is 100 Mbit/s."""
    planted: dict[str, Scalar] = {"interface.kind": "virtual", "lab.rate": 0.1 * GBIT}
    assert findings_of_rule(cluster(0.095 * GBIT, **planted)) == []
    assert (
        findings_of_rule(cluster(0.062 * GBIT, **planted)) == []
    )  # the hosts of a lab share processors, so the interval is wider
    assert [f.severity for f in findings_of_rule(cluster(0.025 * GBIT, **planted))] == ["fault"]
    assert [f.severity for f in findings_of_rule(cluster(0.05 * GBIT, **planted))] == ["warning"]


@pytest.mark.parametrize(
    "facts", [{"interface.speed": 0}, {"interface.kind": "virtual"}, {"machine.virtual": "emulated"}]
)
def test_unknown_link_rates_have_no_interval_and_the_verdict_says_so(facts: dict[str, Scalar]) -> None:
    records = cluster(0.1 * GBIT, **facts)
    assert findings_of_rule(records) == []
    passed = Verdict(criterion="no fault was found", outcome="PASS", observed=0.0, unit="1")
    state_power([passed], Evidence(records, HOSTS))
    assert "no link tells its rate, so a network that is slow as a whole would not show" in passed.reason


def test_the_verdict_states_the_reached_and_the_expected_rate() -> None:
    passed = Verdict(criterion="no fault was found", outcome="PASS", observed=0.0, unit="1")
    state_power([passed], Evidence(cluster(9 * GBIT, noise=0), HOSTS))
    assert "every host reaches at least 9.00 Gbit/s" in passed.reason
    assert "7.53 Gbit/s are expected of eth0" in passed.reason


def test_each_port_has_an_interval_for_mpi_traffic() -> None:
    (figure,) = [f for f in expected_figures(cluster(GBIT)) if (f.host, f.name) == ("n0", "network.one_way")]
    assert figure.high == pytest.approx(10 * GBIT * TCP)
    assert figure.low == pytest.approx(0.8 * figure.high)
    assert len(figure.steps) == 2
