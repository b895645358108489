"""Finds hosts whose bytes went over a slow network adapter while a much faster one was idle.

An MPI that cannot open an InfiniBand or 100 Gbit/s adapter falls back to TCP over whatever interface it finds, and
every figure is then right for the wrong network. Bytes come from the ports' counters during the run, speeds are those
that the links negotiated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ClusterShell.NodeSet import NodeSet

from assay.explain.evidence import Evidence
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Subject
from assay.records.units import format_quantity, format_share

SENT = ("port_xmit_data", "tx_bytes")
# Ratio of the speeds of the idle adapter and the used one. Adapters of one network differ by less.
MUCH_FASTER = 4.0
IDLE = 0.05  # of the host's bytes; management traffic is less


@dataclass
class Adapters:
    """The adapters of a host."""

    sent: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # B by device, of those that sent any
    speed: dict[str, float] = field(
        default_factory=dict
    )  # negotiated B/s by device, of physical links that are up
    ids: list[int] = field(default_factory=list)  # of the records of the byte counters

    @property
    def main(self) -> str:
        """The device that sent most."""
        return max(self.sent, key=lambda device: self.sent[device], default="")

    def share(self, device: str) -> float:
        return self.sent.get(device, 0.0) / max(1.0, sum(self.sent.values()))


def adapters_of(records: Iterable[AnyRecord]) -> dict[str, Adapters]:
    """Returns the adapters by host, in the order of the records; hosts without byte counters are left out."""
    hosts: dict[str, Adapters] = defaultdict(Adapters)
    for record in records:
        host, device = record.subject.host if hasattr(record, "subject") else None, ""
        if isinstance(record, Measurement) and record.name == "network.counters" and record.metric in SENT:
            device = record.subject.device or ""
            if host and device and record.summary:
                hosts[host].sent[device] += record.median
                hosts[host].ids.append(record.id)
        elif isinstance(record, Context) and host and record.subject.device:
            speed = _speed(record)
            if speed:
                hosts[host].speed[record.subject.device] = speed
    return {host: adapters for host, adapters in hosts.items() if adapters.sent}


def _speed(context: Context) -> float:
    """Returns the negotiated speed of a physical link that is up, B/s; 0 for any other."""
    facts = context.facts
    if facts.get("rdma.state") == "ACTIVE":
        return float(facts.get("rdma.rate", 0))
    is_up = facts.get("interface.state") == "up" and facts.get("interface.kind") == "physical"
    return float(facts.get("interface.speed", 0)) if is_up else 0.0


def slow_adapter(evidence: Evidence) -> list[Finding]:
    """Finds hosts whose bytes went over an adapter while a much faster one was up and idle."""
    hosts_by_case: dict[tuple[str, float, str, float], list[str]] = defaultdict(list)
    adapters = adapters_of(evidence.records)
    for host, host_adapters in adapters.items():
        used, fastest = (
            host_adapters.main,
            max(host_adapters.speed, key=lambda device: host_adapters.speed[device], default=""),
        )
        if (
            used not in host_adapters.speed
            or host_adapters.speed[fastest] < MUCH_FASTER * host_adapters.speed[used]
        ):
            continue
        if host_adapters.share(fastest) < IDLE:
            hosts_by_case[used, host_adapters.speed[used], fastest, host_adapters.speed[fastest]].append(host)
    return [_finding(adapters, hosts, *key) for key, hosts in hosts_by_case.items()]


def _finding(
    adapters: dict[str, Adapters], hosts: list[str], used: str, slow: float, idle: str, fast: float
) -> Finding:
    speeds = [f"{speed * 8 / 1e9:g} Gbit/s" for speed in (slow, fast)]
    return Finding(
        rule="slow_adapter",
        cause=f"{NodeSet.fromlist(hosts)} used {used} ({speeds[0]}) while {idle} ({speeds[1]}) was up and idle",
        subject=Subject(host=hosts[0], device=used) if len(hosts) == 1 else Subject(device=used),
        side="node",
        severity="fault",
        effect=slow / fast - 1,
        confidence=0.8,
        evidence=sorted(number for host in hosts[:4] for number in adapters[host].ids),
        details=[
            f"{host}: {used} sent {format_quantity(adapters[host].sent[used], 'B')}, "
            f"{format_share(adapters[host].share(used))} of its bytes"
            for host in hosts[:4]
        ],
        fix=f"let the MPI use {idle} (UCX_NET_DEVICES, FI_PROVIDER, btl_tcp_if_include) and read its messages on why "
        "it could not: rights on /dev/infiniband, ulimit -l, a library that it lacks",
    )
