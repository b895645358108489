"""Packet loss: the host and the side that lose TCP segments, from the kernels' counters.

A sender counts the segments that it sent again, a receiver those that arrived behind a gap; ``loss_fit`` finds the few
sides that explain the counts of all hosts. Under the load of a sweep every switch drops segments: that is TCP's
congestion control and not a fault. There a host must exceed its peers by more, and only hosts of the same role are
compared.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np

from assay.explain.evidence import Evidence
from assay.explain.loss_fit import fit_losses
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
        for host, side, share in _lossy(losses, MIN_LOSS[measurement], MIN_RATIO[measurement]):
            findings.setdefault((host, side), _finding(losses, host, side, share))
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
    """Returns (host, side, share of its segments that are lost), the largest share first."""
    hosts = [host for host in losses.sent if losses.sent[host] > 0]
    if not hosts:
        return []
    flow = _flow(losses, hosts)
    again = np.array([losses.again.get(host, 0.0) for host in hosts], dtype=float)
    behind = np.array([losses.behind.get(host, 0.0) for host in hosts], dtype=float)
    # One lost segment puts all that follow in its window behind a gap, so the sums are made equal.
    behind *= min(1.0, float(again.sum()) / max(1.0, float(behind.sum())))
    fit = fit_losses(flow, again, behind, MAX_FINDINGS)
    threshold = max(least, ratio * fit.usual)
    sent, received = flow.sum(axis=1), flow.sum(axis=0)
    lossy: list[tuple[str, Side, float]] = [
        (hosts[i], "transmit", share)
        for i, share in fit.transmit.items()
        if share >= threshold
        and share * sent[i] >= MIN_COUNT
        and _gaps_behind(losses, hosts[i]) >= MIN_GAPS * share * sent[i]
    ]
    lossy += [
        (hosts[i], "receive", share)
        for i, share in fit.receive.items()
        if share >= threshold and share * received[i] >= MIN_COUNT
    ]
    return sorted(lossy, key=lambda found: -found[2])


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


def _gaps_behind(losses: Losses, host: str) -> float:
    """Returns how many segments arrived behind a gap at the receivers of a host."""
    return sum(losses.behind.get(receiver, 0.0) for receiver in losses.receivers[host])


def _finding(losses: Losses, host: str, side: Side, share: float) -> Finding:
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
