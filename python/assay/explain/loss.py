"""Packet loss: the host and the side that lose TCP segments, from the kernels' counters.

A sender counts the segments that it retransmits, a receiver those that arrive out of order (behind a gap). Newer
kernels count retransmissions for each receiver. ``loss_fit`` finds the few sides of hosts that explain the counts.
Under the load of a sweep every switch drops segments: that is TCP's congestion control and not a fault. There a host
must exceed its peers by more, and only hosts of the same role are compared. Nor is a host at fault for what may be
lost on a slow path between groups of hosts, whose queue all of its senders fill; nor for what it loses in the sweep
alone, if it loses less than a fifth of that one way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np
from ClusterShell.NodeSet import NodeSet

from assay.explain.evidence import Evidence
from assay.explain.loss_fit import LossShares, fit_hosts, fit_pairs
from assay.explain.matrix import ONE_WAY, PairMatrix, host_of
from assay.explain.suspect import Suspect
from assay.records.schema import Finding, Subject
from assay.records.units import format_share

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MEASUREMENT = "network.counters"
# Least lost share of the segments. One TCP flow that fills its path loses less than the first value (0.05 % in a lab);
# under load a single full queue costs one host up to a third of the second value.
MIN_LOSS = {ONE_WAY: 0.002, "network.all_to_all": 0.01}
MIN_COUNT = 20.0  # segments; fewer may be a few full queues
MIN_RATIO = {ONE_WAY: 3.0, "network.all_to_all": 5.0}  # over the usual share
# Least number of segments that arrive out of order for each retransmitted one. With fewer, the segments were not lost,
# only late.
MIN_GAPS = 0.5
MAX_FINDINGS = 8

Counts = dict[str, float]
Side = Literal["transmit", "receive"]


@dataclass
class Losses:
    """Segments by host: sent, retransmitted, and arrived out of order; ``ids`` of the records.

    ``receivers``: the partners to which each host sends. ``pairs``: the counts by host and receiver; empty if the
    kernel does not count them.
    """

    sent: Counts = field(default_factory=dict)
    retransmitted: Counts = field(default_factory=dict)
    out_of_order: Counts = field(default_factory=dict)
    ids: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    receivers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    pairs: dict[tuple[str, str], Counts] = field(default_factory=lambda: defaultdict(dict))


def packet_loss(evidence: Evidence) -> list[Finding]:
    """Reports each lossy side of a host, and each lossy pair, once; the one-way measurement counts before the sweep."""
    findings: dict[tuple[str, str], Finding] = {}
    paths = {
        suspect: outcome is not None and outcome.persists
        for suspect, outcome in evidence.suspects
        if suspect.side == "block" and min(len(suspect.hosts), len(suspect.peers)) > 1
    }
    one_way = Losses()
    for measurement, matrix in ((ONE_WAY, evidence.one_way), ("network.all_to_all", evidence.matrix)):
        losses = _read_losses(evidence, measurement, matrix)
        hosts = [host for host in losses.sent if losses.sent[host] > 0]
        if not hosts:
            continue
        of_pairs = _fit_of_pairs(losses, hosts, paths)
        fit = of_pairs or _fit_of_hosts(losses, hosts)
        threshold = max(MIN_LOSS[measurement], MIN_RATIO[measurement] * fit.usual)
        for host, side, share in _lossy_sides(losses, hosts, fit, threshold):
            finding = _side_finding(losses, host, side, share)
            if of_pairs is None and (path := _slow_path(host, side, paths)):
                if paths[path]:  # has a finding of its own
                    continue
                _blame_path(finding, path)
            elif measurement != ONE_WAY and _is_clean(one_way, host, side, share):
                _blame_load(finding)
            findings.setdefault((host, side), finding)
        for host, peer, share in _lossy_pairs(losses, hosts, fit, threshold):
            findings.setdefault((host, peer), _pair_finding(losses, host, peer, share))
        if measurement == ONE_WAY:
            one_way = losses
    return list(findings.values())


def _read_losses(evidence: Evidence, measurement: str, matrix: PairMatrix) -> Losses:
    """Reads the counters of one measurement. The counters of a sweep have no name of a measurement: they belong to the
    measurement of ``matrix``."""
    losses = Losses()
    if measurement not in {name for name, _, _ in matrix.layers}:
        return losses
    counts_by_metric = {
        "tcp_sent": losses.sent,
        "tcp_retransmitted": losses.retransmitted,
        "tcp_out_of_order": losses.out_of_order,
    }
    during = measurement if measurement == ONE_WAY else None
    for record in evidence.measurements(MEASUREMENT):
        host, peer = record.subject.host, record.subject.peer
        if record.metric not in counts_by_metric or record.params.get("during") != during or not host:
            continue
        losses.ids[host].append(record.id)
        if peer:
            losses.pairs[host, peer][record.metric] = record.median
        else:
            counts_by_metric[record.metric][host] = record.median
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
        gaps = sum(losses.out_of_order.get(receiver, 0.0) for receiver in losses.receivers[hosts[i]])
        if share >= threshold and lost >= MIN_COUNT and gaps >= MIN_GAPS * lost:
            lossy.append((hosts[i], "transmit", share))
    for i, share in fit.receive.items():
        lost = share * received[i]
        if (
            share >= threshold
            and lost >= MIN_COUNT
            and losses.out_of_order.get(hosts[i], 0.0) >= MIN_GAPS * lost
        ):
            lossy.append((hosts[i], "receive", share))
    return sorted(lossy, key=lambda lossy_entry: -lossy_entry[2])


def _lossy_pairs(
    losses: Losses, hosts: list[str], fit: LossShares, threshold: float
) -> list[tuple[str, str, float]]:
    """Returns (host, receiver, share of its segments that are lost), the largest share first."""
    lossy = [
        (hosts[i], hosts[j], share)
        for (i, j), share in fit.pairs.items()
        if share >= threshold
        and share * fit.flow[i, j] >= MIN_COUNT
        and losses.out_of_order.get(hosts[j], 0.0) >= MIN_GAPS * share * fit.flow[i, j]
    ]
    return sorted(lossy, key=lambda lossy_entry: -lossy_entry[2])


def _slow_path(host: str, side: Side, paths: Iterable[Suspect]) -> Suspect | None:
    """The first of the paths that traffic of this side passes."""
    return next(
        (path for path in paths if host in map(host_of, path.hosts if side == "transmit" else path.peers)),
        None,
    )


def _blame_path(finding: Finding, path: Suspect) -> None:
    """Makes a warning of a finding on packets that a slow path may have dropped."""
    ends = " to ".join(str(NodeSet.fromlist(list(map(host_of, hosts)))) for hosts in (path.hosts, path.peers))
    finding.severity, finding.confidence = "warning", 0.5
    finding.details.append(f"the path from {ends} is slow, and its full queue may have dropped them")
    finding.fix = f"look at the path from {ends} first; then measure again"


def _is_clean(one_way: Losses, host: str, side: Side, share: float) -> bool:
    """Whether this side certainly does not lose this share of its segments one way: with half of its partners it loses
    far less. The other half may have slow or lossy sides themselves."""
    end = 0 if side == "transmit" else 1
    counts = [
        (counts.get("tcp_retransmitted", 0.0), counts["tcp_sent"])
        for pair, counts in one_way.pairs.items()
        if pair[end] == host and counts.get("tcp_sent", 0.0) > 0
    ]
    counts.sort(key=lambda count: count[0] / count[1])
    lost, sent = np.sum(counts[: (len(counts) + 1) // 2], axis=0) if counts else (0.0, 0.0)
    expected = share * sent
    return bool(expected >= MIN_COUNT and lost * MIN_RATIO["network.all_to_all"] < expected)


def _blame_load(finding: Finding) -> None:
    """Makes a warning of a finding on packets that were lost in the sweep alone."""
    finding.severity, finding.confidence = "warning", 0.5
    finding.details.append(
        "one way it loses less than a fifth of that: a queue that the sweep filled may have dropped them"
    )
    finding.fix = "look at the other findings first; then measure again"


def _fit_of_pairs(losses: Losses, hosts: list[str], paths: Iterable[Suspect]) -> LossShares | None:
    """Fits the pairs that use none of the slow ``paths``. Returns None unless all of them counted."""
    from scipy.sparse import csr_array  # slow to import, rarely needed

    slow = {(host_of(a), host_of(b)) for path in paths for a in path.hosts for b in path.peers}
    measured = [
        (host, peer)
        for host in hosts
        for peer in losses.receivers[host]
        if peer in losses.sent and (host, peer) not in slow
    ]
    counted = [pair for pair in measured if losses.pairs.get(pair, {}).get("tcp_sent", 0.0) > 0]
    if not counted or len(counted) < len(measured):
        return None
    index = {host: i for i, host in enumerate(hosts)}
    cells = np.array([(index[host], index[peer]) for host, peer in counted]).T
    flow, retransmitted = (
        csr_array(
            ([losses.pairs[pair].get(metric, 0.0) for pair in counted], (cells[0], cells[1])),
            shape=(len(hosts), len(hosts)),
        )
        for metric in ("tcp_sent", "tcp_retransmitted")
    )
    return fit_pairs(flow, retransmitted, MAX_FINDINGS)


def _fit_of_hosts(losses: Losses, hosts: list[str]) -> LossShares:
    flow = _estimated_flow(losses, hosts)
    retransmitted = np.array([losses.retransmitted.get(host, 0.0) for host in hosts], dtype=float)
    out_of_order = np.array([losses.out_of_order.get(host, 0.0) for host in hosts], dtype=float)
    # One lost segment puts all that follow in its window behind a gap, so the sums are made equal.
    out_of_order *= min(1.0, float(retransmitted.sum()) / max(1.0, float(out_of_order.sum())))
    return fit_hosts(flow, retransmitted, out_of_order, MAX_FINDINGS)


def _estimated_flow(losses: Losses, hosts: list[str]) -> csr_array:
    """Returns the segments from each host to each; a host sends evenly to all its receivers."""
    from scipy.sparse import csr_array  # slow to import, rarely needed

    index = {host: i for i, host in enumerate(hosts)}
    receivers = [[index[r] for r in losses.receivers[host] if r in index] for host in hosts]
    cells = np.array([(i, j) for i in range(len(hosts)) for j in receivers[i]], dtype=int).reshape(-1, 2)
    segments_per_receiver = [
        losses.sent[host] / max(1, len(row)) for host, row in zip(hosts, receivers, strict=True)
    ]
    return csr_array(
        (np.array(segments_per_receiver)[cells[:, 0]], (cells[:, 0], cells[:, 1])),
        shape=(len(hosts), len(hosts)),
    )


def _side_finding(losses: Losses, host: str, side: Side, share: float) -> Finding:
    verb = "sends" if side == "transmit" else "receives"
    retransmitted, out_of_order = losses.retransmitted.get(host, 0.0), losses.out_of_order.get(host, 0.0)
    others = [other for other in losses.sent if other != host]
    usual_retransmitted = median([losses.retransmitted.get(other, 0.0) for other in others] or [0.0])
    usual_out_of_order = median([losses.out_of_order.get(other, 0.0) for other in others] or [0.0])
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
            f"TCP on {host} sent {retransmitted:.0f} segments again, "
            f"the median of the others {usual_retransmitted:.0f}",
            f"{out_of_order:.0f} segments arrived there behind a gap, "
            f"at the median of the others {usual_out_of_order:.0f}",
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
