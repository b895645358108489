"""Finds which hosts share a cabinet by latency.

A message to another cabinet passes more switches and takes longer. A host, the pivot, does ping-pong with all
hosts that have no cabinet yet. Where the times form two groups with a clear gap, the near hosts form the
pivot's cabinet, and the next pivot is one of the far. That takes n pairs for each cabinet instead of n squared.
A gap is clear when it is wide against the variation of a pair's time. Where a pivot sees no gap, the gaps of
earlier pivots tell whether the others are all near or all far. Where times vary, a slow host looks far, so a
second host of each cabinet must confirm the pivot's view. A cabinet of a single host cannot be confirmed and is
accepted only where nothing varies.
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

GAP = 4.0  # least width of a gap, in multiples of the noise
SHARE = 0.03  # least width of a gap, as a share of the time: a switch takes more
QUIET = SHARE / GAP  # noise below which the narrowest accepted gap is clear
MESSAGE = 8  # bytes
VISITS_WHEN_QUIET, LEAST_VISITS, VISITS = (
    2,
    6,
    12,
)  # where they agree to less than a switch; where not; at most

Times = Mapping[str, Sequence[float]]  # by host: the typical time of each visit, in s


@dataclass(frozen=True)
class Gap:
    """The longest time inside a cabinet and the shortest to another, in s."""

    near: float
    far: float


@dataclass(frozen=True)
class PivotView:
    """The times from a pivot to all others, and the gap in them."""

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


PivotMeasurement = Generator[Round, Result, PivotView | None]


def discover(hosts: Sequence[str], echoes: int) -> Generator[Round, Result, Topology]:
    """The cabinets; a single one where times show none, or where they contradict each other."""
    left, gap = list(hosts), None
    cabinets: list[list[str]] = []
    noise = 0.0
    while left:
        pivot, others = left[0], left[1:]
        look = yield from _measure_from(pivot, others, echoes, gap)
        if look is not None and look.gap is None and len(others) > 1:
            # All times are alike: one cabinet, or the pivot is alone in its own.
            last = yield from _measure_from(others[-1], [pivot, *others[:-1]], echoes, None)
            look = look if last is None else PivotView(look.times, last.gap)
        if look is None:
            return {_name(0): list(hosts)}
        gap, noise = look.gap, max(noise, look.noise)
        near = {pivot} | (look.near() if gap else set(others))
        cabinets.append([host for host in left if host in near])
        left = [host for host in left if host not in near]
    # Nothing varies in a simulator, so a host that is alone needs no confirmation there.
    sure = noise == 0 or (noise < QUIET and all(len(cabinet) > 1 for cabinet in cabinets))
    if not sure and len(cabinets) > 1 and not (yield from _is_confirmed(hosts, cabinets, echoes, gap)):
        return {_name(0): list(hosts)}
    return {_name(i): cabinet for i, cabinet in enumerate(cabinets)}


def _is_confirmed(
    hosts: Sequence[str], cabinets: Sequence[Sequence[str]], echoes: int, gap: Gap | None
) -> Generator[Round, Result, bool]:
    """Whether a second host of each cabinet sees the same hosts near as the pivot did; no for a host that is alone."""
    for cabinet in cabinets:
        *others, witness = cabinet
        look = (
            (yield from _measure_from(witness, [h for h in hosts if h != witness], echoes, gap))
            if others
            else None
        )
        if look is None or look.near() != set(others):
            return False
    return True


def _measure_from(pivot: str, others: Sequence[str], echoes: int, known: Gap | None) -> PivotMeasurement:
    """Visits all pairs until odd and even visits agree on who is near; None where they never do.

    ``known``: the gap of an earlier pivot, used where these times show none.
    """
    pairs = tuple((pivot, other) for other in others)
    times: dict[str, list[float]] = {other: [] for other in others}
    for visit in range(1, VISITS + 1) if others else ():
        params: dict[str, Scalar] = {"experiment": "discover", "pivot": pivot, "visit": visit}
        result = yield Round(pairs, sizes=(MESSAGE,), count=max(1, echoes // 2), params=params)
        for echo in result.echoes:
            times[str(echo.subject.peer)].append(typical(echo.samples))
        gap = find_gap(times) or known
        odd, even = (PivotView(half, gap) for half in halves(times))
        look = PivotView(times, gap)
        enough = visit % 2 == 0 and visit >= (VISITS_WHEN_QUIET if look.noise < QUIET else LEAST_VISITS)
        if enough and odd.near() == even.near():
            return look
    return None if others else PivotView(times, known)


def find_gap(times: Times) -> Gap | None:
    """The widest gap between the sorted times; None where it is not clear."""
    if len(times) < 2:
        return None
    best = np.sort([min(visits) for visits in times.values()])
    steps = np.diff(best)
    widest = int(np.argmax(steps))
    if steps[widest] < best[widest] * max(GAP * noise_of(times), SHARE):
        return None
    return Gap(float(best[widest]), float(best[widest + 1]))


def halves(times: Times) -> tuple[Times, Times]:
    """The even and the odd visits."""
    even = {host: visits[::2] for host, visits in times.items()}
    return even, {host: visits[1::2] for host, visits in times.items()}


def noise_of(times: Times) -> float:
    """The median relative difference of odd and even visits; infinite while there is only one visit."""
    odd, even = halves(times)
    if not all(even.values()):
        return math.inf
    return float(np.median([abs(min(odd[host]) / min(even[host]) - 1) for host in times]))


def _name(index: int) -> str:
    """c1, c2, ...: names of cabinets that the user has not named."""
    return f"c{index + 1}"
