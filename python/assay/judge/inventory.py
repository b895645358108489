"""The inventory of a specification: what each offered host has to have, and the verdicts on it.

A device that is missing or not in order fails. Every verdict names the devices that are there instead, with their
state and the expected one. A GPU counts when copies to and from it were measured: a GPU on the bus that the driver
cannot use, or that CUDA_VISIBLE_DEVICES hides, is of no use to an application.
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
ROUNDING = 1e-3  # a link of 126.03 Gbit/s is written as 126 Gbit/s, and 125.9 passes for it


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
    """What a specification expects of each host. None: nothing is said about it."""

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
    is_open: bool = False  # it could not be decided


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
            seen = [_exactly(records, name, fact, expected) for name in present]
            fix = "look at the firmware's settings, and at a cpuset that confines this process"
            verdicts.append(_verdict(title, fact, expected, "1", seen, missing, fix))
    if inventory.memory is not None:
        title = f"inventory: memory of {format_as(inventory.memory, inventory.memory_unit)}"
        seen = [_memory(records, name, inventory.memory) for name in present]
        fix = "look for modules that are missing, disabled or mirrored: dmidecode -t memory"
        verdict = _verdict(title, "memory.bytes", inventory.memory, "B", seen, missing, fix)
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
    seen: Sequence[_HostObservation],
    missing: Sequence[str],
    fix: str,
) -> Verdict:
    failed = [held for held in seen if not held.is_enough and not held.is_open]
    unclear = [held for held in seen if held.is_open]
    verdict = Verdict(criterion=title, outcome="PASS", metric=metric, unit=unit, required=float(required))
    decisive = [*failed, *unclear, *seen]
    if decisive:
        worst = decisive[0] if failed or unclear else min(seen, key=lambda held: held.observed)
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
    elif unclear or missing or not seen:
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


def _exactly(records: Sequence[AnyRecord], host: str, fact: str, expected: int) -> _HostObservation:
    value = _fact(records, host, fact)
    if value is None:
        return _HostObservation(host, 0, False, f"{host} has no {fact}", is_open=True)
    return _HostObservation(
        host, value, value == expected, "" if value == expected else f"{host} has {value:.0f}, not {expected}"
    )


def _memory(records: Sequence[AnyRecord], host: str, expected: float) -> _HostObservation:
    value = _fact(records, host, "memory.bytes")
    if value is None:
        return _HostObservation(host, 0, False, f"{host} has no memory.bytes", is_open=True)
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
    seen: dict[int, list[_HostObservation]] = {index: [] for index in range(len(lines))}
    for host in hosts:
        unassigned = _of_kind(inventory, kind, records, host)
        for index in sorted(range(len(lines)), key=lambda k: (-lines[k].rate, -lines[k].mtu)):
            line = lines[index]
            fitting = [device for device in unassigned if not _problem_of(line, device, records, host)][
                : line.count
            ]
            unassigned = [device for device in unassigned if device not in fitting]
            seen[index].append(_observe_devices(line, host, len(fitting), unassigned, records))
    return [
        _verdict(f"inventory: {line}", f"inventory.{kind}", line.count, "1", seen[index], missing, FIX[kind])
        for index, line in enumerate(lines)
    ]


Device = EthernetPort | RdmaPort | GpuDevice


def _of_kind(inventory: Inventory, kind: Kind, records: Sequence[AnyRecord], host: str) -> list[Device]:
    devices: list[Device]
    if kind == "gpus":
        devices = [gpu for gpu in gpus(records, host) if gpu.pci not in inventory.ignore]
    elif kind == "rdma_ports":
        devices = [port for port in rdma_ports(records, host) if port.device not in inventory.ignore]
    else:
        devices = [port for port in ethernet_ports(records, host) if port.device not in inventory.ignore]
    return devices


def _problem_of(line: DeviceLine, device: Device, records: Sequence[AnyRecord], host: str) -> str:
    """What a device is instead of what the line expects; "" if it is in order."""
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
        is_fit = device.is_active and device.rate >= line.rate
        is_fit = is_fit and line.link_layer in ("", device.link_layer)
    else:
        is_fit = device.is_up and device.speed >= line.rate and device.mtu >= line.mtu
        is_fit = is_fit and device.duplex != "half"
    return "" if is_fit else device.description()


def _observe_devices(
    line: DeviceLine, host: str, fitting: int, unassigned: Sequence[Device], records: Sequence[AnyRecord]
) -> _HostObservation:
    if fitting >= line.count:
        is_open = line.kind == "gpus" and not copies_were_measured(records, host)
        reason = f"{host}: copies to and from its GPUs were not measured" if is_open else ""
        return _HostObservation(host, fitting, not is_open, reason, is_open=is_open)
    complaints = [
        (device, text) for device in unassigned if (text := _problem_of(line, device, records, host))
    ]
    others = "; ".join(text for _, text in complaints) or "no other is there"
    hidden = visible_devices(records, host) if line.kind == "gpus" else ""
    if hidden:
        others += f"; CUDA_VISIBLE_DEVICES={hidden} hides GPUs"
    first = complaints[0][0] if complaints else None
    device = first.pci if isinstance(first, GpuDevice) else first.device if first else None
    return _HostObservation(host, fitting, False, f"{host} has {fitting} of {line.count}: {others}", device)
