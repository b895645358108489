"""Finds RDMA transfers that failed, and measurements whose bytes did not pass the adapters: "node.rdma/wire" below 1.

A device that sends to itself, or to another function of its card, may never use its link. The adapters' own counters
show it: with headers a port sends more than the payload, never less.
"""

from __future__ import annotations

import re

from assay.explain.evidence import Evidence
from assay.records.schema import Failure, Finding
from assay.records.units import format_share, format_size

# The engine's words (engines/node/rdma/side.cpp). Where the other side has gone away it says that instead.
FAILED = re.compile(r"((?:write|read|send) of \S+ \S+) to (.+) failed: (.+) \(status ([0-9]+)\)")


def rdma_failed(evidence: Evidence) -> list[Finding]:
    """A transfer that an adapter ended with an error: what was measured before tells which sizes pass."""
    findings = []
    for record in evidence.records:
        if not isinstance(record, Failure) or not (match := FAILED.search(record.problem)):
            continue
        transfer, peer, error, status = match.groups()
        passed = sorted(
            {
                float(r.params["size"])
                for r in evidence.measurements("node.rdma", "bandwidth")
                if r.params.get("op") == transfer.partition(" ")[0]
                and str(r.params.get("peer_device", "")) in peer
            }
        )
        sizes = ", ".join(format_size(int(size)) for size in passed)
        findings.append(
            Finding(
                rule="rdma_failed",
                cause=f"{transfer} to {peer} failed: {error} (status {status} of its completion)",
                subject=record.subject,
                side="node",
                severity="fault",
                confidence=0.9,
                evidence=[record.id],
                details=[f"transfers of {sizes} arrived before" if passed else "no transfer arrived before"],
                fix=record.fix
                or "one MTU on both sides and the switches between; the counters of both ports",
            )
        )
    return findings


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
