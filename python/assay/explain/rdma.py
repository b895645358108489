"""Finds RDMA measurements whose bytes did not pass the adapters: "node.rdma/wire" below 1.

A device that sends to itself, or to another function of its card, may never use its link. The adapters' own counters
show it: with headers a port sends more than the payload, never less.
"""

from __future__ import annotations

from assay.explain.evidence import Evidence
from assay.records.schema import Finding
from assay.records.units import format_share


def rdma_wire(evidence: Evidence) -> list[Finding]:
    findings = []
    for record in evidence.measurements("node.rdma", "wire"):
        if record.median >= 1:
            continue
        subject, verb = record.subject, record.params.get("direction", "carried")
        findings.append(
            Finding(
                rule="rdma_wire",
                cause=f"{subject.host} {subject.device} {verb} {format_share(record.median)} of the payload by its own "
                "counters: the bytes went another way",
                subject=subject,
                side="node",
                effect=record.median - 1,
                confidence=0.95,
                evidence=[record.id],
                details=[f"the other end: {subject.peer} {record.params.get('peer_device', '')}".rstrip()],
                fix="measure between two distinct cards, or to another host: assay rdma -d DEVICE --peer HOST",
            )
        )
    return findings
