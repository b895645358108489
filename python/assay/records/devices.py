"""The devices of a host, read from the context records of a run: Ethernet ports, RDMA ports and GPUs.

``description()`` is a device as text ("mlx5_1:1 is DOWN (Polling)"), for verdicts and measurements alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from assay.records.schema import AnyRecord, Context, Measurement
from assay.records.units import format_bit_rate, format_size

NVIDIA = "10de"  # PCI vendor number
GPU_COPY = "node.gpu_copy"


@dataclass(frozen=True)
class EthernetPort:
    """A physical Ethernet port. Speeds in B/s; 0 if unknown."""

    device: str
    state: str
    speed: float
    fastest: float  # the highest speed that the adapter supports
    mtu: int
    duplex: str
    master: str  # the bond or bridge that it belongs to

    @property
    def is_up(self) -> bool:
        return self.state == "up"

    def description(self) -> str:
        parts = [f"is {self.state or 'in an unknown state'}"]
        if self.speed:
            parts.append(f"at {format_bit_rate(self.speed)}")
        if self.duplex == "half":
            parts.append("half duplex")
        text = f"{self.device} {' '.join(parts)}, MTU {format_size(self.mtu)}"
        return text + (f", part of {self.master}" if self.master else "")


@dataclass(frozen=True)
class RdmaPort:
    """A port of an RDMA adapter. ``rate`` in B/s; 0 if unknown."""

    device: str  # "mlx5_0:1"
    state: str
    physical_state: str
    rate: float
    link: str  # "4X EDR"
    link_layer: str

    @property
    def is_active(self) -> bool:
        return self.state == "ACTIVE"

    def description(self) -> str:
        state = self.state or "in an unknown state"
        if not self.is_active:
            return f"{self.device} is {state}" + (f" ({self.physical_state})" if self.physical_state else "")
        rate = f" at {format_bit_rate(self.rate)}" if self.rate else ""
        link = f" ({self.link})" if self.link else ""
        return f"{self.device} is {state}{rate}{link}, {self.link_layer or 'of an unknown link layer'}"


@dataclass(frozen=True)
class GpuDevice:
    """An NVIDIA GPU, on the PCI bus or seen by the driver."""

    pci: str
    on_bus: bool
    measured: bool  # copies to and from it were measured
    link: float  # B/s, the best that its PCIe link showed; 0 if unknown

    def description(self) -> str:
        return self.pci + ("" if self.measured else " was not measured")


def _contexts(records: Iterable[AnyRecord], host: str, fact: str) -> list[Context]:
    return [
        record
        for record in records
        if isinstance(record, Context) and record.subject.host == host and fact in record.facts
    ]


def ethernet_ports(records: Iterable[AnyRecord], host: str) -> list[EthernetPort]:
    """Physical ports whose link layer is Ethernet, without IP over InfiniBand and wireless adapters."""
    return [
        EthernetPort(
            device=context.subject.device or "",
            state=str(context.facts.get("interface.state", "")),
            speed=float(context.facts.get("interface.speed", 0)),
            fastest=float(context.facts.get("interface.speed_max", 0)),
            mtu=int(context.facts.get("interface.mtu", 0)),
            duplex=str(context.facts.get("interface.duplex", "")),
            master=str(context.facts.get("interface.master", "")),
        )
        for context in _contexts(records, host, "interface.kind")
        if context.facts["interface.kind"] == "physical"
        and context.facts.get("interface.link_layer", "Ethernet") == "Ethernet"
    ]


def rdma_ports(records: Iterable[AnyRecord], host: str) -> list[RdmaPort]:
    return [
        RdmaPort(
            device=context.subject.device or "",
            state=str(context.facts["rdma.state"]),
            physical_state=str(context.facts.get("rdma.physical_state", "")),
            rate=float(context.facts.get("rdma.rate", 0)),
            link=str(context.facts.get("rdma.link", "")),
            link_layer=str(context.facts.get("rdma.link_layer", "")),
        )
        for context in _contexts(records, host, "rdma.state")
    ]


def gpus(records: Iterable[AnyRecord], host: str) -> list[GpuDevice]:
    """GPUs on the PCI bus, and those that copied; sorted by address."""
    records = list(records)
    on_bus = {
        context.subject.device or ""
        for context in _contexts(records, host, "pcie.class")
        if context.facts.get("pcie.vendor") == NVIDIA
        and context.facts["pcie.class"] in ("display", "accelerator")
    }
    copied = [
        record
        for record in records
        if isinstance(record, Measurement)
        and record.name == GPU_COPY
        and record.subject.host == host
        and record.summary is not None
        and "pci" in record.params
    ]
    measured = {str(record.params["pci"]) for record in copied}
    links: dict[str, float] = {}
    for record in copied:
        if record.metric == "link" and record.status == "ok":
            pci = str(record.params["pci"])
            links[pci] = max(record.median, links.get(pci, 0.0))
    return [
        GpuDevice(pci, pci in on_bus, pci in measured, links.get(pci, 0.0))
        for pci in sorted(on_bus | measured)
    ]


def copies_were_measured(records: Iterable[AnyRecord], host: str) -> bool:
    """Whether the measurement of GPU copies was tried on the host, with whatever result."""
    return any(
        isinstance(record, Measurement) and record.name == GPU_COPY and record.subject.host == host
        for record in records
    )


def visible_devices(records: Iterable[AnyRecord], host: str) -> str:
    """CUDA_VISIBLE_DEVICES of the host's engine; "" where it is not set."""
    contexts = _contexts(records, host, "gpu.visible_devices")
    return str(contexts[-1].facts["gpu.visible_devices"]) if contexts else ""


def names_in_records(records: Iterable[AnyRecord], hosts: Iterable[str]) -> dict[str, str]:
    """The name that each of ``hosts`` has in the context records of its own engine; "" for one without a record.

    A user may write "n1.site.org" or an address where the host calls itself "n1". Names match if they are equal, then
    if their first labels are. If none match, names are assigned in order: the settings of the offered hosts are read
    before those of a peer that only sends to them.
    """
    unique_hosts = list(dict.fromkeys(hosts))
    reported = list(
        dict.fromkeys(
            record.subject.host for record in records if isinstance(record, Context) and record.subject.host
        )
    )
    names: dict[str, str] = {}
    for matches in (lambda host, name: host == name, lambda host, name: _label(host) == _label(name)):
        for host in unique_hosts:
            if host not in names:
                matching_name = next((name for name in reported if matches(host, name)), None)
                if matching_name is not None:
                    names[host] = matching_name
                    reported.remove(matching_name)
    if not names:
        return {
            host: reported[index] if index < len(reported) else "" for index, host in enumerate(unique_hosts)
        }
    return {host: names.get(host, "") for host in unique_hosts}


def _label(host: str) -> str:
    """The first label of a name; an address is whole."""
    return host if host.replace(".", "").isdigit() or ":" in host else host.partition(".")[0]
