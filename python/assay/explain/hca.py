"""Checks the binding of adapters (HCAs) by their byte counters.

An MPI silently ignores a variable that it does not know, or a device that it finds too far away, and half of a
server's bandwidth is lost. Input: "network.counters" records with the metrics port_xmit_data and port_rcv_data (in
bytes) or tx_bytes and rx_bytes, subject {host, device}. The run's options "servers" and "servers_hcas" hold the
requested binding as on the command line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from ClusterShell.NodeSet import NodeSet

from assay.explain.counters import MEASUREMENT
from assay.explain.evidence import Evidence
from assay.explain.matrix import host_of
from assay.records.schema import Finding, Measurement, Subject
from assay.records.units import format_quantity, format_share

KINDS = ({"port_xmit_data", "port_rcv_data"}, {"tx_bytes", "rx_bytes"})
MIN_SHARE_OF_FAIR = 0.5  # of an equal share of the bytes; below it an adapter was not used as requested
MAX_SHARE_OF_OTHERS = 0.05  # of all bytes, on an adapter that was not requested; management traffic is less


def hca_binding(evidence: Evidence) -> list[Finding]:
    """Finds requested adapters that carried less than half of their share, and others that carried data."""
    requested = names_of(evidence.options.get("servers_hcas"), ":")
    servers = [host for name in names_of(evidence.options.get("servers"), None) for host in NodeSet(name)]
    return (
        [finding for host in servers for finding in _check_host(evidence, host, requested)]
        if requested
        else []
    )


def _check_host(evidence: Evidence, host: str, requested: list[str]) -> list[Finding]:
    carried, records = carried_bytes(evidence, host, requested)
    total = sum(carried.values())
    if not total:
        cause = f"no byte counters of {host} prove that {', '.join(requested)} carried its data"
        return [_finding(cause, Subject(host=host), "warning")]
    details = [
        f"{device} carried {format_quantity(amount, 'B')}, {format_share(amount / total)}"
        for device, amount in carried.items()
    ]
    findings = []
    for device in dict.fromkeys([*requested, *carried]):
        share, fair_share = carried.get(device, 0.0) / total, 1 / len(requested)
        subject, adapter = Subject(host=host, device=device), f"{device} on {host}"
        if device in requested and share < MIN_SHARE_OF_FAIR * fair_share:
            cause, effect = f"{adapter} was requested and hardly used", share / fair_share - 1
            findings.append(_finding(cause, subject, "fault", effect, records, details))
        elif device not in requested and share > MAX_SHARE_OF_OTHERS:
            cause = f"{adapter} carried data and was not requested"
            findings.append(_finding(cause, subject, "fault", None, records, details))
    return findings


def _finding(
    cause: str,
    subject: Subject,
    severity: Literal["fault", "warning"],
    effect: float | None = None,
    evidence: Sequence[int] = (),
    details: Sequence[str] = (),
) -> Finding:
    return Finding(
        rule="hca_binding",
        cause=cause,
        subject=subject,
        side="node",
        severity=severity,
        effect=effect,
        confidence=0.9,
        evidence=list(evidence),
        details=list(details),
        fix="check the names ('ibstat -l'), that this MPI knows the variable that binds them, and "
        "its limit on the number of rails",
    )


def carried_bytes(evidence: Evidence, host: str, requested: list[str]) -> tuple[dict[str, float], list[int]]:
    """Returns the bytes of each device of a host, of all of its ports or of each port of a device that was requested
    with a port, and the ids of their records.

    Only one kind of counter is used, that of the requested adapters: an InfiniBand device is a network interface too.
    Counters that did not grow are not recorded, so if none of the requested adapters has one, any kind is used.
    """
    host_counters = [record for record in evidence.measurements(MEASUREMENT) if record.subject.host == host]
    kinds = [[record for record in host_counters if record.metric in kind] for kind in KINDS]
    kinds.sort(key=lambda kind: not any(_device(r, requested) in requested for r in kind))  # stable
    used = next((kind for kind in kinds if kind), [])
    carried: dict[str, float] = defaultdict(float)
    for record in used:
        carried[_device(record, requested)] += record.summary.median if record.summary else 0.0
    return dict(carried), [record.id for record in used]


def _device(record: Measurement, requested: Sequence[str]) -> str:
    """Returns the device without its port ("mlx5_0" of "mlx5_0:1"), unless it was requested with a port."""
    port = record.subject.device or ""
    device = port.partition(":")[0]
    return port if any(name.startswith(f"{device}:") for name in requested) else device


def names_of(option: object, separator: str | None) -> list[str]:
    """Splits an option that is a list or a text with separators; empty if it was not given."""
    if isinstance(option, list):
        return [str(name) for name in option]
    if not isinstance(option, str) or not option:
        return []
    return option.split(separator) if separator else [option]


def bound_adapter(evidence: Evidence, rank: str) -> str:
    """The adapter to which a rank of a server was bound: a server has a rank for each, in their order. Else empty."""
    adapters = names_of(evidence.options.get("servers_hcas"), ":")
    servers = {host for name in names_of(evidence.options.get("servers"), None) for host in NodeSet(name)}
    if not adapters or host_of(rank) not in servers:
        return ""
    number = rank.removeprefix(host_of(rank)).removeprefix(":")
    return adapters[int(number or 0) % len(adapters)]
