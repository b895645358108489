"""Who stands in one cabinet with whom, by measurement alone.

A message to another cabinet passes more switches, and takes longer. So one host, the pivot, plays ping-pong
with all that have no cabinet yet: where the times fall into two groups with a clear gap between them, those
who are near form its cabinet, and the next pivot is one of the far. That is n pairs for each cabinet, not n
squared. A gap is clear when it is wide against what the same pair's time varies by; where a pivot sees none,
the times that earlier ones saw tell whether all of the others are near or all are far. Where times vary, a
host that is slow to answer looks far: so another host of each cabinet must see it as its pivot did. One that stands
alone has no such witness, and is not believed to where anything varies.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.model.estimate import typical
from assay.model.network import Topology
from assay.model.rounds import Result, Round
from assay.records.schema import Scalar

GAP = 4.0  # how many times wider than the noise a gap between near and far must be
SHARE = 0.03  # of the time itself, at least: a switch is more than that
QUIET = SHARE / GAP  # the most noise at which even the smallest gap that counts is clear
MESSAGE = 8  # bytes
QUIET_VISITS, LEAST_VISITS, VISITS = 2, 6, 12  # where they agree to less than a switch; where not; at most

Times = Mapping[str, Sequence[float]]  # of each host what was typical of each visit


@dataclass(frozen=True)
class Gap:
    """The longest time inside a cabinet and the shortest to another."""

    near: float
    far: float


@dataclass(frozen=True)
class Look:
    """What a pivot has seen of all others."""

    times: Times
    gap: Gap | None

    @property
    def noise(self) -> float:
        return noise_of(self.times) if self.times else 0.0

    def near(self) -> set[str]:
        if self.gap is None:
            return set()
        middle = math.sqrt(self.gap.near * self.gap.far)
        return {host for host, visits in self.times.items() if min(visits) < middle}


Looked = Generator[Round, Result, Look | None]


def discover(hosts: Sequence[str], echoes: int) -> Generator[Round, Result, Topology]:
    """The cabinets; a single one where times do not tell, or do not keep to what they told."""
    left, gap = list(hosts), None
    cabinets: list[list[str]] = []
    noise = 0.0
    while left:
        pivot, others = left[0], left[1:]
        look = yield from _look(pivot, others, echoes, gap)
        if look is not None and look.gap is None and len(others) > 1:
            # All are alike to the first: one cabinet, or the pivot stands alone in its own.
            last = yield from _look(others[-1], [pivot, *others[:-1]], echoes, None)
            look = look if last is None else Look(look.times, last.gap)
        if look is None:
            return {_name(0): list(hosts)}
        gap, noise = look.gap, max(noise, look.noise)
        near = {pivot} | (look.near() if gap else set(others))
        cabinets.append([host for host in left if host in near])
        left = [host for host in left if host not in near]
    # Nothing at all varies in a simulator: there, one that stands alone needs no witness.
    sure = noise == 0 or (noise < QUIET and all(len(cabinet) > 1 for cabinet in cabinets))
    if not sure and len(cabinets) > 1 and not (yield from _witnessed(hosts, cabinets, echoes, gap)):
        return {_name(0): list(hosts)}
    return {_name(i): cabinet for i, cabinet in enumerate(cabinets)}


def _witnessed(
    hosts: Sequence[str], cabinets: Sequence[Sequence[str]], echoes: int, gap: Gap | None
) -> Generator[Round, Result, bool]:
    """Whether another of each cabinet sees the same hosts near as its pivot did: where times vary, a host that is
    slow to answer looks far, and one that stands alone has nobody who could tell."""
    for cabinet in cabinets:
        *others, witness = cabinet
        look = (
            (yield from _look(witness, [h for h in hosts if h != witness], echoes, gap)) if others else None
        )
        if look is None or look.near() != set(others):
            return False
    return True


def _look(pivot: str, others: Sequence[str], echoes: int, known: Gap | None) -> Looked:
    """Over all of them again and again, until every other visit tells the same as those between, by their own gap or
    one that is known: one that was held up is not far. None where they never do."""
    pairs = tuple((pivot, other) for other in others)
    times: dict[str, list[float]] = {other: [] for other in others}
    for visit in range(1, VISITS + 1) if others else ():
        params: dict[str, Scalar] = {"experiment": "discover", "pivot": pivot, "visit": visit}
        result = yield Round(pairs, sizes=(MESSAGE,), count=max(1, echoes // 2), params=params)
        for one in result.echoes:
            times[str(one.subject.peer)].append(typical(one.samples))
        gap = find_gap(times) or known
        odd, even = (Look(half, gap) for half in halves(times))
        look = Look(times, gap)
        enough = visit % 2 == 0 and visit >= (QUIET_VISITS if look.noise < QUIET else LEAST_VISITS)
        if enough and odd.near() == even.near():
            return look
    return None if others else Look(times, known)


def find_gap(times: Times) -> Gap | None:
    """The widest gap between the sorted times, where it is clear."""
    if len(times) < 2:
        return None
    best = np.sort([min(visits) for visits in times.values()])
    steps = np.diff(best)
    widest = int(np.argmax(steps))
    if steps[widest] < best[widest] * max(GAP * noise_of(times), SHARE):
        return None
    return Gap(float(best[widest]), float(best[widest + 1]))


def halves(times: Times) -> tuple[Times, Times]:
    """Every other visit, and those between."""
    return {host: own[::2] for host, own in times.items()}, {host: own[1::2] for host, own in times.items()}


def noise_of(times: Times) -> float:
    """What the halves' times differ by, relative to them; without bound while there is only one visit."""
    odd, even = halves(times)
    if not all(even.values()):
        return math.inf
    return float(np.median([abs(min(odd[host]) / min(even[host]) - 1) for host in times]))


def _name(index: int) -> str:
    """c1, c2, ...: names of its own, since nobody has told any."""
    return f"c{index + 1}"
