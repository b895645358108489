"""Packet loss: the host and the side that lose TCP segments, from the kernels' counters.

A sender counts the segments that it sent again, a receiver those that arrived behind a gap. A host that loses what it
sends has sent many segments again, and its receivers share the gaps. A host that loses what it receives has many gaps,
and its senders share the repetitions. So the largest count names the side; the part of the partners' counts that it
explains is subtracted before the next one is sought. The partners do not share it evenly, so a second host is named
only if at least as much again remains. Under the load of a sweep every switch drops segments: that is TCP's congestion
control and not a fault. There a host must exceed its peers by more, and only hosts of the same role are compared.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from assay.explain.evidence import Evidence
from assay.explain.matrix import ONE_WAY, PairMatrix, host_of
from assay.records.schema import Finding, Subject
from assay.records.units import format_share

MEASUREMENT = "network.counters"
# Of the segments. TCP alone on a path that it fills loses less than the first (0.05 % in a lab); under load a single
# full queue costs one host up to a third of the second.
MIN_LOSS = {ONE_WAY: 0.002, "network.all_to_all": 0.01}
MIN_COUNT = 20.0  # segments; fewer may be a few full queues
MIN_RATIO = {ONE_WAY: 3.0, "network.all_to_all": 5.0}  # over the median host
MIN_GAPS = (
    0.5  # segments behind a gap at the receivers for each that was sent again; else they were only late
)
MAX_FINDINGS = 8

Counts = dict[str, float]
Side = Literal["transmit", "receive"]


@dataclass
class Losses:
    """Segments by host: sent, sent again, and arrived behind a gap; ``ids`` of the records.

    ``receivers``, ``senders``: the partners of each host.
    """

    sent: Counts = field(default_factory=dict)
    again: Counts = field(default_factory=dict)
    behind: Counts = field(default_factory=dict)
    ids: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    receivers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    senders: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def packet_loss(evidence: Evidence) -> list[Finding]:
    """Reports each lossy side of a host once; the one-way measurement counts before the sweep."""
    findings: dict[tuple[str, Side], Finding] = {}
    for measurement, matrix in ((ONE_WAY, evidence.one_way), ("network.all_to_all", evidence.matrix)):
        losses = _read(evidence, measurement, matrix)
        for host, side, lost in _lossy(losses, MIN_LOSS[measurement], MIN_RATIO[measurement])[:MAX_FINDINGS]:
            findings.setdefault((host, side), _finding(losses, host, side, lost))
    return list(findings.values())


def _read(evidence: Evidence, measurement: str, matrix: PairMatrix) -> Losses:
    """Reads the counters of one measurement; those of a sweep do not say which, its matrix does."""
    losses = Losses()
    if measurement not in {name for name, _, _ in matrix.layers}:
        return losses
    into = {
        "tcp_sent": losses.sent,
        "tcp_retransmitted": losses.again,
        "tcp_out_of_order": losses.behind,
    }
    during = measurement if measurement == ONE_WAY else None
    for record in evidence.measurements(MEASUREMENT):
        if record.metric in into and record.params.get("during") == during and record.subject.host:
            into[record.metric][record.subject.host] = record.median
            losses.ids[record.subject.host].append(record.id)
    hosts = [host_of(label) for label in matrix.hosts]
    for source, target in zip(matrix.source, matrix.target, strict=True):
        losses.receivers[hosts[source]].add(hosts[target])
        losses.senders[hosts[target]].add(hosts[source])
    return losses


def _lossy(losses: Losses, least: float, ratio: float) -> list[tuple[str, Side, float]]:
    """Returns (host, side, segments lost), the worst first."""
    hosts = [host for host in losses.sent if losses.sent[host] > 0]
    again = {host: losses.again.get(host, 0.0) for host in hosts}
    # One lost segment puts all that follow in its window behind a gap, so the sums are made equal.
    scale = min(1.0, sum(again.values()) / max(1.0, sum(losses.behind.values())))
    missed = {host: losses.behind.get(host, 0.0) * scale for host in hosts}
    unexplained: dict[Side, Counts] = {"transmit": again, "receive": missed}
    total = {side: {host: _total(losses, host, side) for host in hosts} for side in unexplained}
    explained: dict[Side, Counts] = {side: dict.fromkeys(hosts, 0.0) for side in unexplained}
    lossy_sides: list[tuple[str, Side, float]] = []
    while True:
        # The usual loss counts only segments that the hosts named so far do not explain.
        usual = {
            side: median([unexplained[side][host] / total[side][host] for host in hosts] or [0.0])
            for side in unexplained
        }
        lost, side, host = max(
            (
                (unexplained[side][host], side, host)
                for side in unexplained
                for host in hosts
                if unexplained[side][host] >= max(MIN_COUNT, explained[side][host])
                and unexplained[side][host] / total[side][host] >= max(least, ratio * usual[side])
                and (side == "receive" or _gaps_behind(losses, host) >= MIN_GAPS * unexplained[side][host])
            ),
            default=(0.0, "transmit", ""),
        )
        if not host:
            return lossy_sides
        lossy_sides.append((host, side, lost))
        unexplained[side][host] = 0.0
        other: Side = "receive" if side == "transmit" else "transmit"
        partners = (losses.receivers if side == "transmit" else losses.senders)[host]
        for partner in partners & unexplained[other].keys():
            unexplained[other][partner] -= lost / len(partners)
            explained[other][partner] += lost / len(partners)


def _gaps_behind(losses: Losses, host: str) -> float:
    """Returns how many segments arrived behind a gap at the receivers of a host."""
    return sum(losses.behind.get(receiver, 0.0) for receiver in losses.receivers[host])


def _total(losses: Losses, host: str, side: Side) -> float:
    """Returns the segments that a host sent, or that its partners sent to it if each sent evenly to all of its own."""
    if side == "transmit":
        return max(1.0, losses.sent[host])
    senders = losses.senders[host]
    return max(1.0, sum(losses.sent.get(s, 0.0) / max(1, len(losses.receivers[s])) for s in senders))


def _finding(losses: Losses, host: str, side: Side, lost: float) -> Finding:
    share = lost / _total(losses, host, side)
    verb = "sends" if side == "transmit" else "receives"
    again, behind = losses.again.get(host, 0.0), losses.behind.get(host, 0.0)
    others = [other for other in losses.sent if other != host]
    usual_again = median([losses.again.get(other, 0.0) for other in others] or [0.0])
    usual_behind = median([losses.behind.get(other, 0.0) for other in others] or [0.0])
    wire = "from its adapter to the switch" if side == "transmit" else "from the switch to its adapter"
    return Finding(
        rule="packet_loss",
        cause=f"{host} loses {format_share(share)} of the packets that it {verb}",
        subject=Subject(host=host),
        side=side,
        severity="fault",
        confidence=0.9,
        evidence=sorted(losses.ids[host]),
        details=[
            f"TCP on {host} sent {again:.0f} segments again, the median of the others {usual_again:.0f}",
            f"{behind:.0f} segments arrived there behind a gap, at the median of the others {usual_behind:.0f}",
        ],
        fix=f"on {host} check the way {wire}: cable and transceiver, the port's error counters at both ends "
        "(ethtool -S), ring buffers, pause frames",
    )
