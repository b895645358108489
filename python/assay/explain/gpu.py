"""Finds why GPUs copy slowly: a PCIe link that is too narrow, or a path that several share."""

from __future__ import annotations

from collections.abc import Iterator

from assay.explain.evidence import Evidence
from assay.records.schema import Context, Finding, Measurement, Scalar
from assay.records.units import format_quantity, format_share

NAME = "node.gpu_copy"
DIRECTIONS = {"h2d": "copies to it", "d2h": "copies from it"}
Device = tuple[str | None, str | None]  # host, and GPU or PCI address
MIN_SHARE_OF_ALONE = 0.9  # of what a GPU reaches alone; below it, the other GPUs slow it down
MIN_SHARE_OF_LINK = 0.95  # of the card's link rate


def gpu_copies(evidence: Evidence) -> list[Finding]:
    return [*_narrow_links(evidence), *_shared_paths(evidence)]


def _narrow_links(evidence: Evidence) -> Iterator[Finding]:
    """Finds links that were slower than the card supports while its GPU copied."""
    facts = card_facts_of(evidence)
    for (host, device), link in links_of(evidence).items():
        pci = str(link.params["pci"])
        card_facts = facts.get((host, pci), {})
        speed, width = (float(card_facts.get(f"pcie.{quantity}_max", 0)) for quantity in ("speed", "width"))
        best = _rate(speed, width)
        if not best or link.median >= MIN_SHARE_OF_LINK * best:
            continue
        slot_speed = float(card_facts.get("pcie.slot_speed_max", speed))
        slot_width = float(card_facts.get("pcie.slot_width_max", width))
        in_small_slot = _rate(min(speed, slot_speed), min(width, slot_width)) < MIN_SHARE_OF_LINK * best
        yield Finding(
            rule="gpu_copies",
            cause=f"the PCIe link of {device} ({pci}) on {host} carries {format_quantity(link.median, 'B/s')} "
            f"while it copies, and the card can take {format_quantity(best, 'B/s')}",
            subject=link.subject,
            side="node",
            severity="fault",
            effect=link.median / best - 1,
            confidence=0.95,
            evidence=[link.id],
            details=[f"its slot: {link_text(slot_speed, slot_width)}; the card: {link_text(speed, width)}"],
            fix="move the card to a slot of its width and generation"
            if in_small_slot
            else "reseat the card and its riser, set the slot to full speed in the BIOS, then compare: "
            f"lspci -vv -s {pci}",
        )


def card_facts_of(evidence: Evidence) -> dict[Device, dict[str, Scalar]]:
    """What the machine says of each card, by host and PCI address."""
    return {
        (record.subject.host, record.subject.device): record.facts
        for record in evidence.records
        if isinstance(record, Context)
    }


def links_of(evidence: Evidence) -> dict[Device, Measurement]:
    """The fastest PCIe link that each GPU showed while it copied, by host and GPU."""
    links: dict[Device, Measurement] = {}
    for record in evidence.measurements(NAME, "link"):
        device = (record.subject.host, record.subject.device)
        if device not in links or record.median > links[device].median:
            links[device] = record
    return links


def _rate(transfers: float, lanes: float) -> float:
    """Returns B/s in one direction: 8b/10b coding until PCIe 2, 128b/130b later (PCI Express Base Specification)."""
    return transfers * lanes * (0.8 if transfers <= 5e9 else 128 / 130) / 8


def link_text(transfers: float, lanes: float) -> str:
    return f"x{lanes:.0f} at {transfers / 1e9:g} GT/s"


def _shared_paths(evidence: Evidence) -> Iterator[Finding]:
    """Finds GPUs that lose much bandwidth while the others copy too; one finding a host, for its worst direction."""
    alone = {_key(r): r for r in evidence.measurements(NAME, "bandwidth") if r.params.get("gpus") == "one"}
    together = {_key(r): r for r in evidence.measurements(NAME, "bandwidth") if r.params.get("gpus") == "all"}
    for host in dict.fromkeys(host for host, _, _ in together):
        if len({device for name, device, _ in together if name == host}) < 2:
            continue  # no other GPU copies beside it
        slowed = [
            (r.median / alone[key].median, alone[key], r)
            for key, r in together.items()
            if key[0] == host
            and key[2] in DIRECTIONS
            and key in alone
            and r.median < MIN_SHARE_OF_ALONE * alone[key].median
        ]
        if not slowed:
            continue
        worst, _, record = min(slowed, key=lambda single: single[0])
        devices = list(dict.fromkeys(r.subject.device or "" for _, _, r in slowed))
        yield Finding(
            rule="gpu_copies",
            cause=f"{', '.join(devices)} on {host} copy at {format_share(worst)} of their own speed while all GPUs "
            "copy: they share a link, or the memory that they copy from",
            subject=record.subject,
            side="node",
            severity="warning",
            effect=worst - 1,
            confidence=0.8,
            evidence=[single.id for _, *both in slowed for single in both],
            details=[
                f"{r.subject.device}, {DIRECTIONS[str(r.params['direction'])]}: "
                f"{format_quantity(single.median, 'B/s')} alone, {format_quantity(r.median, 'B/s')} with all"
                for _, single, r in slowed
            ],
            fix="nvidia-smi topo -m and lspci -tv show which GPUs share a switch or a processor: spread them "
            "over the slots of all processors; 'assay mem' measures whether the memory is fast enough",
        )


def _key(record: Measurement) -> tuple[str | None, str | None, str]:
    return record.subject.host, record.subject.device, str(record.params.get("direction"))
