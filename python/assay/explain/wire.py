"""Bytes that should have crossed the network and did not.

An MPI that finds shared memory between two "hosts", or another adapter than the one asked for, reports
splendid figures of something else. The adapters' byte counters tell: between hosts the wire carries the
payload and its headers, so less than the payload cannot be.
"""

from __future__ import annotations

from assay.explain.evidence import Evidence
from assay.records.schema import Finding
from assay.records.units import format_share


def wire_bypass(evidence: Evidence) -> list[Finding]:
    """Hosts whose wire carried less than the payload ("network.wire/share" below one)."""
    findings = []
    for record in evidence.measurements("network.wire", "share"):
        share = record.summary.median if record.summary else 1.0
        if share >= 1.0:
            continue
        host = record.subject.host or "a host"
        finding = Finding(
            rule="wire_bypass",
            cause=f"MPI goes round the network on {host}: {format_share(share)} of the payload crossed it",
            subject=record.subject,
            side="node",
            effect=share - 1.0,
            confidence=0.95,
            evidence=[record.id],
            details=[f"bytes on the wire over payload between different hosts: {share:.3f}"],
            fix="name the adapter to MPI (Open MPI: btl_tcp_if_include, UCX_NET_DEVICES; MPICH: "
            "FI_TCP_IFACE, FI_PROVIDER), and give hosts that are containers an IPC namespace each",
        )
        findings.append(finding)
    return findings
