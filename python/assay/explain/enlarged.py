"""Says which hosts of a simulated cluster its platform file does not have."""

from __future__ import annotations

from assay.explain.evidence import Evidence
from assay.records.schema import Finding


def enlarged(evidence: Evidence) -> list[Finding]:
    """A finding where ``assay simulate --nodes`` has added hosts to the platform's clusters."""
    cause = evidence.options.get("enlarged")
    if not isinstance(cause, str):
        return []
    return [
        Finding(
            rule="enlarged",
            cause=cause,
            severity="warning",
            confidence=1.0,
            details=[
                "an added host has the links of its cluster; the links between clusters stay as they are"
            ],
            fix="for the platform as it is, leave --nodes out",
        )
    ]
