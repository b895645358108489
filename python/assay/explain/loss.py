"""Packet loss: the host and the side that lose TCP segments, from the kernels' counters.

A sender counts the segments that it sent again, a receiver those that arrived behind a gap; where the kernel tells, a
sender counts them for each receiver. ``loss_fit`` finds the few sides that explain the counts. Under the load of a
sweep every switch drops segments: that is TCP's congestion control and not a fault. There a host must exceed its peers
by more, and only hosts of the same role are compared.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np

from assay.explain.evidence import Evidence
from assay.explain.loss_fit import LossShares, fit_hosts, fit_pairs
from assay.explain.matrix import ONE_WAY, PairMatrix, host_of
from assay.records.schema import Finding, Subject
from assay.records.units import format_share

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MEASUREMENT = "network.counters"
# Of the segments. TCP alone on a path that it fills loses less than the first (0.05 % in a lab); under load a single
# full queue costs one host up to a third of the second.
MIN_LOSS = {ONE_WAY: 0.002, "network.all_to_all": 0.01}
MIN_COUNT = 20.0  # segments; fewer may be a few full queues
MIN_RATIO = {ONE_WAY: 3.0, "network.all_to_all": 5.0}  # over the usual share
MIN_GAPS = (
    0.5  # segments behind a gap at the receivers for each that was sent again; else they were only late
)
MAX_FINDINGS = 8

Counts = dict[str, float]
Side = Literal["transmit", "receive"]


@dataclass
class Losses:
    """Segments by host: sent, sent again, and arrived behind a gap; ``ids`` of the records.

    ``receivers``: the partners to which each host sends. ``pairs``: segments sent and sent again, by host and
    receiver; empty if the kernel does not tell.
    """

    sent: Counts = field(default_factory=dict)
    again: Counts = field(default_factory=dict)
    behind: Counts = field(default_factory=dict)
    ids: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    receivers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    pairs: dict[tuple[str, str], Counts] = field(default_factory=lambda: defaultdict(dict))


def packet_loss(evidence: Evidence) -> list[Finding]:
    """Reports each lossy side of a host, and each lossy pair, once; the one-way measurement counts before the sweep."""
    findings: dict[tuple[str, str], Finding] = {}
    for measurement, matrix in ((ONE_WAY, evidence.one_way), ("network.all_to_all", evidence.matrix)):
        losses = _read(evidence, measurement, matrix)
        hosts = [host for host in losses.sent if losses.sent[host] > 0]
        if not hosts:
            continue
        fit = _fit_of_pairs(losses, hosts) or _fit_of_hosts(losses, hosts)
        threshold = max(MIN_LOSS[measurement], MIN_RATIO[measurement] * fit.usual)
        for host, side, share in _lossy_sides(losses, hosts, fit, threshold):
            findings.setdefault((host, side), _side_finding(losses, host, side, share))
        for host, peer, share in _lossy_pairs(losses, hosts, fit, threshold):
            findings.setdefault((host, peer), _pair_finding(losses, host, peer, share))
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
        host, peer = record.subject.host, record.subject.peer
        if record.metric not in into or record.params.get("during") != during or not host:
            continue
        losses.ids[host].append(record.id)
        if peer:
            losses.pairs[host, peer][record.metric] = record.median
        else:
            into[record.metric][host] = record.median
    hosts = [host_of(label) for label in matrix.hosts]
    for source, target in zip(matrix.source, matrix.target, strict=True):
        losses.receivers[hosts[source]].add(hosts[target])
    return losses


def _lossy_sides(
    losses: Losses, hosts: list[str], fit: LossShares, threshold: float
) -> list[tuple[str, Side, float]]:
    """Returns (host, side, share of its segments that are lost), the largest share first."""
    sent, received = fit.flow.sum(axis=1), fit.flow.sum(axis=0)
    lossy: list[tuple[str, Side, float]] = []
    for i, share in fit.transmit.items():
        lost = share * sent[i]
        gaps = sum(losses.behind.get(receiver, 0.0) for receiver in losses.receivers[hosts[i]])
        if share >= threshold and lost >= MIN_COUNT and gaps >= MIN_GAPS * lost:
            lossy.append((hosts[i], "transmit", share))
    for i, share in fit.receive.items():
        lost = share * received[i]
        if share >= threshold and lost >= MIN_COUNT and losses.behind.get(hosts[i], 0.0) >= MIN_GAPS * lost:
            lossy.append((hosts[i], "receive", share))
    return sorted(lossy, key=lambda found: -found[2])


def _lossy_pairs(
    losses: Losses, hosts: list[str], fit: LossShares, threshold: float
) -> list[tuple[str, str, float]]:
    """Returns (host, receiver, share of its segments that are lost), the largest share first."""
    lossy = [
        (hosts[i], hosts[j], share)
        for (i, j), share in fit.pairs.items()
        if share >= threshold
        and share * fit.flow[i, j] >= MIN_COUNT
        and losses.behind.get(hosts[j], 0.0) >= MIN_GAPS * share * fit.flow[i, j]
    ]
    return sorted(lossy, key=lambda found: -found[2])


def _fit_of_pairs(losses: Losses, hosts: list[str]) -> LossShares | None:
    """Returns None unless all pairs of the measurement counted."""
    from scipy.sparse import csr_array  # slow to import, rarely needed

    measured = [(host, peer) for host in hosts for peer in losses.receivers[host] if peer in losses.sent]
    counted = [pair for pair in measured if losses.pairs.get(pair, {}).get("tcp_sent", 0.0) > 0]
    if not counted or len(counted) < len(measured):
        return None
    index = {host: i for i, host in enumerate(hosts)}
    cells = np.array([(index[host], index[peer]) for host, peer in counted]).T
    flow, again = (
        csr_array(
            ([losses.pairs[pair].get(metric, 0.0) for pair in counted], (cells[0], cells[1])),
            shape=(len(hosts), len(hosts)),
        )
        for metric in ("tcp_sent", "tcp_retransmitted")
    )
    return fit_pairs(flow, again, MAX_FINDINGS)


def _fit_of_hosts(losses: Losses, hosts: list[str]) -> LossShares:
    flow = _flow(losses, hosts)
    again = np.array([losses.again.get(host, 0.0) for host in hosts], dtype=float)
    behind = np.array([losses.behind.get(host, 0.0) for host in hosts], dtype=float)
    # One lost segment puts all that follow in its window behind a gap, so the sums are made equal.
    behind *= min(1.0, float(again.sum()) / max(1.0, float(behind.sum())))
    return fit_hosts(flow, again, behind, MAX_FINDINGS)


def _flow(losses: Losses, hosts: list[str]) -> csr_array:
    """Returns the segments from each host to each; a host sends evenly to all its receivers."""
    from scipy.sparse import csr_array  # slow to import, rarely needed

    index = {host: i for i, host in enumerate(hosts)}
    receivers = [[index[r] for r in losses.receivers[host] if r in index] for host in hosts]
    cells = np.array([(i, j) for i in range(len(hosts)) for j in receivers[i]], dtype=int).reshape(-1, 2)
    each = [losses.sent[host] / max(1, len(row)) for host, row in zip(hosts, receivers, strict=True)]
    return csr_array(
        (np.array(each)[cells[:, 0]], (cells[:, 0], cells[:, 1])), shape=(len(hosts), len(hosts))
    )


def _side_finding(losses: Losses, host: str, side: Side, share: float) -> Finding:
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


def _pair_finding(losses: Losses, host: str, peer: str, share: float) -> Finding:
    counts = losses.pairs[host, peer]
    return Finding(
        rule="packet_loss",
        cause=f"{host} loses {format_share(share)} of the packets that it sends to {peer}, "
        "more than their other partners explain",
        subject=Subject(host=host, peer=peer),
        severity="warning",
        confidence=0.7,
        evidence=sorted(losses.ids[host]),
        details=[
            f"TCP on {host} sent {counts.get('tcp_retransmitted', 0.0):.0f} of {counts.get('tcp_sent', 0.0):.0f} "
            f"segments to {peer} again"
        ],
        fix=f"check the links that only this pair's route uses: traceroute from {host} to {peer}, and the error "
        "counters of the switches' ports between them",
    )
