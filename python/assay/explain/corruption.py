"""Finds corrupted payloads, and the host, device or offset that they have in common.

A single bad pair may be a path; several that share a host point at that host's memory, adapter or cable. A constant
offset points at a buffer or a DMA engine, scattered offsets at a link without a working checksum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from assay.explain.evidence import Evidence
from assay.records.schema import Corruption, Finding, Subject
from assay.records.units import format_size

MAX_DETAILS = 8


def corruption(evidence: Evidence) -> list[Finding]:
    """Returns one finding for a host that all corrupted pairs share, else one for each pair; and one for the devices
    of a host."""
    # Corrupted files are handled by explain/storage.py.
    records = [
        record
        for record in evidence.records
        if isinstance(record, Corruption) and not record.name.startswith("storage.")
    ]
    pairs: dict[tuple[str, str], list[Corruption]] = defaultdict(list)
    devices: dict[str, list[Corruption]] = defaultdict(list)
    for record in records:
        if record.subject.peer:
            pairs[record.subject.host or "", record.subject.peer].append(record)
        else:
            devices[record.subject.host or ""].append(record)
    on_devices = [_device_finding(device_records) for device_records in devices.values()]
    return on_devices + _pair_findings(pairs)


def _pair_findings(pairs: dict[tuple[str, str], list[Corruption]]) -> list[Finding]:
    records = [record for pair_records in pairs.values() for record in pair_records]
    senders, receivers = {source for source, _ in pairs}, {target for _, target in pairs}
    if len(pairs) > 1 and len(senders) == 1:
        return [_finding(records, Subject(host=senders.pop()), "transmit", f"to {len(receivers)} hosts")]
    if len(pairs) > 1 and len(receivers) == 1:
        return [_finding(records, Subject(host=receivers.pop()), "receive", f"from {len(senders)} hosts")]
    return [
        _finding(pair_records, Subject(host=source, peer=target), "pair", f"on its way to {target}")
        for (source, target), pair_records in pairs.items()
    ]


def _device_finding(records: Sequence[Corruption]) -> Finding:
    """Payloads that crossed one machine only, between its memory and a device, or that its device received."""
    devices = ", ".join(sorted({record.subject.device for record in records if record.subject.device}))
    name = f"{devices} on {records[0].subject.host}" if devices else str(records[0].subject.host)
    subject = records[0].subject if len({record.subject for record in records}) == 1 else Subject()
    return Finding(
        rule="corruption",
        cause=f"{name}: payloads did not arrive as they were sent ({_messages(records)})",
        subject=subject if subject.host else Subject(host=records[0].subject.host),
        side="node",
        confidence=0.9,
        evidence=[record.id for record in records],
        details=_details(records),
        fix="take the device out of service; check memory and device for counted errors (edac, nvidia-smi -q, "
        "ethtool -S), its slot and its firmware",
    )


def _messages(records: Sequence[Corruption]) -> str:
    return f"{len(records)} message{'' if len(records) == 1 else 's'}"


def _finding(
    records: Sequence[Corruption], subject: Subject, side: Literal["transmit", "receive", "pair"], where: str
) -> Finding:
    problem = "receives corrupted payloads" if side == "receive" else "sends payloads that are corrupted"
    return Finding(
        rule="corruption",
        cause=f"{subject.host} {problem} {where} ({_messages(records)})",
        subject=subject,
        side=side,
        confidence=0.6 if side == "pair" else 0.9,
        evidence=[record.id for record in records],
        details=_details(records),
        fix="take the host out of service; check its memory (edac counters), the adapter's firmware and "
        "PCIe errors, then the cable",
    )


def _details(records: Sequence[Corruption]) -> list[str]:
    offsets = {record.offset for record in records}
    details = [_describe_corruption(record) for record in records[:MAX_DETAILS]]
    if len(records) > MAX_DETAILS:
        details.append(f"and {len(records) - MAX_DETAILS} more")
    if len(records) > 1 and len(offsets) == 1:
        details.append(f"always at offset {offsets.pop()}: a buffer or a DMA engine rather than a cable")
    return details


def _describe_corruption(record: Corruption) -> str:
    size = record.params.get("size")
    message = f"message {record.message}" + (
        f" of {format_size(int(size))}" if isinstance(size, int | float) else ""
    )
    subject = record.subject
    ends = (
        f"{subject.host} to {subject.peer}"
        if subject.peer
        else f"{subject.host} {subject.device or ''}".rstrip()
    )
    return f"{ends}, {message}, offset {record.offset}: expected {record.expected}, got {record.observed}"
