"""Says what of a host's topology is not as it should be: where it comes from, cores without memory, torn cores.

Variables of hwloc (HWLOC_XMLFILE, HWLOC_SYNTHETIC) describe another machine; the engines ignore them. Tests plant a
machine with ASSAY_TOPOLOGY; its figures are this machine's, its nodes and cores are not.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay.explain.evidence import Evidence
from assay.records.schema import Context, Finding


def topology(evidence: Evidence) -> list[Finding]:
    """Finds planted machines ("topology.planted"), ignored variables of hwloc ("topology.ignored"), cores without
    memory of their own ("numa.cores_without_memory") and cores in several nodes ("numa.cores_across_nodes")."""
    return [
        Finding(
            rule="topology",
            cause=cause,
            subject=record.subject,
            side="node",
            severity="warning",
            confidence=1.0,
            evidence=[record.id],
            fix=fix,
        )
        for record in evidence.records
        if isinstance(record, Context) and not record.subject.device
        for cause, fix in _causes(record)
    ]


def _causes(record: Context) -> Iterator[tuple[str, str]]:
    """Each cause, and how to correct it."""
    host, facts = record.subject.host, record.facts
    if planted := facts.get("topology.planted"):
        yield f"{host} was measured as the planted machine '{planted}'", "unset ASSAY_TOPOLOGY"
    if ignored := facts.get("topology.ignored"):
        cause = (
            f"{ignored} in the environment of {host}: ignored, since hwloc would take another machine for it"
        )
        yield cause, f"unset {ignored}"
    if apart := facts.get("numa.cores_without_memory"):
        yield (
            f"{apart} of {facts.get('cpu.cores')} cores of {host} have no memory in their own NUMA node: they are "
            f"measured with the nearest memory, as remote bandwidth ({facts.get('numa.nearest_memory')})",
            "look for missing memory modules, the firmware's nodes per socket, and cpuset.mems",
        )
    if across := facts.get("numa.cores_across_nodes"):
        yield (
            f"{across} of {facts.get('cpu.cores')} cores of {host} have hardware threads in several NUMA nodes: "
            "the firmware's cores and its nodes disagree, and such a core is measured in the node of its first thread",
            "correct the firmware's table of nodes (SRAT), or the virtual machine's -numa and -smp",
        )
