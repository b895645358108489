"""Names hosts that came long after the others: the start waited for them, and the run lost that time."""

from __future__ import annotations

from assay.explain.evidence import Evidence
from assay.records.schema import LATE_FACT, Context, Finding
from assay.records.units import format_quantity


def late_start(evidence: Evidence) -> list[Finding]:
    """A finding for each host with the fact "start.late_s": its longest delay in this run."""
    latest: dict[str, Context] = {}
    for record in evidence.records:
        if isinstance(record, Context) and record.subject.host and LATE_FACT in record.facts:
            other = latest.get(record.subject.host)
            if other is None or _seconds(record) > _seconds(other):
                latest[record.subject.host] = record
    return [
        Finding(
            rule="late_start",
            cause=f"{host} came {format_quantity(_seconds(record), 's')} after most others: the start waited for it",
            subject=record.subject,
            side="node",
            severity="warning",
            confidence=1.0,
            evidence=[record.id],
            details=["nothing was sent before all hosts were there: no figure contains this time"],
            fix=f"look at {host}: was it stopped, overloaded, or slow to log in to?",
        )
        for host, record in latest.items()
    ]


def _seconds(record: Context) -> float:
    return float(record.facts[LATE_FACT])
