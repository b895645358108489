"""How much of a measured loss a host's own limit explains. The network is not accused of what the limit alone explains;
where it explains a part, or nobody can tell how much, both are named; what it does not touch is left as it is.

A limit leaves a share of the rate: a quota the share of the time in which it did not hold the host's processes back, a
shaper its rate. What was measured over what the limit leaves is the rate that a host without the limit would have had.
If the loss of that rate is one that the retest would not confirm (``MIN_EFFECT``), nothing is left for the network to
explain. A quota's share is an upper bound, and relative to that of the other hosts, as the measured loss is. Lost
packets are explained by those that the host's own queues dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from assay.explain.evidence import Evidence
from assay.explain.host_limits import Limit, dropped_by_queues, held_share, host_counters, limits
from assay.explain.matrix import host_of
from assay.explain.retest import MIN_EFFECT
from assay.records.schema import Finding
from assay.records.statistics import median
from assay.records.units import format_share

OF_RATES = ("slow_host", "slow_pair", "congestion")  # their effect is a share of the peers' rate
# Rules whose findings would send a user to the network.
OF_THE_NETWORK = (*OF_RATES, "packet_loss", "event_dip", "event_backpressure", "udp_loss")
ENOUGH = math.exp(MIN_EFFECT)  # of the peers' rate, or of the lost packets: a smaller loss is no fault
MIN_NAMED = 0.1  # share of the loss; a limit that explains less of it is not named in the finding


def name_limits(evidence: Evidence, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with the limits of the hosts that they accuse. A limit that explains a finding is its cause, and has
    no warning of its own beside it."""
    said: set[tuple[str | None, str]] = set()
    for limit in limits(evidence):
        host = limit.counters.host
        accused = [
            finding
            for finding in findings
            if finding.rule in OF_THE_NETWORK and host in (finding.subject.host, finding.subject.peer)
        ]
        if any(
            [_name(evidence, limit, finding) for finding in accused]
        ):  # a list: all findings name the limit
            said.add((host, limit.cause))
    return [
        finding
        for finding in findings
        if finding.rule != "host_limit" or (finding.subject.host, finding.cause) not in said
    ]


def _name(evidence: Evidence, limit: Limit, finding: Finding) -> bool:
    """Adds a limit to a finding. Returns whether it explains the finding alone."""
    share = explained_share(evidence, limit, finding)
    if share is None:
        finding.details.append(
            f"perhaps not the network: {limit.cause}; how much of this it explains is not known"
        )
    elif share >= 1:
        finding.cause += f": {limit.cause}"
        finding.details.append("not the network: this limit explains the loss")
        finding.evidence = sorted({*finding.evidence, limit.counters.ids[limit.kind]})
        finding.fix = limit.fix
    elif share >= MIN_NAMED:
        finding.details.append(
            f"not the network alone: {limit.cause}; that explains {format_share(share)} of the loss at most"
        )
    return share is not None and share >= 1


def explained_share(evidence: Evidence, limit: Limit, finding: Finding) -> float | None:
    """The share of the finding's loss that the limit explains at most: 1 if what is left is no fault; None where it
    cannot be computed."""
    sends = finding.side in ("transmit", "pair") and finding.subject.host == limit.counters.host
    is_shaper = limit.kind.startswith("queue.")
    if is_shaper and finding.side in ("receive", "transmit", "pair") and not sends:
        return 0.0  # a queue of an interface holds back what its host sends
    if finding.rule == "packet_loss" and is_shaper:
        return _share_of_lost(evidence, limit)
    if finding.rule not in OF_RATES or not finding.effect:
        return None
    if is_shaper and sends:
        sent = _sent_rate(evidence, limit, finding.subject.peer)
        return None if sent is None else _share_of_loss(finding.effect, sent / _rate_of(limit))
    if limit.kind == "cpu":
        return _share_of_loss(finding.effect, (1 + finding.effect) / _left_by_quota(evidence, limit))
    return None


def _share_of_loss(effect: float, rate: float) -> float:
    """``rate``: what the host reached, relative to what the limit leaves. Shares of a loss are those of its logarithm,
    since limits multiply."""
    if rate >= ENOUGH:
        return 1.0
    return max(0.0, 1 - math.log(max(rate, 1e-9)) / math.log(max(1 + effect, 1e-9)))


def _share_of_lost(evidence: Evidence, limit: Limit) -> float | None:
    """Packets that the host's queues dropped, over the segments that it had to send again."""
    again = sum(
        record.median
        for record in evidence.measurements("network.counters", "tcp_retransmitted")
        if record.subject.host == limit.counters.host and not record.subject.peer
    )
    if not again:
        return None
    share = dropped_by_queues(limit.counters) / again
    return 1.0 if share >= ENOUGH else share


def _left_by_quota(evidence: Evidence, limit: Limit) -> float:
    """The share of the rate that the host's quota leaves, relative to what those of its peers leave them."""
    counted = host_counters(evidence)
    peers = [
        1 - held_share(counted[host]) if host in counted else 1.0
        for host in sorted(set(evidence.hosts) - {limit.counters.host})
    ]
    usual = median(peers) if peers else 1.0
    return min(1.0, max(1 - held_share(limit.counters), 1e-9) / max(usual, 1e-9))


def _rate_of(limit: Limit) -> float:
    return float(limit.counters.facts[f"{limit.kind}.rate"])


def _sent_rate(evidence: Evidence, limit: Limit, peer: str | None) -> float | None:
    """The rate in B/s at which the host's ranks sent together under load, to ``peer`` or to most; None if it was not
    measured."""
    matrix = evidence.matrix
    peers = [number for number, label in enumerate(matrix.hosts) if peer in (None, host_of(label))]
    is_to_peer = np.isin(matrix.target, peers)
    rates = [
        matrix.typical * math.exp(median(values))
        for number, label in enumerate(matrix.hosts)
        if host_of(label) == limit.counters.host
        and (values := matrix.value[(matrix.source == number) & is_to_peer]).size
    ]
    return sum(rates) if rates else None
