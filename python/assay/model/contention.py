"""Finds which hosts share a cabinet by contention, where latencies show no difference.

Flows between cabinets share the cabinets' links, flows inside a cabinet do not. In a random ring every host
sends to one host and receives from another; a flow that is slow against what its two hosts can do has crossed
cabinets. A ring of n flows tests n pairs. Hosts are grouped so that the groups agree best with all measured
flows. The groups are then tested: flows from each group to another must be slower than rings inside. The result
is added to the observations and the groups are built anew, until they are confirmed. Each group is split again
in the same way, since two small cabinets may look like one among large ones. Where no ring fills a link between
cabinets, the cabinets cannot be found.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from assay.model.network import Topology
from assay.model.rounds import Flow, Result, Round
from assay.model.study import Study, until_steady
from assay.records.schema import Scalar

MIN_HOSTS = 4  # two pairs: fewer cannot be compared
SPARSE_ROUNDS = 32  # limit of the rounds that measure each host's rate almost without contention
FIRST_RINGS = 8  # before groups are tried; without slow flows by then, no ring fills a link
CONFIRMATIONS = 3  # in a row: a host may be in the wrong group by chance
RINGS = 48  # at most, before the search ends without a result
CONTRAST = 1.25  # least ratio of fast to slow flows; below it all flows are of one kind
SLOWED = 0.9  # flows to another group carry less than this share of those inside
SLOWEST = 8  # a flow may be this many times slower than a single pair before its round must last longer
MAX_MESSAGES = 6  # of a flow: enough to compare shares

Vector = NDArray[np.float64]
Rates = dict[Flow, float]


class FlowObservations:
    """The rates of flows so far, and the highest rate that each host has sent and received."""

    def __init__(self, hosts: Sequence[str], sent: dict[str, float], received: dict[str, float]) -> None:
        self.hosts = list(hosts)
        self._sent, self._received = sent, received
        self._index = {host: i for i, host in enumerate(hosts)}
        self._flows: list[tuple[Flow, float]] = []

    def add(self, rates: Rates) -> None:
        for (source, target), rate in rates.items():
            self._sent[source] = max(self._sent.get(source, 1.0), rate)
            self._received[target] = max(self._received.get(target, 1.0), rate)
        self._flows += rates.items()

    def within(self, hosts: Sequence[str]) -> FlowObservations:
        """Observations of some of the hosts: keeps their highest rates, and has no flows yet."""
        return FlowObservations(hosts, self._sent, self._received)

    def _speed(self, flow: Flow, rate: float) -> float:
        return rate / min(self._sent[flow[0]], self._received[flow[1]])

    def groups(self) -> list[list[str]]:
        """The groups that agree best with the flows; a single group where all flows are of one kind."""
        speeds = np.array([self._speed(flow, rate) for flow, rate in self._flows])
        threshold = _slow_fast_threshold(np.sort(speeds))
        if threshold is None:
            return [self.hosts]
        agree = np.zeros((len(self.hosts), len(self.hosts)))
        for ((source, target), _), speed in zip(self._flows, speeds, strict=True):
            agree[self._index[source], self._index[target]] += speed - threshold
        return [[self.hosts[i] for i in members] for members in sorted(group_by_agreement(agree + agree.T))]


def _slow_fast_threshold(speeds: Vector) -> float | None:
    """A speed between slow and fast flows; None where there is one kind. ``speeds`` are sorted.

    The split maximises the variance between the two kinds (Otsu). The threshold is nearer to the fast kind, since
    a small cabinet's flows to others are the fastest of the slow.
    """
    counts = np.arange(1, len(speeds))
    rest = len(speeds) - counts
    sums = np.cumsum(speeds)[:-1]
    slow, fast = sums / counts, (speeds.sum() - sums) / rest
    split = int(np.argmax(counts * rest * (fast - slow) ** 2))
    return None if fast[split] < CONTRAST * slow[split] else float(slow[split] + 2 * fast[split]) / 3


def group_by_agreement(agree: Vector) -> list[list[int]]:
    """Agglomerative grouping: the two groups that agree most are merged, until no two agree.

    ``agree``: symmetric n x n matrix, positive for pairs that seem to share a cabinet; it is overwritten.
    """
    groups = [[i] for i in range(len(agree))]
    np.fill_diagonal(agree, -np.inf)
    while True:
        first, second = divmod(int(np.argmax(agree)), len(agree))
        if agree[first, second] <= 0:
            return [sorted(group) for group in groups if group]
        groups[first] += groups[second]
        groups[second] = []
        agree[first] += agree[second]
        agree[:, first] = agree[first]
        agree[second] = agree[:, second] = -np.inf


def discover_by_contention(study: Study) -> Generator[Round, Result, Topology]:
    """The cabinets; empty where they cannot be found."""
    if len(study.hosts) < MIN_HOSTS:
        return {}
    observations = FlowObservations(study.hosts, {}, {})
    for flows in _sparse_rings(study.hosts):
        observations.add((yield from _measure(study, flows)))
    groups = yield from _split(study, observations.within(study.hosts), random.Random(len(study.hosts)))
    return {f"c{i}": group for i, group in enumerate(groups, 1)} if len(groups) > 1 else {}


def _split(
    study: Study, observations: FlowObservations, rng: random.Random
) -> Generator[Round, Result, list[list[str]]]:
    """Splits hosts into confirmed groups, and each of these again; a single group where none show."""
    hosts = observations.hosts
    if len(hosts) < MIN_HOSTS:
        return [hosts]
    confirmations = 0
    for number in range(1, RINGS + 1):
        observations.add((yield from _measure(study, ring(rng.sample(hosts, len(hosts))))))
        groups = observations.groups()
        if len(groups) == 1 and number >= FIRST_RINGS:
            break
        if len(groups) > 1 and number >= FIRST_RINGS and min(map(len, groups)) > 1:
            shuffled = [rng.sample(group, len(group)) for group in groups]
            confirmed = yield from _confirm(study, observations, shuffled)
            confirmations = confirmations + 1 if confirmed and observations.groups() == groups else 0
            if confirmations == CONFIRMATIONS:
                parts = []
                for group in groups:
                    parts += yield from _split(study, observations.within(group), rng)
                return parts
    return [hosts]


def _confirm(
    study: Study, observations: FlowObservations, groups: Sequence[Sequence[str]]
) -> Generator[Round, Result, bool]:
    """Whether flows between groups are slower than flows inside them; adds their rates to ``observations``."""
    inside = yield from _measure(study, [flow for group in groups for flow in ring(group)])
    inside_rate = {source: rate for (source, _), rate in inside.items()}
    confirmed = True
    for step in range(1, len(groups) // 2 + 1):
        pairs = [_crossing(groups, i, step) for i in range(len(groups))]
        between = yield from _measure(study, [flow for flows in pairs for flow in flows])
        observations.add(between)
        for flows in pairs:
            rated = [flow for flow in flows if flow[0] in inside_rate]
            carried, expected = (
                sum(between[flow] for flow in rated),
                sum(inside_rate[flow[0]] for flow in rated),
            )
            confirmed &= carried < SLOWED * expected
    return confirmed


def _crossing(groups: Sequence[Sequence[str]], sender: int, step: int) -> list[Flow]:
    """Flows from a group to another. Flows back use other pairs: an MPI may alternate the directions of a pair."""
    rounds, receiver = divmod(sender + step, len(groups))
    targets = [*groups[receiver][rounds:], *groups[receiver][:rounds]]
    return list(zip(groups[sender], targets, strict=False))


def ring(hosts: Sequence[str]) -> list[Flow]:
    """Each host sends to the next. Of two hosts only one sends, since an MPI may alternate the directions of a pair."""
    return list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))[: 1 if len(hosts) == 2 else None]


def _sparse_rings(hosts: Sequence[str]) -> list[list[Flow]]:
    """The flows of a ring in several rounds with few flows each, so that each flow has nearly the whole network."""
    flows = ring(hosts)
    rounds = math.ceil(len(hosts) / math.ceil(len(hosts) / SPARSE_ROUNDS))
    return [flows[first::rounds] for first in range(rounds)]


def _measure(study: Study, flows: Sequence[Flow]) -> Generator[Round, Result, Rates]:
    size = study.effort.min_size
    messages = min(MAX_MESSAGES, study.effort.messages)
    seconds = max(study.effort.seconds, messages * size / (study.pair_rate / SLOWEST))
    params: dict[str, Scalar] = {"experiment": "contention"}
    result = yield from until_steady(study, Round(tuple(flows), size, seconds, params=params), messages)
    return dict(zip(flows, result.flows.values if result.flows else [], strict=True))
