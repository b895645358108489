"""Why GPUs copy slower than they could: a link that is too narrow, or one that several share."""

from __future__ import annotations

from collections.abc import Iterator

from assay.explain.evidence import Evidence
from assay.records.schema import Context, Finding, Measurement
from assay.records.units import format_quantity, format_share

NAME = "node.gpu_copy"
WAYS = {"h2d": "copies to it", "d2h": "copies from it"}
KEPT = 0.9  # of what a GPU reaches alone; below, the others are in its way
FULL = 0.95  # of what its link could do


def gpu_copies(evidence: Evidence) -> list[Finding]:
    return [*_narrow_links(evidence), *_shared_paths(evidence)]


def _median(record: Measurement) -> float:
    return record.summary.median if record.summary else 0.0


def _narrow_links(evidence: Evidence) -> Iterator[Finding]:
    """A link that, while its GPU copied, was slower than the card can do."""
    facts = {
        (one.subject.host, one.subject.device): one.facts
        for one in evidence.records
        if isinstance(one, Context)
    }
    links: dict[tuple[str | None, str | None], Measurement] = {}
    for one in evidence.measurements(NAME, "link"):
        key = (one.subject.host, one.subject.device)
        if key not in links or _median(one) > _median(links[key]):
            links[key] = one
    for (host, device), link in links.items():
        pci = str(link.params["pci"])
        known = facts.get((host, pci), {})
        speed, width = (float(known.get(f"pcie.{what}_max", 0)) for what in ("speed", "width"))
        best = _rate(speed, width)
        if not best or _median(link) >= FULL * best:
            continue
        slot_speed = float(known.get("pcie.slot_speed_max", speed))
        slot_width = float(known.get("pcie.slot_width_max", width))
        in_small_slot = _rate(min(speed, slot_speed), min(width, slot_width)) < FULL * best
        yield Finding(
            rule="gpu_copies",
            cause=f"the PCIe link of {device} ({pci}) on {host} carries {format_quantity(_median(link), 'B/s')} "
            f"while it copies, and the card can take {format_quantity(best, 'B/s')}",
            subject=link.subject,
            side="node",
            severity="fault",
            effect=_median(link) / best - 1,
            confidence=0.95,
            evidence=[link.id],
            details=[f"its slot: {_link(slot_speed, slot_width)}; the card: {_link(speed, width)}"],
            fix="move the card to a slot of its width and generation"
            if in_small_slot
            else "reseat the card and its riser, set the slot to full speed in the BIOS, then compare: "
            f"lspci -vv -s {pci}",
        )


def _rate(transfers: float, lanes: float) -> float:
    """B/s one way: 8b/10b until PCIe 2, 128b/130b since (PCI-SIG, PCI Express Base Specification)."""
    return transfers * lanes * (0.8 if transfers <= 5e9 else 128 / 130) / 8


def _link(transfers: float, lanes: float) -> str:
    return f"x{lanes:.0f} at {transfers / 1e9:g} GT/s"


def _shared_paths(evidence: Evidence) -> Iterator[Finding]:
    """GPUs that lose much of their bandwidth while the others copy too, worst way first; one finding a host."""
    alone = {_key(r): r for r in evidence.measurements(NAME, "bandwidth") if r.params.get("gpus") == "one"}
    together = {_key(r): r for r in evidence.measurements(NAME, "bandwidth") if r.params.get("gpus") == "all"}
    for host in dict.fromkeys(host for host, _, _ in together):
        slowed = [
            (_median(r) / _median(alone[key]), alone[key], r)
            for key, r in together.items()
            if key[0] == host and key[2] in WAYS and key in alone and _median(r) < KEPT * _median(alone[key])
        ]
        if not slowed:
            continue
        worst, _, record = min(slowed, key=lambda one: one[0])
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
            evidence=[one.id for _, *both in slowed for one in both],
            details=[
                f"{r.subject.device}, {WAYS[str(r.params['direction'])]}: {format_quantity(_median(one), 'B/s')} "
                f"alone, {format_quantity(_median(r), 'B/s')} with all"
                for _, one, r in slowed
            ],
            fix="nvidia-smi topo -m and lspci -tv show which GPUs hang on one switch or processor: spread them "
            "over the slots of all processors; 'assay mem' tells whether the memory is fast enough",
        )


def _key(record: Measurement) -> tuple[str | None, str | None, str]:
    return record.subject.host, record.subject.device, str(record.params.get("direction"))
