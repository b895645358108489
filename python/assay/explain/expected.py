"""Expected figures: intervals that are derived from the facts of a machine, each with its derivation.

The upper bound is the negotiated rate, less line codes and packet headers as the standards give them. The lower bound
is the share of it that a healthy machine reaches. The rate is that of the port, or of the PCIe link of its adapter
where that is slower. For memory, the firmware reports the modules and their rate, and the kernel or the modules' names
give the channels. Virtual machines are left out: they describe modules that they do not have.

Sources: IEEE 802.3 (20 bytes of preamble and gap, 14 + 4 of header and checksum), RFC 768 and 791 (8 and 20),
RFC 9293 and 7323 (20 of TCP, 12 of time stamps), InfiniBand Architecture Specification 1 (8 + 12 + 4 + 2 a packet;
64b/66b from FDR on, 8b/10b before) and its annex on RoCE v2, PCI Express Base Specification (line codes; 24 bytes a
transaction of 256).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from assay.explain.evidence import Evidence
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Scalar
from assay.records.units import format_bit_rate, format_quantity, format_share

ETHERNET_FRAME = 20 + 14 + 4  # bytes besides an IP packet
UDP_IP = 8 + 20
TCP_IP = 20 + 12 + 20
INFINIBAND_PACKET = 8 + 12 + 4 + 2
ROCE_PACKET = ETHERNET_FRAME + UDP_IP + 12 + 4
PCIE_PAYLOAD = 256  # bytes of a transaction, the usual setting
PCIE_HEADER = 24
# Data bits per signalled bit, and signalled bits per nominal bit where /sys rounds: "56 Gb/sec (4X FDR)" is 56.25.
LINE_CODES = {"SDR": 0.8, "DDR": 0.8, "QDR": 0.8, "FDR": 56.25 / 56 * 64 / 66}
# The share of the upper bound that a healthy machine reaches, by measurement. The examples of the COBALT2 document
# reach 0.94 of FDR, and 0.82 of two PCIe 3 links after packet headers; a port with jumbo frames receives all UDP
# messages that are offered. MPI reaches less than a benchmark of the port, since it copies and registers memory.
HEALTHY_SHARE = {
    "node.udp_receive": 0.98,
    "node.rdma": 0.9,
    "node.gpu_copy": 0.75,
    "network.one_way": 0.8,
    "node.memory": 0.7,
}
HEALTHY_SHARE_IN_LAB = 0.6  # all hosts of a lab share the processors of one machine
# A rate that one TCP stream reaches on any server, B/s. Above it the core is the limit, not the link.
MAX_TCP_STREAM = 10e9 / 8
# Memory bandwidth that one core reaches on any server, B/s. With few cores the cores are the limit, not the channels.
MAX_CORE = 6e9
# Smaller copies do not reach the rate of the link: of an H100 behind PCIe 5 x16, 8 x 4 MiB in a row reach 0.80 of what
# 8 x 64 MiB do, 8 x 4 KiB 0.04, and 8 x 16 MiB 0.99 (measured).
MIN_GPU_COPY = 16 << 20  # bytes
FAULT_SHARE = 0.5  # of the lower bound; a figure below is a fault, since no load or setting costs this much


@dataclass(frozen=True)
class Expected:
    """The interval that a figure of one device should lie in, in B/s."""

    name: str  # the measurement whose "bandwidth" it is about
    host: str
    device: str  # as records name it; of a GPU its PCI address; "memory"
    low: float
    high: float
    steps: tuple[str, ...]  # the derivation, one step each

    def format_rate(self, rate: float) -> str:
        """``rate`` in the unit that is usual for the device."""
        return format_quantity(rate, "B/s") if self.name == "node.memory" else format_bit_rate(rate)


def expected_figures(records: Iterable[AnyRecord]) -> list[Expected]:
    """The intervals of every Ethernet port, RDMA port and GPU whose contexts say enough. Devices in software (SoftRoCE
    has no PCI address), and emulated machines, claim rates that they do not have."""
    by_device: dict[tuple[str, str], dict[str, Scalar]] = defaultdict(dict)
    for record in records:
        if isinstance(record, Context):
            if record.facts.get("machine.virtual") in ("emulated", "simulated"):
                return []
            by_device[record.subject.host or "", record.subject.device or ""].update(record.facts)
    figures = [_memory(host, facts) for (host, _), facts in by_device.items()]
    for (host, device), facts in list(by_device.items()):
        pci = by_device.get((host, str(facts.get("device.pci", ""))), {})
        if facts.get("lab.rate"):
            figures.append(_tcp(host, device, facts, _number(facts, "lab.rate"), {}, HEALTHY_SHARE_IN_LAB))
        elif facts.get("interface.kind") == "physical" and facts.get("interface.link_layer") == "Ethernet":
            figures.append(_ethernet(host, device, facts, pci))
            figures.append(_tcp(host, device, facts, _number(facts, "interface.speed"), pci))
        elif facts.get("rdma.state") == "ACTIVE" and "device.pci" in facts:
            figures += [_rdma(name, host, device, facts, pci) for name in ("node.rdma", "network.one_way")]
        elif facts.get("pcie.vendor") == "10de" and "pcie.width" in facts:
            figures.append(_gpu(host, device, facts))
    return [figure for figure in figures if figure]


def _interval(
    name: str,
    host: str,
    device: str,
    bounds: Sequence[tuple[float, str]],
    healthy_share: float | None = None,
    cap: float = math.inf,
    cap_reason: str = "",
    format_rate: Callable[[float], str] = format_bit_rate,
) -> Expected:
    """The interval below the least of several ``bounds`` (B/s, with their derivation). ``cap``: B/s; where the bounds
    are higher, the lower end is a share of this rate instead, for the reason ``cap_reason``."""
    high = min(bound for bound, _ in bounds)
    healthy_share = healthy_share or HEALTHY_SHARE[name]
    steps = [text for _, text in bounds]
    reference = "that" if len(bounds) == 1 else f"the least of these, {format_rate(high)}"
    if cap < high:
        reference = f"{format_rate(cap)}, {cap_reason}"
    steps.append(f"expected: at least {format_share(healthy_share)} of {reference}")
    return Expected(name, host, device, healthy_share * min(high, cap), high, tuple(steps))


def _ethernet(
    host: str, device: str, facts: Mapping[str, Scalar], pci: Mapping[str, Scalar]
) -> Expected | None:
    speed, mtu = _number(facts, "interface.speed"), _number(facts, "interface.mtu")
    if facts.get("interface.state") != "up" or not speed or mtu <= UDP_IP:
        return None
    share = (mtu - UDP_IP) / (mtu + ETHERNET_FRAME)
    text = (
        f"link {format_bit_rate(speed)} x ({mtu:.0f} - {UDP_IP}) / ({mtu:.0f} + {ETHERNET_FRAME}) "
        f"= {format_bit_rate(speed * share)} of UDP payload"
    )
    return _interval("node.udp_receive", host, device, [(speed * share, text), *_slot(pci, speed)])


def _tcp(
    host: str,
    device: str,
    facts: Mapping[str, Scalar],
    rate: float,
    pci: Mapping[str, Scalar],
    healthy_share: float = HEALTHY_SHARE["network.one_way"],
) -> Expected | None:
    """MPI over TCP, one pair in one direction. ``rate``: of the link, B/s."""
    mtu = _number(facts, "interface.mtu")
    if facts.get("interface.state") != "up" or not rate or mtu <= TCP_IP:
        return None
    share = (mtu - TCP_IP) / (mtu + ETHERNET_FRAME)
    text = (
        f"link {format_bit_rate(rate)} x ({mtu:.0f} - {TCP_IP}) / ({mtu:.0f} + {ETHERNET_FRAME}) "
        f"= {format_bit_rate(rate * share)} of payload by MPI over TCP"
    )
    bounds = [(rate * share, text), *_slot(pci, rate)]
    cap_reason = "which one stream reaches on any core"
    return _interval("network.one_way", host, device, bounds, healthy_share, MAX_TCP_STREAM, cap_reason)


def _memory(host: str, facts: Mapping[str, Scalar]) -> Expected | None:
    """The bandwidth of all cores to the memory of their own NUMA nodes. If the number of channels is unknown, two
    modules may share a channel."""
    modules, rate, width = (
        _number(facts, f"memory.{name}") for name in ("modules", "transfer_rate", "transfer_width")
    )
    if facts.get("machine.virtual") != "no" or not (modules and rate and width):
        return None

    def bytes_a_second(value: float) -> str:
        return format_quantity(value, "B/s")

    channels = _number(facts, "memory.channels")
    high = (channels or modules) * rate * width
    reference = (
        f"{channels:.0f} channels"
        if channels
        else f"{modules:.0f} modules, if each has a channel of its own,"
    )
    text = f"{reference} x {rate / 1e6:.0f} MT/s x {width:.0f} bytes = {bytes_a_second(high)}"
    cores, cores_text = _number(facts, "cpu.cores") * MAX_CORE, "which the cores reach on any machine"
    shared, shared_text = (high, "") if channels else (high / 2, "since two modules may share a channel")
    cap, cap_reason = (cores, cores_text) if 0 < cores < shared else (shared, shared_text)
    return _interval("node.memory", host, "memory", [(high, text)], None, cap, cap_reason, bytes_a_second)


def _rdma(
    name: str, host: str, device: str, facts: Mapping[str, Scalar], pci: Mapping[str, Scalar]
) -> Expected | None:
    rate = _number(facts, "rdma.rate")
    if not rate:
        return None
    generation = str(facts.get("rdma.link", "")).rpartition(" ")[2]
    ethernet = facts.get("rdma.link_layer") == "Ethernet"
    code = 1.0 if ethernet else LINE_CODES.get(generation, 1.0)
    mtu, header = (1024, ROCE_PACKET) if ethernet else (2048, INFINIBAND_PACKET)
    high = rate * code * mtu / (mtu + header)
    coded = f" x {code:.4g} (line code of {generation})" if code != 1 else ""
    text = f"link {format_bit_rate(rate)}{coded} x {mtu} / ({mtu} + {header}) = {format_bit_rate(high)} of payload"
    return _interval(name, host, device, [(high, text), *_pcie(pci)])


def _gpu(host: str, device: str, facts: Mapping[str, Scalar]) -> Expected | None:
    # An idle GPU lowers the speed of its link, so the best that device and slot support counts.
    fastest = min(
        _number(facts, "pcie.speed_max") or _number(facts, "pcie.speed"),
        _number(facts, "pcie.slot_speed_max") or float("inf"),
    )
    bounds = _pcie({**facts, "pcie.speed": fastest})
    return _interval("node.gpu_copy", host, device, bounds) if bounds else None


def _pcie(facts: Mapping[str, Scalar]) -> list[tuple[float, str]]:
    """The bound by a PCIe link in one direction; none if it is not known."""
    transfers, lanes = _number(facts, "pcie.speed"), _number(facts, "pcie.width")
    if not transfers or not lanes:
        return []
    code, code_name = (0.8, "8b/10b") if transfers <= 5e9 else (128 / 130, "128b/130b")
    high = transfers * lanes * code / 8 * PCIE_PAYLOAD / (PCIE_PAYLOAD + PCIE_HEADER)
    text = (
        f"PCIe {transfers / 1e9:g} GT/s x {lanes:.0f} lanes x {code:.4g} ({code_name}) x {PCIE_PAYLOAD} / "
        f"({PCIE_PAYLOAD} + {PCIE_HEADER}) = {format_bit_rate(high)}"
    )
    return [(high, text)]


def _slot(facts: Mapping[str, Scalar], port: float) -> list[tuple[float, str]]:
    """The bound by the PCIe link of an adapter whose port has so many B/s. An adapter within a chipset is on no such
    link: what it says it supports at most is less than its port has."""
    most = {"pcie.speed": facts.get("pcie.speed_max", 0), "pcie.width": facts.get("pcie.width_max", 0)}
    return [] if any(high < port for high, _ in _pcie(most)) else _pcie(facts)


def _number(facts: Mapping[str, Scalar], name: str) -> float:
    value = facts.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def below_expected(evidence: Evidence) -> list[Finding]:
    """Finds devices whose best figure lies below its interval: a warning, since limits belong into specifications,
    but a fault below half of the interval's lower end."""
    findings = []
    for expected in expected_figures(evidence.records):
        best = _best(evidence, expected)
        if best is None or best.median >= _required(best, expected):
            continue
        findings.append(
            Finding(
                rule="below_expected",
                cause=f"{expected.host} {expected.device}: {expected.format_rate(best.median)} is less than expected, "
                f"from {expected.format_rate(expected.low)} to {expected.format_rate(expected.high)}",
                subject=best.subject,
                side="node",
                severity="fault" if best.median < FAULT_SHARE * _required(best, expected) else "warning",
                effect=best.median / expected.low - 1,
                confidence=0.7,
                evidence=[best.id],
                details=list(expected.steps),
                fix="look at the load of the machine, its frequency governor (assay doctor) and NUMA placement, then "
                + (
                    "at which slots hold modules"
                    if expected.name == "node.memory"
                    else "at the link's counters"
                ),
            )
        )
    return findings


def _best(evidence: Evidence, expected: Expected) -> Measurement | None:
    """The best figure of the device among those measured under the conditions of its interval."""
    candidates = [
        record
        for record in evidence.measurements(expected.name, "bandwidth")
        if record.subject.host == expected.host and _is_comparable(record, expected)
    ]
    return max(candidates, key=lambda record: record.median, default=None)


def _required(record: Measurement, expected: Expected) -> float:
    """The least healthy figure, B/s: a UDP receiver cannot get more than its sender offers."""
    offered = _number(record.params, "offered")
    return min(expected.low, HEALTHY_SHARE[expected.name] * offered) if offered else expected.low


def _is_comparable(record: Measurement, expected: Expected) -> bool:
    params = record.params
    if expected.name == "node.memory":
        return _uses_all_memory(record)
    if expected.name == "node.gpu_copy":
        alone = params.get("gpus") == "one" and params.get("direction") in ("h2d", "d2h")
        is_large = _number(params, "size") >= MIN_GPU_COPY
        return alone and is_large and params.get("pci") == expected.device
    if record.subject.device != expected.device:
        return False
    if expected.name == "node.udp_receive":
        return params.get("stream") == "all"
    return _number(params, "size") >= 65536 and not params.get("bidirectional")


def _uses_all_memory(record: Measurement) -> bool:
    """Whether all cores used the memory of their own NUMA nodes, or the nearest. With a single node, its cores used its
    memory."""
    return (
        record.params.get("memory_node") in ("local", "nearest", record.subject.numa)
        and record.params.get("threads") != 1
    )
