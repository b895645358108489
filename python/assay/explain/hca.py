"""Did the adapters carry what they were asked to? The binding of HCAs, proven by their byte counters.

A variable that an MPI does not know, or a device that it finds too far away, is ignored in silence, and half
of a server's bandwidth is gone. Contract: "network.counters" with the metrics port_xmit_data and
port_rcv_data (in bytes) or tx_bytes and rx_bytes, subject {host, device}; the run's options "servers" and
"servers_hcas" say what was asked, as the command line does.
"""

from __future__ import annotations

from collections import defaultdict

from ClusterShell.NodeSet import NodeSet

from assay.explain.counters import MEASUREMENT
from assay.explain.evidence import Evidence
from assay.records.schema import Finding, Subject
from assay.records.units import format_quantity

KINDS = ({"port_xmit_data", "port_rcv_data"}, {"tx_bytes", "rx_bytes"})
LEAST_OF_FAIR = 0.5  # of its fair share, below which an adapter was not used as asked
MOST_OF_OTHER = 0.05  # of all bytes, which management traffic on another adapter stays below


def hca_binding(evidence: Evidence) -> list[Finding]:
    """Adapters that were asked and carried less than half of their share, or carried data unasked."""
    asked = [name.partition(":")[0] for name in _names(evidence.options.get("servers_hcas"), ":")]
    findings = []
    for host in _servers(evidence) if asked else []:
        carried, records = _carried(evidence, host, asked)
        total = sum(carried.values())
        for device in dict.fromkeys([*asked, *carried]):
            share = carried.get(device, 0.0) / total if total else 0.0
            fair = 1 / len(asked) if device in asked else 0.0
            if device in asked and device not in carried:
                cause, severity = (
                    f"{device} on {host} has no byte counters: its binding is not proven",
                    "warning",
                )
            elif device in asked and share < LEAST_OF_FAIR * fair:
                cause, severity = f"{device} on {host} was asked for and hardly used", "fault"
            elif device not in asked and share > MOST_OF_OTHER:
                cause, severity = f"{device} on {host} carried data and was not asked for", "fault"
            else:
                continue
            finding = Finding(
                rule="hca_binding",
                cause=cause,
                subject=Subject(host=host, device=device),
                side="node",
                severity="fault" if severity == "fault" else "warning",
                effect=share / fair - 1 if fair and total else None,
                confidence=0.9,
                evidence=records,
                details=[
                    f"{name} carried {format_quantity(amount, 'B')} of {format_quantity(total, 'B')}"
                    for name, amount in carried.items()
                ],
                remedy="check the names ('ibstat -l'), that this MPI knows the variable that binds them, and "
                "its limit on the number of rails",
            )
            findings.append(finding)
    return findings


def _carried(evidence: Evidence, host: str, asked: list[str]) -> tuple[dict[str, float], list[int]]:
    """Bytes by device of one host, and the records that say so.

    One kind of counters only: an InfiniBand device also shows as a network interface.
    """
    own = [
        one for one in evidence.measurements(MEASUREMENT) if one.subject.host == host and one.subject.device
    ]
    for kind in KINDS:
        used = [one for one in own if one.metric in kind]
        if any(one.subject.device in asked for one in used):
            carried: dict[str, float] = defaultdict(float)
            for one in used:
                carried[one.subject.device or ""] += one.summary.median if one.summary else 0.0
            return dict(carried), [one.id for one in used]
    return {}, []


def _servers(evidence: Evidence) -> list[str]:
    names = _names(evidence.options.get("servers"), None)
    return [host for name in names for host in NodeSet(name)]


def _names(option: object, separator: str | None) -> list[str]:
    """An option that is a list, or one text with separators; none when it was not given."""
    if isinstance(option, list):
        return [str(name) for name in option]
    if not isinstance(option, str) or not option:
        return []
    return option.split(separator) if separator else [option]
