"""Who stands in one cabinet with whom, by measurement alone.

A message to another cabinet passes more switches, and takes longer. So one host, the pivot, plays ping-pong
with all that have no cabinet yet: where the times fall into two groups with a clear gap between them, those
who are near form its cabinet, and the next pivot is one of the far. That is n pairs for each cabinet, not n
squared. A gap is clear when it is wide against what the same pair's time varies by; where a pivot sees none,
the times that earlier ones saw tell whether all of the others are near or all are far.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.model.estimate import typical
from assay.model.network import Topology
from assay.model.rounds import Result, Round

GAP = 4.0  # how many times wider than the noise a gap between near and far must be
SHARE = 0.03  # of the time itself, at least: a switch is more than that
MESSAGE = 8  # bytes

Times = Mapping[str, Sequence[Sequence[float]]]  # of each host the samples of both visits
Looked = Generator[Round, Result, dict[str, list[list[float]]]]


@dataclass(frozen=True)
class Gap:
    """The longest time inside a cabinet and the shortest to another."""

    near: float
    far: float


def discover(hosts: Sequence[str], echoes: int) -> Generator[Round, Result, Topology]:
    left, gap = list(hosts), None
    cabinets: list[list[str]] = []
    while left:
        pivot, others = left[0], left[1:]
        times = (yield from _look(pivot, others, echoes)) if others else {}
        found = find_gap(times)
        if found is None and gap is None and len(others) > 1:
            # All are alike to the first: one cabinet, or the pivot stands alone in its own.
            found_by_last = find_gap((yield from _look(others[-1], [pivot, *others[:-1]], echoes)))
            gap = found_by_last
        gap = found or gap
        near = {pivot} | {other for other in others if gap is None or is_near(times[other], gap)}
        cabinets.append([host for host in left if host in near])
        left = [host for host in left if host not in near]
    return {_name(i): cabinet for i, cabinet in enumerate(cabinets)}


def _look(pivot: str, others: Sequence[str], echoes: int) -> Looked:
    """Twice over all of them: what a pair's time differs by from one visit to the next is noise."""
    pairs = tuple((pivot, other) for other in others)
    times: dict[str, list[list[float]]] = {}
    for visit in (1, 2):
        params = {"experiment": "discover", "pivot": pivot, "visit": visit}
        result = yield Round(pairs, sizes=(MESSAGE,), count=max(1, echoes // 2), params=params)
        for one in result.echoes:
            times.setdefault(str(one.subject.peer), []).append(one.samples)
    return times


def _best(visits: Sequence[Sequence[float]]) -> float:
    return min(typical(samples) for samples in visits)


def is_near(visits: Sequence[Sequence[float]], gap: Gap) -> bool:
    return _best(visits) < math.sqrt(gap.near * gap.far)


def find_gap(times: Times) -> Gap | None:
    """The widest gap between the sorted times, where it is clear."""
    if len(times) < 2:
        return None
    typicals = np.sort([_best(visits) for visits in times.values()])
    noise = np.median([abs(typical(visits[0]) - typical(visits[-1])) for visits in times.values()])
    steps = np.diff(typicals)
    widest = int(np.argmax(steps))
    if steps[widest] < max(GAP * float(noise), SHARE * float(typicals[widest])):
        return None
    return Gap(float(typicals[widest]), float(typicals[widest + 1]))


def _name(index: int) -> str:
    """c1, c2, ...: names of its own, since nobody has told any."""
    return f"c{index + 1}"
