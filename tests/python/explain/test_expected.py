"""Expected figures: their derivation from a machine's facts, and a warning if a measurement is below."""

from __future__ import annotations

from typing import Any

import pytest
from planted_machine import GBIT, HOST, Machine, sound_machine

from assay.explain import explain
from assay.explain.expected import Expected, expected_figures
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Scalar, Subject, Summary

PCI = "0000:03:00.0"


def contexts(machine: Machine) -> list[AnyRecord]:
    host: list[AnyRecord] = [Context(subject=Subject(host=HOST), facts=machine["host"])]
    return host + [
        Context(subject=Subject(host=HOST, device=device), facts=facts)
        for device, facts in machine["devices"].items()
    ]


def measured(name: str, device: str, value: float, **params: Scalar) -> Measurement:
    return Measurement(
        id=9, name=name, metric="bandwidth", unit="B/s", better="higher", params=params,
        subject=Subject(host=HOST, device=device), summary=Summary(n=3, median=value),
    )  # fmt: skip


def udp(value: float, offered: float = 9.018) -> Measurement:
    return measured("node.udp_receive", "eth2", value * GBIT, stream="all", offered=offered * GBIT)


def rdma(value: float, size: int = 65536) -> Measurement:
    return measured("node.rdma", "mlx4_0:1", value * GBIT, size=size, op="write", bidirectional=False)


def gpu(value: float, gpus: str = "one", size: int = 64 << 20) -> Measurement:
    return measured("node.gpu_copy", "gpu0", value * GBIT, direction="h2d", gpus=gpus, pci=PCI, size=size)


def expected_of(machine: Machine, device: str) -> Expected:
    """The expected figure of a device, other than that of MPI traffic."""
    (expected,) = [
        figure
        for figure in expected_figures(contexts(machine))
        if figure.device == device and figure.name != "network.one_way"
    ]
    return expected


def test_upper_bounds_follow_from_the_standards() -> None:
    machine = sound_machine()
    # 9000 bytes of MTU carry 8972 of payload in 9038 on the wire: the acceptance document of COBALT 2 says 9.9 Gbit/s.
    assert expected_of(machine, "eth2").high == pytest.approx(10 * GBIT * 8972 / 9038)
    # FDR: 14.0625 Gbit/s a lane, four lanes, 64b/66b. The document says 54.5 Gbit/s before packet headers.
    assert expected_of(machine, "mlx4_0:1").high == pytest.approx(4 * 14.0625e9 / 8 * 64 / 66 * 2048 / 2074)
    # PCIe 3 x16: the document says 252 Gbit/s for two GPUs, before the headers of transactions.
    assert expected_of(machine, PCI).high == pytest.approx(8e9 * 16 * 128 / 130 / 8 * 256 / 280)
    assert {f.device for f in expected_figures(contexts(machine))} == {
        "eth0", "eth2", "eth3", "mlx4_0:1", "mlx4_1:1", PCI, "0000:83:00.0",
    }  # fmt: skip
    assert all(f.low < f.high and len(f.steps) >= 2 for f in expected_figures(contexts(machine)))


def test_a_narrow_slot_of_an_adapter_is_the_bound() -> None:
    machine = sound_machine()
    machine["devices"]["0000:02:00.0"] = {"pcie.class": "network", "pcie.speed": 5e9, "pcie.width": 8}
    bound = expected_of(machine, "mlx4_0:1")
    assert bound.high == pytest.approx(5e9 * 8 * 0.8 / 8 * 256 / 280)
    assert any("PCIe 5 GT/s x 8 lanes x 0.8 (8b/10b)" in step for step in bound.steps)


@pytest.mark.parametrize(("most", "is_bound"), [(1, False), (8, True)])
def test_the_link_of_an_adapter_within_a_chipset_is_no_bound(most: int, is_bound: bool) -> None:
    """It says 2.5 GT/s x 1 at most, and carries the 10 Gbit/s of its port."""
    machine = sound_machine()
    machine["devices"]["eth2"] = {**machine["devices"]["eth2"], "device.pci": "0000:60:00.0"}
    machine["devices"]["0000:60:00.0"] = {
        "pcie.class": "network", "pcie.speed": 2.5e9, "pcie.width": 1, "pcie.speed_max": 2.5e9, "pcie.width_max": most
    }  # fmt: skip
    bound = expected_of(machine, "eth2")
    assert any("PCIe 2.5 GT/s x 1 lanes" in step for step in bound.steps) == is_bound
    assert (bound.high < 10 * GBIT / 2) == is_bound


def test_the_bound_of_qdr_includes_its_line_code() -> None:
    machine = sound_machine()
    machine["devices"]["mlx4_0:1"] |= {"rdma.rate": 40 * GBIT, "rdma.link": "4X QDR"}
    assert expected_of(machine, "mlx4_0:1").high == pytest.approx(32 * GBIT * 2048 / 2074)


@pytest.mark.parametrize(
    ("device", "facts"),
    [
        ("eth2", {"interface.state": "down"}),
        ("eth2", {"interface.speed": 0}),
        ("mlx4_0:1", {"rdma.state": "DOWN"}),
        ("mlx4_0:1", {"rdma.rate": 0}),
        (PCI, {"pcie.width": 0}),
    ],
)
def test_devices_without_a_known_rate_have_no_interval(device: str, facts: dict[str, Any]) -> None:
    machine = sound_machine()
    machine["devices"][device] |= facts
    assert device not in {figure.device for figure in expected_figures(contexts(machine))}


def test_software_devices_and_emulated_machines_have_no_interval() -> None:
    machine = sound_machine()
    del machine["devices"]["mlx4_0:1"]["device.pci"]
    assert "mlx4_0:1" not in {figure.device for figure in expected_figures(contexts(machine))}
    machine["host"]["machine.virtual"] = "emulated"
    assert expected_figures(contexts(machine)) == []


def warnings(*records: AnyRecord) -> list[Finding]:
    return [f for f in explain([*contexts(sound_machine()), *records]) if f.rule == "below_expected"]


@pytest.mark.parametrize(
    "record",
    [
        udp(9.01),
        rdma(51.04),
        gpu(94),
        rdma(30, size=512),
        gpu(40, gpus="all"),
        gpu(11, size=4096),
        gpu(90, size=4 << 20),
    ],
)
def test_figures_within_their_intervals_are_no_findings(record: Measurement) -> None:
    """Small messages, and GPUs that copy at the same time, have no interval."""
    assert warnings(record) == []


@pytest.mark.parametrize(("record", "name"), [(udp(8.5), "eth2"), (rdma(45), "mlx4_0:1"), (gpu(80), PCI)])
def test_a_figure_below_its_interval_is_a_warning_with_the_derivation(record: Measurement, name: str) -> None:
    (finding,) = warnings(record)
    assert (finding.severity, finding.evidence, name in finding.cause) == ("warning", [9], True)
    assert finding.effect is not None and finding.effect < 0
    assert any("Gbit/s" in step for step in finding.details)


def test_the_best_figure_of_a_device_is_compared() -> None:
    assert warnings(rdma(30), rdma(51)) == []


MODULES = {
    "machine.virtual": "no",
    "memory.modules": 12,
    "memory.transfer_rate": 2933e6,
    "memory.transfer_width": 8,
}


def expected_of_memory(**facts: Scalar) -> list[Expected]:
    host = {"cpu.cores": 32, **MODULES, **{name.replace("_", ".", 1): value for name, value in facts.items()}}
    return expected_figures([Context(subject=Subject(host=HOST), facts=host)])


def test_the_interval_of_memory_follows_from_its_channels() -> None:
    (figure,) = expected_of_memory(memory_channels=6)
    assert figure.high == 6 * 2933e6 * 8 and figure.low == pytest.approx(0.7 * figure.high)
    # The number of channels is unknown, and two modules may share a channel.
    (figure,) = expected_of_memory()
    assert figure.high == 12 * 2933e6 * 8 and figure.low == pytest.approx(0.35 * figure.high)
    # Two cores do not fill six channels.
    (figure,) = expected_of_memory(memory_channels=6, cpu_cores=2)
    assert figure.low == pytest.approx(0.7 * 12e9)
    assert expected_of_memory(machine_virtual="yes") == []


@pytest.mark.parametrize(("rate", "severity"), [(100e9, None), (60e9, "warning"), (40e9, "fault")])
def test_slow_memory_is_found_without_a_specification(rate: float, severity: str | None) -> None:
    """Six channels of 12 modules: 140.8 GB/s, so at least 98.5 GB/s."""
    all_cores, one_core = (
        Measurement(
            id=9, name="node.memory", metric="bandwidth", unit="B/s", better="higher", subject=Subject(host=HOST),
            params={"operation": "read", "threads": threads, "memory_node": node},
            summary=Summary(n=3, median=value),
        )
        for threads, node, value in ((32, "local", rate), (1, 0, 200e9))
    )  # fmt: skip
    host = Context(subject=Subject(host=HOST), facts={**MODULES, "cpu.cores": 32, "memory.channels": 6})
    found = [f for f in explain([host, all_cores, one_core]) if f.rule == "below_expected"]
    assert [f.severity for f in found] == ([severity] if severity else [])
