"""Finds where UDP messages were lost, from the receiving engine's counts of each drop point."""

from __future__ import annotations

from typing import NamedTuple

from assay.explain.evidence import Evidence
from assay.records.schema import Finding, Measurement
from assay.records.units import format_share

NAME = "node.udp_receive"


class DropPoint(NamedTuple):
    where: str  # completes "... messages were lost"
    fix: str  # {device} is the interface


DROP_POINTS = {
    "lost_socket": DropPoint(
        "in the sockets' buffers: the receiving threads did not keep up",
        "sysctl -w net.core.rmem_max=16777216 (and --buffer), --realtime, more --threads; keep other work off "
        "the cores of the adapter's NUMA node",
    ),
    "lost_softnet": DropPoint(
        "in the kernel's queue of a processor",
        "sysctl -w net.core.netdev_max_backlog=250000; spread the adapter's interrupts over more cores",
    ),
    "lost_nic": DropPoint(
        "in the adapter {device}, or were refused by its driver",
        "ethtool -G {device} rx 4096 (see ethtool -g {device}); look at ethtool -S {device}, its PCIe link and "
        "which cores take its interrupts",
    ),
    "lost_reassembly": DropPoint(
        "as fragments that did not all arrive",
        "let frames pass whole: ip link set {device} mtu 9000, on both sides and on the way",
    ),
    "lost_sender": DropPoint(
        "in the sender's own queue, before the wire",
        "take a sender with more capacity, or offer less (--rate)",
    ),
    "lost_unattributed": DropPoint(
        "in the network: no counter of the receiving host has seen them",
        "look at the counters of the switch's ports, at cables and transceivers, at flow control (ethtool -a "
        "{device})",
    ),
}


def udp_loss(evidence: Evidence) -> list[Finding]:
    """Returns a finding for each drop point with losses; drops in the sender are only a warning."""
    findings = []
    for metric, drop_point in DROP_POINTS.items():
        for record in evidence.measurements(NAME, metric):
            count = record.summary.median if record.summary else 0.0
            if count <= 0:
                continue
            device = record.subject.device or "the interface"
            loss = _loss_record(evidence, record)
            share = count / float(loss.params["messages"]) if loss and loss.params.get("messages") else None
            share_text = f" ({format_share(share)})" if share is not None else ""
            finding = Finding(
                rule="udp_loss",
                cause=f"{record.subject.host} {device}: {count:.0f} messages{share_text} were lost "
                + drop_point.where.format(device=device),
                subject=record.subject,
                side="none" if metric == "lost_sender" else "receive",
                severity="warning" if metric == "lost_sender" else "fault",
                effect=-share if share is not None else None,
                evidence=[record.id, *([loss.id] if loss else [])],
                details=_counters(evidence, record),
                fix=drop_point.fix.format(device=device),
            )
            findings.append(finding)
    return findings


def _same_reception(record: Measurement, other: Measurement) -> bool:
    return record.subject == other.subject and all(
        record.params.get(key) == other.params.get(key) for key in ("sender", "offered", "size", "budget")
    )


def _loss_record(evidence: Evidence, record: Measurement) -> Measurement | None:
    return next(
        (
            other
            for other in evidence.records
            if isinstance(other, Measurement)
            and (other.name, other.metric) == (NAME, "loss")
            and "messages" in other.params
            and _same_reception(record, other)
        ),
        None,
    )


def _counters(evidence: Evidence, record: Measurement) -> list[str]:
    """Returns the counters of the host and its adapter that grew during the reception."""
    return [
        f"{other.params.get('counter')} grew by {other.summary.median:.0f}"
        for other in evidence.measurements(NAME, "device_counter")
        if other.summary and _same_reception(record, other)
    ]
