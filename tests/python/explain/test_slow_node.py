"""A node that is slower than its peers is named with the figures; a healthy cluster of any kind has no finding."""

from __future__ import annotations

import random

import pytest

from assay.explain import explain
from assay.explain.peers import is_slow
from assay.judge import integrity
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Subject, Summary

HOSTS = [f"n{k}" for k in range(1, 9)]
RATES = {"read": 12e9, "copy": 10e9, "triad": 11e9}  # B/s of one thread


def measured(host: str, name: str, metric: str, unit: str, value: float, numa: int | None = None, spread: float = 0.01,
             better: str = "higher", **params: object) -> Measurement:  # fmt: skip
    return Measurement(
        name=name, metric=metric, unit=unit, better=better, subject=Subject(host=host, numa=numa),  # type: ignore[arg-type]
        params=params, summary=Summary(n=9, median=value, mad=spread * value),  # type: ignore[arg-type]
    )  # fmt: skip


def cluster(
    hosts: list[str] = HOSTS,
    slow: dict[str, float] | None = None,
    spread: float = 0.01,
    lost: dict[str, float] | None = None,
    noise: float = 0.03,
) -> list[AnyRecord]:
    """Memory on two NUMA nodes and noise of each host. ``slow``: the share of the rates that a host reaches; ``noise``:
    the relative standard deviation between healthy hosts; ``spread``: that of the samples of a slow host."""
    chance = random.Random(1)
    records: list[AnyRecord] = []
    for host in hosts:
        records.append(Context(subject=Subject(host=host), facts={"cpu.model": "A"}))
        for operation, rate in RATES.items():
            for numa in (0, 1):
                value = rate * (slow or {}).get(host, 1.0) * chance.gauss(1, noise)
                own = spread if host in (slow or {}) else 0.01
                records.append(
                    measured(host, "node.memory", "bandwidth", "B/s", value, numa, own, operation=operation, threads=1,
                             line_reads="none" if chance.random() < 0.5 else "counted")
                )  # fmt: skip
        records.append(
            measured(host, "node.noise", "lost", "1", (lost or {}).get(host, 0.001), better="lower")
        )
    for number, record in enumerate(records, 1):
        record.id = number
    return records


def findings(records: list[AnyRecord]) -> list[Finding]:
    return [finding for finding in explain(records, HOSTS) if finding.rule == "slow_node"]


def test_one_of_eight_hosts_at_two_fifths_of_its_peers_memory_is_named_and_fails() -> None:
    records = cluster(slow={"n5": 0.4})
    (finding,) = findings(records)
    assert (finding.subject.host, finding.severity, finding.side) == ("n5", "fault", "node")
    assert "memory bandwidth is" in finding.cause and "GB/s" in finding.cause
    assert finding.effect == pytest.approx(-0.6, abs=0.1)
    assert len(finding.details) == 6 and len(finding.evidence) == 6 and "dmidecode" in finding.fix
    finding.id = 999
    (verdict,) = integrity([*records, finding], [])
    assert verdict.outcome == "FAIL" and "n5" in verdict.reason


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("count", [4, 8, 200])
def test_healthy_hosts_have_no_finding(noise: float, count: int) -> None:
    assert findings(cluster([f"n{k}" for k in range(count)], noise=noise)) == []


@pytest.mark.parametrize("peers", [3, 5, 7])
def test_few_peers_that_agree_by_chance_accuse_no_healthy_host(peers: int) -> None:
    """Hosts differ by 10 %. With the bound of many peers 1 % to 2 % of the comparisons would be false alarms."""
    chance = random.Random(1)
    rates = ([chance.gauss(1, 0.1) for _ in range(peers + 1)] for _ in range(4000))
    assert sum(is_slow(rate, 0.0, others) for rate, *others in rates) <= 8


def test_three_hosts_are_too_few_to_tell_who_is_slow() -> None:
    assert findings(cluster(HOSTS[:3], slow={"n2": 0.4})) == []
    assert len(findings(cluster(HOSTS[:4], slow={"n2": 0.4}))) == 1


def test_two_slow_hosts_do_not_hide_each_other() -> None:
    assert {finding.subject.host for finding in findings(cluster(slow={"n2": 0.4, "n7": 0.5}))} == {
        "n2",
        "n7",
    }


def test_a_slow_figure_with_scattered_samples_is_no_slow_node() -> None:
    assert findings(cluster(slow={"n5": 0.6}, spread=0.3)) == []


def test_other_programs_on_the_host_explain_it_so_it_is_a_warning() -> None:
    (finding,) = findings(cluster(slow={"n5": 0.4}, lost={"n5": 0.6}))
    assert finding.severity == "warning" and "other programs took 60 % of its cores" in finding.cause


def test_a_host_that_loses_its_cores_alone_is_a_warning() -> None:
    (finding,) = findings(cluster(lost={"n5": 0.3}))
    assert (finding.subject.host, finding.severity) == (
        "n5",
        "warning",
    ) and "30 % of its cores" in finding.cause
    assert findings(cluster(lost=dict.fromkeys(HOSTS, 0.3))) == []


def test_hosts_of_another_processor_are_no_peers() -> None:
    records = cluster(slow={"n1": 0.4, "n2": 0.4})
    for record in records:
        if isinstance(record, Context) and record.subject.host in ("n1", "n2"):
            record.facts["cpu.model"] = "B"
    assert findings(records) == []


def test_one_slow_numa_node_is_named() -> None:
    records = cluster()
    for record in records:
        if (
            isinstance(record, Measurement)
            and record.subject == Subject(host="n3", numa=1)
            and record.summary
        ):
            record.summary = Summary(n=9, median=0.5 * record.median)
    (finding,) = findings(records)
    assert finding.subject == Subject(host="n3", numa=1)


def test_storage_and_gpu_copies_are_compared_too() -> None:
    records: list[AnyRecord] = []
    for host in HOSTS:
        disk, gpu = (0.5e9, 10e9) if host == "n4" else (2e9, 25e9)
        records += [
            measured(host, "storage.device", "bandwidth", "B/s", disk, op="read", transfer=2**20),
            measured(host, "node.gpu_copy", "total", "B/s", gpu, direction="h2d"),
        ]
    found = findings(records)
    assert [finding.subject.host for finding in found] == ["n4", "n4"]
    assert "GPU copies" in found[0].cause and "storage" in found[1].cause
