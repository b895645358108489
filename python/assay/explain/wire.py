"""Finds runs whose payload did not cross the network.

An MPI that uses shared memory between two "hosts", or another adapter than the requested one, reports figures of
something else. The adapters' byte counters show it: between hosts the wire carries payload and headers, so never
less than the payload.
"""

from __future__ import annotations

from assay.explain.evidence import Evidence
from assay.records.schema import Finding
from assay.records.units import format_share


def wire_bypass(evidence: Evidence) -> list[Finding]:
    """Finds hosts whose wire carried less than the payload: "network.wire/share" below 1."""
    findings = []
    for record in evidence.measurements("network.wire", "share"):
        share = record.summary.median if record.summary else 1.0
        if share >= 1.0:
            continue
        host = record.subject.host or "a host"
        finding = Finding(
            rule="wire_bypass",
            cause=f"MPI bypasses the network on {host}: {format_share(share)} of the payload crossed it",
            subject=record.subject,
            side="node",
            effect=share - 1.0,
            confidence=0.95,
            evidence=[record.id],
            details=[f"bytes on the wire over payload between different hosts: {share:.3f}"],
            fix="select the adapter for MPI (Open MPI: btl_tcp_if_include, UCX_NET_DEVICES; MPICH: "
            "FI_TCP_IFACE, FI_PROVIDER), and give each container that is a host a separate IPC namespace",
        )
        findings.append(finding)
    return findings
