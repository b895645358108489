"""Adds failed verdicts for wrong bytes and faults that the criteria of a specification do not fail.

Without them, a specification without such criteria would pass a machine that is known to be broken.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.records.schema import AnyRecord, Corruption, Finding, Measurement, Verdict

# Metrics that count payloads with wrong bytes, and event fragments that are corrupt, duplicate or missing.
WRONG = ("corrupted", "wrong", "fragments_corrupt", "fragments_duplicate", "fragments_unaccounted")
NO_WRONG_BYTE = "no wrong byte was seen"
NO_FAULT = "no fault was found"


def integrity(records: Sequence[AnyRecord], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Returns failed verdicts on wrong bytes and on faults, if there are any and none of ``verdicts`` failed on
    them."""
    failed = {number for verdict in verdicts if verdict.outcome == "FAIL" for number in verdict.evidence}
    return [*_wrong_bytes(records, failed), *_faults(records, failed)]


def _wrong_bytes(records: Sequence[AnyRecord], failed: set[int]) -> list[Verdict]:
    counted = [
        record
        for record in records
        if isinstance(record, Measurement)
        and record.metric in WRONG
        and record.summary is not None
        and (record.median > 0 or (record.summary.max or 0) > 0)
    ]
    located = [record for record in records if isinstance(record, Corruption)]
    if not counted and not located:
        return []
    if any(record.id in failed for record in counted):
        return []
    wrong = sum(record.median for record in counted) or len(located)
    subject = (counted or located)[0].subject
    place = " ".join(part for part in (subject.host, subject.device) if part)
    return [
        Verdict(
            criterion=NO_WRONG_BYTE,
            outcome="FAIL",
            metric=f"{(counted or located)[0].name}/{counted[0].metric if counted else WRONG[0]}",
            unit="1",
            observed=float(wrong),
            required=0.0,
            subject=subject,
            evidence=[record.id for record in (*counted, *located)],
            reason=f"{place}: {wrong:.0f} messages or copies did not arrive as they were sent".lstrip(": "),
        )
    ]


def _faults(records: Sequence[AnyRecord], failed: set[int]) -> list[Verdict]:
    faults = [
        record
        for record in records
        if isinstance(record, Finding)
        and record.severity == "fault"
        and record.id not in failed
        and not failed & set(record.evidence)
    ]
    if not faults:
        return []
    first = max(faults, key=lambda finding: finding.confidence or 0.0)
    suffix = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return [
        Verdict(
            criterion=NO_FAULT,
            outcome="FAIL",
            unit="1",
            observed=float(len(faults)),
            required=0.0,
            subject=first.subject,
            evidence=[finding.id for finding in faults],
            reason=first.cause + suffix,
        )
    ]
