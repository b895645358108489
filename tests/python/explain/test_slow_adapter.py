"""An MPI that fell back to a slow adapter is found from planted facts and counters."""

from __future__ import annotations

import pytest

from assay.explain import explain
from assay.explain.adapters import adapters_of
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Scalar, Subject, Summary

GBIT = 1e9 / 8


def link(host: str, device: str, gbit: float, state: str = "up", kind: str = "physical") -> Context:
    facts: dict[str, Scalar] = {
        "interface.speed": gbit * GBIT,
        "interface.state": state,
        "interface.kind": kind,
    }
    if ":" in device:
        facts = {"rdma.rate": gbit * GBIT, "rdma.state": "ACTIVE" if state == "up" else "DOWN"}
    return Context(subject=Subject(host=host, device=device), facts=facts)


def sent(host: str, device: str, amount: float) -> Measurement:
    metric = "port_xmit_data" if ":" in device else "tx_bytes"
    return Measurement(
        name="network.counters", metric=metric, unit="B", subject=Subject(host=host, device=device),
        summary=Summary(n=1, median=amount),
    )  # fmt: skip


def slow_adapter_findings(*records: AnyRecord) -> list[Finding]:
    return [finding for finding in explain(records) if finding.rule == "slow_adapter"]


def test_a_cluster_that_fell_back_as_a_whole_is_one_fault() -> None:
    records: list[AnyRecord] = []
    for host in ("n1", "n2"):
        records += [
            link(host, "eth0", 1),
            link(host, "mlx5_0:1", 200),
            sent(host, "eth0", 9e9),
            sent(host, "mlx5_0:1", 1e5),
        ]
    (finding,) = slow_adapter_findings(*records)
    assert finding.cause == "n[1-2] used eth0 (1 Gbit/s) while mlx5_0:1 (200 Gbit/s) was up and idle"
    assert finding.severity == "fault" and finding.effect == pytest.approx(-0.995)
    assert finding.details[0] == "n1: eth0 sent 8.38 GiB, 100 % of its bytes"


def test_one_host_that_fell_back_is_named() -> None:
    (finding,) = slow_adapter_findings(
        link("n1", "eth0", 1), link("n1", "eth1", 25), sent("n1", "eth1", 9e9),
        link("n2", "eth0", 1), link("n2", "eth1", 25), sent("n2", "eth0", 9e9),
    )  # fmt: skip
    assert finding.subject == Subject(host="n2", device="eth0")


@pytest.mark.parametrize(
    "records",
    [
        (link("n1", "eth0", 1), link("n1", "mlx5_0:1", 200, "down"), sent("n1", "eth0", 9e9)),
        (link("n1", "eth0", 1), link("n1", "veth1", 200, kind="virtual"), sent("n1", "eth0", 9e9)),
        (link("n1", "eth0", 25), link("n1", "mlx5_0:1", 50), sent("n1", "eth0", 9e9)),
        (link("n1", "eth0", 1), link("n1", "mlx5_0:1", 200), sent("n1", "eth0", 1e9), sent("n1", "mlx5_0:1", 9e9)),
        (sent("n1", "eth0", 9e9), link("n1", "mlx5_0:1", 200)),  # the speed of eth0 is unknown
        (link("n1", "eth0", 1), link("n1", "mlx5_0:1", 200)),  # nothing was counted
    ],
)  # fmt: skip
def test_cases_that_are_no_fallback(records: tuple[AnyRecord, ...]) -> None:
    assert slow_adapter_findings(*records) == []


def test_the_bytes_of_each_adapter_are_added_up_over_the_parts_of_a_run() -> None:
    adapters = adapters_of([sent("n1", "eth0", 1.0), sent("n1", "eth0", 2.0), sent("n1", "eth1", 1.0)])
    assert adapters["n1"].main == "eth0" and adapters["n1"].share("eth0") == 0.75
