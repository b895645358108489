"""Who stands in one cabinet with whom, by measurement alone.

A message to another cabinet passes more switches, and takes longer. So one host, the pivot, plays ping-pong
with all that have no cabinet yet: where the times fall into two groups with a clear gap between them, those
who are near form its cabinet, and the next pivot is one of the far. That is n pairs for each cabinet, not n
squared. A gap is clear when it is wide against what the same pair's time varies by; where a pivot sees none,
the times that earlier ones saw tell whether all of the others are near or all are far.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.model.network import Topology
from assay.model.rounds import Result, Round

GAP = 4.0  # how many times wider than the noise a gap between near and far must be
SHARE = 0.03  # of the time itself, at least: a switch is more than that
MESSAGE = 8  # bytes

Looked = Generator[Round, Result, dict[str, list[float]]]


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
    params = {"experiment": "discover", "pivot": pivot}
    pairs = tuple((pivot, other) for other in others)
    result = yield Round(pairs, sizes=(MESSAGE,), count=echoes, params=params)
    return {str(one.subject.peer): one.samples for one in result.echoes if one.samples}


def typical(samples: Sequence[float]) -> float:
    """A low quantile: a message may be held up, but none is faster than the way."""
    return float(np.quantile(samples, 0.1))


def is_near(samples: Sequence[float], gap: Gap) -> bool:
    return typical(samples) < (gap.near * gap.far) ** 0.5


def find_gap(times: Mapping[str, Sequence[float]]) -> Gap | None:
    """The widest gap between the sorted times, where it is clear."""
    if len(times) < 2:
        return None
    typicals = np.sort([typical(samples) for samples in times.values()])
    noise = np.median([abs(typical(s[::2]) - typical(s[1::2])) for s in times.values() if len(s) > 1] or [0.0])
    steps = np.diff(typicals)
    widest = int(np.argmax(steps))
    if steps[widest] < max(GAP * float(noise), SHARE * float(typicals[widest])):
        return None
    return Gap(float(typicals[widest]), float(typicals[widest + 1]))


def _name(index: int) -> str:
    """c1, c2, ...: names of its own, since nobody has told any."""
    return f"c{index + 1}"
