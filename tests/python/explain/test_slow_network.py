"""A network that is slow as a whole: planted rates below, within and above what the links let expect."""

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
    reached: float, speed: float = 10 * GBIT, of_one: float | None = None, noise: float = 0.02, seed: int = 1,
    **facts: Scalar,
) -> list[AnyRecord]:  # fmt: skip
    """Hosts whose bytes went over eth0, a link of ``speed``; each pair reaches ``reached`` B/s, those of n3
    ``of_one``."""
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
            (of_one if of_one is not None and "n3" in (host, peer) else reached)
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


def found(records: list[AnyRecord], rule: str = "slow_network") -> list[Finding]:
    return [finding for finding in explain(records, HOSTS) if finding.rule == rule]


@pytest.mark.parametrize(
    ("share", "severity"), [(0.1, "fault"), (0.3, "fault"), (0.5, "warning"), (0.7, "warning")]
)
def test_hosts_that_are_slow_alike_are_found_without_a_specification(share: float, severity: str) -> None:
    """A link of 10 Gbit/s of which every pair reaches the same share: no host stands out, and no rule compares."""
    (finding,) = found(cluster(share * 10 * GBIT * TCP))
    assert finding.severity == severity
    assert finding.cause.startswith("all 8 hosts are slower than their links")
    assert finding.effect == pytest.approx(share / 0.8 - 1, abs=0.06)
    assert any("(1500 - 52) / (1500 + 38)" in step for step in finding.details)
    assert "n[0-7]" in finding.details[0] and finding.evidence
    assert not found(cluster(share * 10 * GBIT * TCP), "slow_host")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("share", [0.85, 0.95])
def test_a_network_in_order_has_no_finding(share: float, seed: int) -> None:
    records = cluster(share * 10 * GBIT * TCP, seed=seed)
    assert explain(records, HOSTS) == []


def test_one_slow_host_is_the_matter_of_another_rule() -> None:
    records = cluster(0.95 * 10 * GBIT * TCP, of_one=0.3 * 10 * GBIT * TCP)
    assert found(records) == []
    assert {f.subject.host for f in explain(records, HOSTS)} == {"n3"}


def test_one_stream_of_tcp_need_not_fill_a_fast_link() -> None:
    """A core limits it: 100 Gbit/s by one stream are not expected, but a link that fell back to 1 Gbit/s shows."""
    assert found(cluster(12 * GBIT, speed=100 * GBIT)) == []
    assert [f.severity for f in found(cluster(0.94 * GBIT, speed=100 * GBIT))] == ["fault"]


def test_rdma_ports_let_expect_what_they_negotiated() -> None:
    """The bytes are on the port of an HDR adapter, where MPI over TCP reaches 2 GB/s."""
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

    assert found(over_rdma(190 * GBIT)) == []
    (finding,) = found(over_rdma(16 * GBIT))
    assert finding.severity == "fault" and finding.subject.device == "mlx5_0:1"


def test_a_lab_lets_expect_what_was_planted() -> None:
    """Its links are virtual and claim 10 Gbit/s; planted are 100 Mbit/s."""
    planted: dict[str, Scalar] = {"interface.kind": "virtual", "lab.rate": 0.1 * GBIT}
    assert found(cluster(0.095 * GBIT, **planted)) == []
    assert found(cluster(0.062 * GBIT, **planted)) == []  # its hosts share processors
    assert [f.severity for f in found(cluster(0.025 * GBIT, **planted))] == ["fault"]
    assert [f.severity for f in found(cluster(0.05 * GBIT, **planted))] == ["warning"]


@pytest.mark.parametrize(
    "facts", [{"interface.speed": 0}, {"interface.kind": "virtual"}, {"machine.virtual": "emulated"}]
)
def test_what_is_not_known_is_not_expected_and_the_verdict_says_so(facts: dict[str, Scalar]) -> None:
    records = cluster(0.1 * GBIT, **facts)
    assert found(records) == []
    passed = Verdict(criterion="no fault was found", outcome="PASS", observed=0.0, unit="1")
    state_power([passed], Evidence(records, HOSTS))
    assert "no link tells its rate, so a network that is slow as a whole would not show" in passed.reason


def test_the_verdict_says_what_was_reached_and_expected() -> None:
    passed = Verdict(criterion="no fault was found", outcome="PASS", observed=0.0, unit="1")
    state_power([passed], Evidence(cluster(9 * GBIT, noise=0), HOSTS))
    assert "every host reaches at least 9.00 Gbit/s" in passed.reason
    assert "7.53 Gbit/s are expected of eth0" in passed.reason


def test_each_port_has_an_interval_for_mpi() -> None:
    (figure,) = [f for f in expected_figures(cluster(GBIT)) if (f.host, f.name) == ("n0", "network.one_way")]
    assert figure.high == pytest.approx(10 * GBIT * TCP)
    assert figure.low == pytest.approx(0.8 * figure.high)
    assert len(figure.steps) == 2
