"""Who stands in one cabinet with whom, by contention: where latency does not tell.

What leaves a cabinet shares its links, what stays inside does not. So everyone sends to one host and receives
from another, in a ring that is drawn by chance: flows that are slow against what their ends can do alone have
gone from one cabinet to another. A ring of n flows tells of n pairs, and hosts are grouped so that the groups
agree best with all that was seen. Then the groups are put to the test: rings inside them, and all of each at
once to all of another, which must carry less. What that shows is added to what was seen, and the groups are
made anew, until they stand. Each is then looked into in the same way, alone: two small cabinets between large
ones may have looked like one. Where no ring fills a link between cabinets, nobody can tell.
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

LEAST_HOSTS = 4  # two pairs: with fewer there is nothing to compare
ALONE_ROUNDS = 32  # in which every host sends and receives with hardly another: at most so many
BLIND_RINGS = 8  # before anything is believed; with no flow slower than others, none fills a link
PROOFS = 3  # in a row that groups must stand: a host may be in the wrong one by chance
RINGS = 48  # at most, before it is said that nobody can tell
CONTRAST = 1.25  # fast flows against slow ones, at least: with less there is one kind of flow
SLOWED = 0.9  # of what hosts carry inside their group: less than that is carried to another
SLOWEST = 8  # times slower than a pair alone a flow may be, before its round must last longer
FEW = 6  # messages of a flow: shares are compared, and a few tell enough

Vector = NDArray[np.float64]
Rates = dict[Flow, float]


class Seen:
    """The rates of flows so far, against what their ends have shown to be able to."""

    def __init__(self, hosts: Sequence[str], sent: dict[str, float], received: dict[str, float]) -> None:
        self.hosts = list(hosts)
        self._sent, self._received = sent, received
        self._place = {host: i for i, host in enumerate(hosts)}
        self._flows: list[tuple[Flow, float]] = []

    def add(self, rates: Rates) -> None:
        for (source, target), rate in rates.items():
            self._sent[source] = max(self._sent.get(source, 1.0), rate)
            self._received[target] = max(self._received.get(target, 1.0), rate)
        self._flows += rates.items()

    def within(self, hosts: Sequence[str]) -> Seen:
        """A look at some of them: what they are able to is known, how they share is to be seen."""
        return Seen(hosts, self._sent, self._received)

    def _speed(self, flow: Flow, rate: float) -> float:
        return rate / min(self._sent[flow[0]], self._received[flow[1]])

    def groups(self) -> list[list[str]]:
        """Those that agree best with what was seen; a single one where all flows are of one kind."""
        speeds = np.array([self._speed(*one) for one in self._flows])
        border = _border(np.sort(speeds))
        if border is None:
            return [self.hosts]
        agree = np.zeros((len(self.hosts), len(self.hosts)))
        for ((source, target), _), speed in zip(self._flows, speeds, strict=True):
            agree[self._place[source], self._place[target]] += speed - border
        return [[self.hosts[i] for i in members] for members in sorted(merged(agree + agree.T))]


def _border(speeds: Vector) -> float | None:
    """Between slow and fast ones, where the two kinds are furthest apart, and nearer to the fast ones, for a small
    cabinet's flows to others are the fastest of the slow; None where there is one kind."""
    counts = np.arange(1, len(speeds))
    rest = len(speeds) - counts
    sums = np.cumsum(speeds)[:-1]
    slow, fast = sums / counts, (speeds.sum() - sums) / rest
    at = int(np.argmax(counts * rest * (fast - slow) ** 2))
    return None if fast[at] < CONTRAST * slow[at] else float(slow[at] + 2 * fast[at]) / 3


def merged(agree: Vector) -> list[list[int]]:
    """Groups such that pairs within agree and pairs between do not: the two that agree most become one, until none
    do. ``agree``: symmetric, positive for pairs that seem to belong together."""
    groups = [[i] for i in range(len(agree))]
    np.fill_diagonal(agree, -np.inf)
    while True:
        one, other = divmod(int(np.argmax(agree)), len(agree))
        if agree[one, other] <= 0:
            return [sorted(group) for group in groups if group]
        groups[one] += groups[other]
        groups[other] = []
        agree[one] += agree[other]
        agree[:, one] = agree[one]
        agree[other] = agree[:, other] = -np.inf


def discover_by_contention(study: Study) -> Generator[Round, Result, Topology]:
    """The cabinets, or none where nobody can tell."""
    if len(study.hosts) < LEAST_HOSTS:
        return {}
    seen = Seen(study.hosts, {}, {})
    for flows in _hardly_any_at_once(study.hosts):
        seen.add((yield from _ask(study, flows)))
    groups = yield from _split(study, seen.within(study.hosts), random.Random(len(study.hosts)))
    return {f"c{i}": group for i, group in enumerate(groups, 1)} if len(groups) > 1 else {}


def _split(study: Study, seen: Seen, chance: random.Random) -> Generator[Round, Result, list[list[str]]]:
    """Into groups that stand, and these again; whole where none are to be seen."""
    hosts = seen.hosts
    if len(hosts) < LEAST_HOSTS:
        return [hosts]
    stood = 0
    for number in range(1, RINGS + 1):
        seen.add((yield from _ask(study, ring(chance.sample(hosts, len(hosts))))))
        groups = seen.groups()
        if len(groups) == 1 and number >= BLIND_RINGS:
            break
        if len(groups) > 1 and number >= BLIND_RINGS and min(map(len, groups)) > 1:
            shuffled = [chance.sample(group, len(group)) for group in groups]
            stand = yield from _stand(study, seen, shuffled)
            stood = stood + 1 if stand and seen.groups() == groups else 0
            if stood == PROOFS:
                parts = []
                for group in groups:
                    parts += yield from _split(study, seen.within(group), chance)
                return parts
    return [hosts]


def _stand(study: Study, seen: Seen, groups: Sequence[Sequence[str]]) -> Generator[Round, Result, bool]:
    """Whether hosts carry less from each group to each other one than they do inside."""
    inside = yield from _ask(study, [flow for group in groups for flow in ring(group)])
    able = {source: rate for (source, _), rate in inside.items()}
    stand = True
    for step in range(1, len(groups) // 2 + 1):
        pairs = [_crossing(groups, i, step) for i in range(len(groups))]
        between = yield from _ask(study, [flow for flows in pairs for flow in flows])
        seen.add(between)
        for flows in pairs:
            known = [flow for flow in flows if flow[0] in able]
            carried, could = sum(between[flow] for flow in known), sum(able[flow[0]] for flow in known)
            stand &= carried < SLOWED * could
    return stand


def _crossing(groups: Sequence[Sequence[str]], of: int, step: int) -> list[Flow]:
    """From a group to another; where that one sends back, not between the same two hosts, which may take turns."""
    rounds, to = divmod(of + step, len(groups))
    targets = [*groups[to][rounds:], *groups[to][:rounds]]
    return list(zip(groups[of], targets, strict=False))


def ring(hosts: Sequence[str]) -> list[Flow]:
    """Each sends to the next; of two only one does, since one pair's directions may take turns."""
    return list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))[: 1 if len(hosts) == 2 else None]


def _hardly_any_at_once(hosts: Sequence[str]) -> list[list[Flow]]:
    everyone = ring(hosts)
    rounds = math.ceil(len(hosts) / math.ceil(len(hosts) / ALONE_ROUNDS))
    return [everyone[first::rounds] for first in range(rounds)]


def _ask(study: Study, flows: Sequence[Flow]) -> Generator[Round, Result, Rates]:
    size = study.pace.least_size
    messages = min(FEW, study.pace.messages)
    seconds = max(study.pace.seconds, messages * size / (study.single / SLOWEST))
    params: dict[str, Scalar] = {"experiment": "contention"}
    result = yield from until_steady(study, Round(tuple(flows), size, seconds, params=params), messages)
    return dict(zip(flows, result.flows.values if result.flows else [], strict=True))
