"""The inventory of a specification: the hardware that each offered host must have, and the verdicts on it.

A device that is missing or not in order fails. Every verdict names the devices that are present instead, with their
state and the expected state. A GPU counts only if copies to and from it were measured: applications cannot use a GPU
that the driver cannot use, or that CUDA_VISIBLE_DEVICES hides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from assay.records.devices import (
    EthernetPort,
    GpuDevice,
    RdmaPort,
    copies_were_measured,
    ethernet_ports,
    gpus,
    names_in_records,
    rdma_ports,
    visible_devices,
)
from assay.records.schema import AnyRecord, Context, Subject, Verdict
from assay.records.units import format_as, format_quantity, format_size

Kind = Literal["gpus", "rdma_ports", "ethernet_ports"]
SINGULAR: dict[Kind, str] = {"gpus": "GPU", "rdma_ports": "RDMA port", "ethernet_ports": "Ethernet port"}
FIX: dict[Kind, str] = {
    "gpus": "compare nvidia-smi with lspci -d 10de:, and look at CUDA_VISIBLE_DEVICES",
    "rdma_ports": "look at {device} with ibstat: cable, switch port, subnet manager, width and speed of the link",
    "ethernet_ports": "look at {device} with ethtool and ip link: cable, transceiver, switch port, MTU",
}
ROUNDING = 1e-3  # tolerance for rounded rates: a link of 126.03 Gbit/s is specified as 126 Gbit/s


@dataclass(frozen=True)
class DeviceLine:
    """``count`` devices of a kind, each with at least this rate (of a GPU: of its PCIe link) and MTU."""

    kind: Kind
    count: int
    rate: float = 0.0  # B/s
    rate_unit: str = "Gbit/s"  # the unit of the rate in the specification
    link_layer: str = ""  # of RDMA ports; empty: any
    mtu: int = 0  # bytes, of Ethernet ports

    def __str__(self) -> str:
        text = f"{self.count} {SINGULAR[self.kind]}{'' if self.count == 1 else 's'}"
        state = {"gpus": "in use", "rdma_ports": "active", "ethernet_ports": "up"}[self.kind]
        rate = f" at {format_as(self.rate, self.rate_unit)}" if self.rate else ""
        if self.kind == "gpus":
            rate = f", PCIe links{rate}" if self.rate else ""
        parts = [f"{text} {state}{rate}", self.link_layer, self.mtu and f"MTU {format_size(self.mtu)}"]
        return ", ".join(str(part) for part in parts if part)


@dataclass(frozen=True)
class Inventory:
    """The hardware that a specification expects of each host. None: not specified."""

    sockets: int | None = None
    numa_nodes: int | None = None
    memory: float | None = None  # B, at least
    memory_unit: str = "GiB"
    devices: tuple[DeviceLine, ...] = ()
    ignore: tuple[str, ...] = ()  # devices that are neither counted nor tested

    def lines(self, kind: Kind) -> list[DeviceLine]:
        return [line for line in self.devices if line.kind == kind]


class _HostObservation(NamedTuple):
    """The devices of one host, compared with one line of the inventory."""

    host: str
    observed: float
    is_enough: bool
    reason: str = ""
    device: str | None = None
    is_undecided: bool = False  # records are missing


def judge_inventory(
    inventory: Inventory, records: Sequence[AnyRecord], hosts: Collection[str]
) -> list[Verdict]:
    """Returns one verdict for each line of the inventory, over all hosts of the run."""
    names = names_in_records(records, hosts or _hosts(records))
    missing = [host for host, name in names.items() if not name]
    present = [name for name in names.values() if name]
    verdicts = []
    for fact, expected, name_of_part in (
        ("cpu.packages", inventory.sockets, "socket"),
        ("numa.nodes", inventory.numa_nodes, "NUMA node"),
    ):
        if expected is not None:
            title = f"inventory: {expected} {name_of_part}{'' if expected == 1 else 's'}"
            observations = [_observe_count(records, name, fact, expected) for name in present]
            fix = "look at the firmware's settings, and at a cpuset that confines this process"
            verdicts.append(_verdict(title, fact, expected, "1", observations, missing, fix))
    if inventory.memory is not None:
        title = f"inventory: memory of {format_as(inventory.memory, inventory.memory_unit)}"
        observations = [_memory(records, name, inventory.memory) for name in present]
        fix = "look for modules that are missing, disabled or mirrored: dmidecode -t memory"
        verdict = _verdict(title, "memory.bytes", inventory.memory, "B", observations, missing, fix)
        verdict.required_text = format_as(inventory.memory, inventory.memory_unit)
        if verdict.observed is not None:
            verdict.observed_text = format_as(verdict.observed, inventory.memory_unit)
        verdicts.append(verdict)
    for kind in SINGULAR:
        verdicts += _devices(inventory, kind, records, present, missing)
    return verdicts


def _hosts(records: Sequence[AnyRecord]) -> list[str]:
    return [r.subject.host for r in records if isinstance(r, Context) and r.subject.host]


def _verdict(
    title: str,
    metric: str,
    required: float,
    unit: str,
    observations: Sequence[_HostObservation],
    missing: Sequence[str],
    fix: str,
) -> Verdict:
    failed = [
        observation
        for observation in observations
        if not observation.is_enough and not observation.is_undecided
    ]
    unclear = [observation for observation in observations if observation.is_undecided]
    verdict = Verdict(criterion=title, outcome="PASS", metric=metric, unit=unit, required=float(required))
    decisive = [*failed, *unclear, *observations]
    if decisive:
        worst = (
            decisive[0]
            if failed or unclear
            else min(observations, key=lambda observation: observation.observed)
        )
        verdict.observed = worst.observed
        verdict.subject = Subject(host=worst.host, device=worst.device)
        verdict.reason = worst.reason
        if unit == "1":
            verdict.observed_text, verdict.required_text = f"{worst.observed:.0f}", f"{required:.0f}"
        if len(failed) > 1:
            verdict.reason += f" (and {len(failed) - 1} more hosts)"
    if failed:
        verdict.outcome = "FAIL"
        verdict.fix = fix.format(device=failed[0].device or "the device")
    elif unclear or missing or not observations:
        verdict.outcome = "INCONCLUSIVE"
        if not unclear:
            verdict.reason = f"the settings of {', '.join(missing) or 'the hosts'} were not read"
    return verdict


def _fact(records: Sequence[AnyRecord], host: str, fact: str) -> float | None:
    for record in records:
        if isinstance(record, Context) and record.subject.host == host and record.subject.device is None:
            value = record.facts.get(fact)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
    return None


def _observe_count(records: Sequence[AnyRecord], host: str, fact: str, expected: int) -> _HostObservation:
    value = _fact(records, host, fact)
    if value is None:
        return _HostObservation(host, 0, False, f"{host} has no {fact}", is_undecided=True)
    return _HostObservation(
        host, value, value == expected, "" if value == expected else f"{host} has {value:.0f}, not {expected}"
    )


def _memory(records: Sequence[AnyRecord], host: str, expected: float) -> _HostObservation:
    value = _fact(records, host, "memory.bytes")
    if value is None:
        return _HostObservation(host, 0, False, f"{host} has no memory.bytes", is_undecided=True)
    return _HostObservation(host, value, value >= expected, "" if value >= expected else f"{host} has less")


def _devices(
    inventory: Inventory,
    kind: Kind,
    records: Sequence[AnyRecord],
    hosts: Sequence[str],
    missing: Sequence[str],
) -> list[Verdict]:
    """Judges the lines of one kind. A device counts for one line only, the most demanding first."""
    lines = inventory.lines(kind)
    observations: dict[int, list[_HostObservation]] = {index: [] for index in range(len(lines))}
    for host in hosts:
        unassigned = _devices_of_kind(inventory, kind, records, host)
        for index in sorted(range(len(lines)), key=lambda k: (-lines[k].rate, -lines[k].mtu)):
            line = lines[index]
            matching = [device for device in unassigned if not _problem_of(line, device, records, host)][
                : line.count
            ]
            unassigned = [device for device in unassigned if device not in matching]
            observations[index].append(_observe_devices(line, host, len(matching), unassigned, records))
    return [
        _verdict(
            f"inventory: {line}",
            f"inventory.{kind}",
            line.count,
            "1",
            observations[index],
            missing,
            FIX[kind],
        )
        for index, line in enumerate(lines)
    ]


Device = EthernetPort | RdmaPort | GpuDevice


def _devices_of_kind(
    inventory: Inventory, kind: Kind, records: Sequence[AnyRecord], host: str
) -> list[Device]:
    devices: list[Device]
    if kind == "gpus":
        devices = [gpu for gpu in gpus(records, host) if gpu.pci not in inventory.ignore]
    elif kind == "rdma_ports":
        devices = [port for port in rdma_ports(records, host) if port.device not in inventory.ignore]
    else:
        devices = [port for port in ethernet_ports(records, host) if port.device not in inventory.ignore]
    return devices


def _problem_of(line: DeviceLine, device: Device, records: Sequence[AnyRecord], host: str) -> str:
    """The state of a device that does not meet the line; "" if it meets the line."""
    if isinstance(device, GpuDevice):
        if not device.measured:
            return device.description() if copies_were_measured(records, host) else ""
        if line.rate and device.link < line.rate * (1 - ROUNDING):
            link = (
                f"has a PCIe link of {format_quantity(device.link, 'B/s')}"
                if device.link
                else "hides its link"
            )
            return f"{device.pci} {link}"
        return ""
    if isinstance(device, RdmaPort):
        is_match = device.is_active and device.rate >= line.rate
        is_match = is_match and line.link_layer in ("", device.link_layer)
    else:
        is_match = device.is_up and device.speed >= line.rate and device.mtu >= line.mtu
        is_match = is_match and device.duplex != "half"
    return "" if is_match else device.description()


def _observe_devices(
    line: DeviceLine, host: str, matching: int, unassigned: Sequence[Device], records: Sequence[AnyRecord]
) -> _HostObservation:
    if matching >= line.count:
        is_undecided = line.kind == "gpus" and not copies_were_measured(records, host)
        reason = f"{host}: copies to and from its GPUs were not measured" if is_undecided else ""
        return _HostObservation(host, matching, not is_undecided, reason, is_undecided=is_undecided)
    mismatches = [
        (device, text) for device in unassigned if (text := _problem_of(line, device, records, host))
    ]
    others = "; ".join(text for _, text in mismatches) or "no other is there"
    hidden = visible_devices(records, host) if line.kind == "gpus" else ""
    if hidden:
        others += f"; CUDA_VISIBLE_DEVICES={hidden} hides GPUs"
    first = mismatches[0][0] if mismatches else None
    device = first.pci if isinstance(first, GpuDevice) else first.device if first else None
    return _HostObservation(host, matching, False, f"{host} has {matching} of {line.count}: {others}", device)
