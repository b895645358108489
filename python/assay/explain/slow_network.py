"""Finds a network that is slow as a whole: every host stays below the rate that is expected of its link.

Rules that compare hosts with each other see nothing where all are slow alike: a cluster that fell back to a slower
link, a switch that limits every port, an MPI that uses TCP on RDMA adapters. Here the rate of each host's best pair,
in one direction and without other traffic, is compared with the interval of the adapter that carried its bytes
(``assay.explain.expected``). ``slow_host`` finds a single slow host among fast ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from ClusterShell.NodeSet import NodeSet

from assay.explain.adapters import IDLE, adapters_of
from assay.explain.evidence import Evidence
from assay.explain.expected import FAULT_SHARE, Expected, expected_figures
from assay.explain.matrix import BANDWIDTH_SIZE, ONE_WAY, host_of
from assay.records.matrices import cells_of
from assay.records.schema import AnyRecord, Finding, Matrix, Measurement, Pairs, Subject
from assay.records.units import format_bit_rate

PAIRS_ALONE = "network.pairs"
MIN_SLOW_SHARE = 0.9  # if this share of the hosts is slow, the network is at fault, not the hosts
MAX_EVIDENCE = 4


@dataclass
class BestPair:
    """The rate of a host's best pair, in B/s, and the records that have it."""

    rate: float = 0.0
    ids: list[int] = field(default_factory=list)

    def add(self, rate: float, record: int) -> None:
        if rate > self.rate:
            self.rate, self.ids = rate, [record]


@dataclass(frozen=True)
class HostComparison:
    """A host, the rate of its best pair, and the interval expected of its adapter."""

    host: str
    reached: BestPair
    expected: Expected


def best_pairs_by_host(records: Iterable[AnyRecord]) -> dict[str, BestPair]:
    """Returns the best pair of each host, as sender or receiver, in one direction, with large messages."""
    hosts: dict[str, BestPair] = defaultdict(BestPair)
    for record in records:
        if not isinstance(record, Pairs | Matrix | Measurement) or record.metric != "bandwidth":
            continue
        size = record.params.get("size", 0)
        if record.name not in (ONE_WAY, PAIRS_ALONE) or not isinstance(size, int) or size < BANDWIDTH_SIZE:
            continue
        for host, peer, rate in _best_pairs(record):
            if host_of(host) != host_of(peer):
                hosts[host_of(host)].add(rate, record.id)
                hosts[host_of(peer)].add(rate, record.id)
    return dict(hosts)


def _best_pairs(record: Pairs | Matrix | Measurement) -> Iterable[tuple[str, str, float]]:
    """Yields (sender, receiver, B/s): of a matrix the best of each sender and the best of each receiver."""
    if isinstance(record, Measurement):
        if record.summary and record.subject.host and record.subject.peer:
            yield record.subject.host, record.subject.peer, record.median
    elif isinstance(record, Pairs):
        host = str(record.subject.host)
        yield from ((host, peer, rate) for peer, rate in zip(record.peers, record.values, strict=True))
    else:
        source, target, value = (np.asarray(column) for column in cells_of(record))
        for end in (source, target):
            order = np.lexsort((value, end))
            last = np.flatnonzero(np.append(np.diff(end[order]) != 0, True)) if order.size else order
            for k in order[last]:
                yield record.hosts[source[k]], record.hosts[target[k]], float(value[k])


def compare_hosts(evidence: Evidence) -> list[HostComparison]:
    """Returns the hosts whose pairs were measured and whose adapter has an interval."""
    intervals = {
        (figure.host, figure.device): figure
        for figure in expected_figures(evidence.records)
        if figure.name == ONE_WAY
    }
    adapters = adapters_of(evidence.records)
    result = []
    for host, reached in best_pairs_by_host(evidence.records).items() if intervals else ():
        host_adapters = adapters.get(host)
        carried = (
            {device: n for device, n in host_adapters.sent.items() if (host, device) in intervals}
            if host_adapters
            else {}
        )
        used = [device for device, n in carried.items() if n >= IDLE * sum(carried.values())]
        if used and sum(carried.values()) > 0:  # with several, a pair may have used the slowest
            slowest = min((intervals[host, device] for device in used), key=lambda figure: figure.low)
            result.append(HostComparison(host, reached, slowest))
    return result


def slow_network(evidence: Evidence) -> list[Finding]:
    """Finds a network on which most hosts stay below the rate expected of their links."""
    hosts = compare_hosts(evidence)
    slow = [entry for entry in hosts if entry.reached.rate < entry.expected.low]
    if not slow or len(slow) < MIN_SLOW_SHARE * len(hosts):
        return []
    best = max(slow, key=lambda entry: entry.reached.rate / entry.expected.low)
    share = best.reached.rate / best.expected.low
    count = "all" if len(slow) == len(hosts) else f"{len(slow)} of"
    return [
        Finding(
            rule="slow_network",
            cause=f"{count} {len(hosts)} hosts are slower than their links: the best reaches "
            f"{format_bit_rate(best.reached.rate)} where {format_bit_rate(best.expected.low)} to "
            f"{format_bit_rate(best.expected.high)} are expected of {best.expected.device}",
            subject=Subject(device=best.expected.device),
            side="block",
            severity="fault" if share < FAULT_SHARE else "warning",
            effect=share - 1,
            confidence=0.7,
            evidence=sorted({number for entry in slow[:MAX_EVIDENCE] for number in entry.reached.ids}),
            details=[
                f"{NodeSet.fromlist([entry.host for entry in slow])}: no pair of these hosts, one direction alone, "
                "reaches what one link lets expect",
                *best.expected.steps,
            ],
            fix="no host is slower than the others, so look at what they share: the transport that the MPI chose, the "
            "rates and limits of the switch ports, MTU, and links between switches",
        )
    ]


def describe_level(evidence: Evidence) -> str:
    """Says whether a network that is slow as a whole would have shown; empty for a run without such pairs."""
    if not best_pairs_by_host(evidence.records):
        return ""
    hosts = compare_hosts(evidence)
    if not hosts:
        return "no link tells its rate, so a network that is slow as a whole would not show"
    least = min(hosts, key=lambda entry: entry.reached.rate / entry.expected.low)
    return (
        f"every host reaches at least {format_bit_rate(least.reached.rate)} with its best pair, and "
        f"{format_bit_rate(least.expected.low)} are expected of {least.expected.device}"
    )
