"""Finds runs that did not measure the network between the named hosts.

An MPI may use shared memory between two "hosts", or another adapter than the requested one. The adapters' byte counters
show it: between hosts the wire carries payload and headers, so never less than the payload. Another measurement at the
same time takes a part of the network. A machine that is named twice has no network between its ranks.
"""

from __future__ import annotations

from ClusterShell.NodeSet import NodeSet

from assay.explain.evidence import Evidence
from assay.records.schema import Context, Finding, Subject
from assay.records.units import format_share


def wire_bypass(evidence: Evidence) -> list[Finding]:
    """Finds hosts whose adapters carried fewer bytes than the payload: "network.wire/share" below 1."""
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


def shared_network(evidence: Evidence) -> list[Finding]:
    """Finds other network measurements that ran at the same time: "network.wire/other_runs", per host."""
    records = evidence.measurements("network.wire", "other_runs")
    hosts = list(dict.fromkeys(record.subject.host or "a host" for record in records))
    if not hosts:
        return []
    return [
        Finding(
            rule="shared_network",
            cause=f"another network measurement ran on {NodeSet.fromlist(hosts)} at the same time",
            subject=Subject(host=hosts[0]) if len(hosts) == 1 else Subject(),
            side="none",
            severity="warning",
            confidence=0.95,
            evidence=[record.id for record in records],
            details=["both share the wires, so neither shows what the network carries"],
            fix="wait until it has ended (ps -e | grep assay-probe), then measure again",
        )
    ]


def host_names(evidence: Evidence) -> list[Finding]:
    """Finds machines that the host list names twice, and machines that it does not name."""
    findings = []
    for record in evidence.records:
        if not isinstance(record, Context) or record.subject.device:
            continue
        host, aliases = record.subject.host, str(record.facts.get("host.aliases", ""))
        if aliases:
            cause = f"{host} and {', '.join(aliases.split(','))} are one machine"
            details = ["between its ranks there is no network, so their pairs are left out"]
        elif record.facts.get("host.unlisted"):
            cause = f"{host} took part, and no name of the host list is its"
            details = ["it appears under the name that it calls itself"]
        else:
            continue
        findings.append(
            Finding(
                rule="host_names",
                cause=cause,
                subject=Subject(host=host),
                side="none",
                severity="warning",
                confidence=0.9,
                evidence=[record.id],
                details=details,
                fix="name each machine once",
            )
        )
    return findings
