"""Payloads that arrived changed: where, and what they have in common.

One bad pair may be a path; several that share an end are that end's memory, adapter or cable. A constant
offset points at a buffer or a DMA engine, scattered ones at a link without a working checksum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from assay.explain.evidence import Evidence
from assay.records.schema import Corruption, Finding, Subject
from assay.records.units import format_size

MOST_DETAILS = 8


def corruption(evidence: Evidence) -> list[Finding]:
    """One finding for an end that all the corrupted pairs share, else one for each pair."""
    # What a file holds is another matter than what a message carried: explain/storage.py.
    records = [
        one for one in evidence.records if isinstance(one, Corruption) and not one.name.startswith("storage.")
    ]
    pairs: dict[tuple[str, str], list[Corruption]] = defaultdict(list)
    for one in records:
        pairs[one.subject.host or "", one.subject.peer or ""].append(one)
    senders, receivers = {source for source, _ in pairs}, {target for _, target in pairs}
    if len(pairs) > 1 and len(senders) == 1:
        return [_finding(records, Subject(host=senders.pop()), "transmit", f"to {len(receivers)} hosts")]
    if len(pairs) > 1 and len(receivers) == 1:
        return [_finding(records, Subject(host=receivers.pop()), "receive", f"from {len(senders)} hosts")]
    return [
        _finding(own, Subject(host=source, peer=target), "pair", f"on its way to {target}")
        for (source, target), own in pairs.items()
    ]


def _finding(
    records: Sequence[Corruption], subject: Subject, side: Literal["transmit", "receive", "pair"], where: str
) -> Finding:
    offsets = {one.offset for one in records}
    details = [_located(one) for one in records[:MOST_DETAILS]]
    if len(records) > MOST_DETAILS:
        details.append(f"and {len(records) - MOST_DETAILS} more")
    if len(records) > 1 and len(offsets) == 1:
        details.append(f"always at offset {offsets.pop()}: a buffer or a DMA engine rather than a cable")
    what = "receives corrupted payloads" if side == "receive" else "sends payloads that are corrupted"
    return Finding(
        rule="corruption",
        cause=f"{subject.host} {what} {where} ({len(records)} messages)",
        subject=subject,
        side=side,
        confidence=0.6 if side == "pair" else 0.9,
        evidence=[one.id for one in records],
        details=details,
        fix="take the host out of service; check its memory (edac counters), the adapter's firmware and "
        "PCIe errors, then the cable",
    )


def _located(one: Corruption) -> str:
    size = one.params.get("size")
    message = f"message {one.message}" + (
        f" of {format_size(int(size))}" if isinstance(size, int | float) else ""
    )
    return (
        f"{one.subject.host} to {one.subject.peer}, {message}, offset {one.offset}: "
        f"expected {one.expected}, got {one.observed}"
    )
