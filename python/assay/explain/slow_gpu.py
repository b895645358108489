"""Names a GPU whose copies, alone, are far slower than those of the other GPUs of its host.

GPUs of one model behind equal links should reach the same rates, whatever these are. "Far slower" is as for nodes among
their peers (``assay.explain.peers``): by a fifth of the peers' median, by 30 % with up to 7 peers, and by far more than
the others and the GPU's own samples scatter. With fewer than ``MIN_PEERS`` others it may as well be they that are not
as they should be, so it is only a warning.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from assay.explain.evidence import Evidence
from assay.explain.gpu import NAME, Device, card_facts_of, link_text, links_of
from assay.explain.peers import is_slow
from assay.records.schema import Finding, Measurement, Scalar
from assay.records.units import format_quantity, format_share

MIN_PEERS = 3
COPIES = {"h2d": "copies to it", "d2h": "copies from it", "both": "copies both ways at once"}


class _Slow(NamedTuple):
    """A rate of a GPU that is slower than its peers'."""

    record: Measurement
    peers: list[Measurement]

    @property
    def direction(self) -> str:
        return COPIES[str(self.record.params["direction"])]

    @property
    def usual(self) -> float:
        return statistics.median(peer.median for peer in self.peers)

    @property
    def share(self) -> float:
        return self.record.median / self.usual


def slow_gpu(evidence: Evidence) -> list[Finding]:
    slow: dict[Device, list[_Slow]] = defaultdict(list)
    for records in _groups(evidence):
        for record in records:
            peers = [peer for peer in records if peer is not record]
            if peers and is_slow(record.median, record.mad, [peer.median for peer in peers]):
                slow[record.subject.host, record.subject.device].append(_Slow(record, peers))
    facts = card_facts_of(evidence)
    return [
        _finding(figures, facts.get((host, str(figures[0].record.params.get("pci"))), {}))
        for (host, _), figures in slow.items()
    ]


def _groups(evidence: Evidence) -> Iterable[list[Measurement]]:
    """The rates that should be equal: of one host, model and link, with the same copies in the same direction."""
    links = links_of(evidence)
    groups: dict[object, dict[str | None, Measurement]] = defaultdict(dict)
    for record in evidence.measurements(NAME, "bandwidth"):
        host, device = record.subject.host, record.subject.device
        if record.params.get("gpus") == "one" and record.params.get("direction") in COPIES:
            link = links[host, device].median if (host, device) in links else None
            copies = [record.params.get(key) for key in ("name", "direction", "size", "copies")]
            groups[host, link, *copies][device] = record  # of several the last
    return [list(group.values()) for group in groups.values()]


def _finding(figures: list[_Slow], card_facts: Mapping[str, Scalar]) -> Finding:
    worst = min(figures, key=lambda figure: figure.share)
    record, peers = worst.record, worst.peers
    pci = record.params.get("pci", "")
    others = str(peers[0].subject.device) if len(peers) == 1 else f"its peers, median of {len(peers)}"
    cause = (
        f"{record.subject.device}{f' ({pci})' if pci else ''} on {record.subject.host}: {worst.direction} reach "
        f"{format_quantity(record.median, record.unit)}, {format_share(worst.share)} of the "
        f"{format_quantity(worst.usual, record.unit)} of {others}"
    )
    certain = len(peers) >= MIN_PEERS
    if not certain:
        cause += f"; with {len(peers)} to compare with it is open which is as it should be"
    return Finding(
        rule="slow_gpu",
        cause=cause,
        subject=record.subject,
        side="node",
        severity="fault" if certain else "warning",
        effect=worst.share - 1,
        confidence=0.9 if certain else 0.5,
        evidence=[figure.record.id for figure in figures],
        details=[*map(_detail, figures), *_equal_directions(figures), *_link(card_facts)],
        fix=f"compare its link with a peer's: lspci -vv -s {pci or 'ADDRESS'}, nvidia-smi -q -i {pci or 'ADDRESS'} "
        "(clocks, throttling, replays), and who else copies over its switch: nvidia-smi topo -m",
    )


def _detail(figure: _Slow) -> str:
    unit = figure.record.unit
    low, high = min(p.median for p in figure.peers), max(p.median for p in figure.peers)
    return (
        f"{figure.direction}: {format_quantity(figure.record.median, unit)}, its peers from "
        f"{format_quantity(low, unit)} to {format_quantity(high, unit)}"
    )


def _equal_directions(figures: list[_Slow]) -> list[str]:
    slow = {figure.direction for figure in figures}
    others = [text for text in COPIES.values() if text not in slow]
    return [f"not slower: {', '.join(others)}"] if others else []


def _link(facts: Mapping[str, Scalar]) -> list[str]:
    """The link beside what card and slot can take, of those that are known."""
    known = {
        title: link_text(
            float(facts[f"pcie.{prefix}speed{suffix}"]), float(facts[f"pcie.{prefix}width{suffix}"])
        )
        for title, prefix, suffix in (
            ("its link", "", ""),
            ("the card", "", "_max"),
            ("its slot", "slot_", "_max"),
        )
        if f"pcie.{prefix}speed{suffix}" in facts and f"pcie.{prefix}width{suffix}" in facts
    }
    return ["; ".join(f"{title}: {text}" for title, text in known.items())] if known else []
