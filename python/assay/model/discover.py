"""Finds which hosts share a cabinet by latency.

A message to another cabinet passes more switches and takes longer. One host, the pivot, does ping-pong with all
hosts that have no cabinet yet. Where the times form two groups with a clear gap, the hosts with the shorter times
form the pivot's cabinet, and the next pivot is one of the others. That takes n pairs for each cabinet instead of n
squared. A gap is clear when it is wide compared with the variation of a pair's time. Where a pivot sees no gap, the
other hosts are all near or all far; the gap that an earlier pivot saw tells which. A slow host or processor may look
far, so a second host of each cabinet must confirm the pivot's view. A cabinet of a single host cannot be confirmed
and is accepted only where times do not vary at all, as in a simulator.

An experiment is a generator: it yields rounds to measure and receives their results.
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
from assay.records.statistics import median

MIN_GAP_TO_NOISE = 4.0  # least width of a gap, in multiples of the noise
MIN_GAP_SHARE = 0.03  # least width of a gap, as a share of the time; a switch adds more than that
QUIET_NOISE = MIN_GAP_SHARE / MIN_GAP_TO_NOISE  # noise below which MIN_GAP_SHARE alone decides
MAX_STEP_INSIDE = (
    0.5  # of the gap: least difference of neighbours inside a cabinet that makes the gap unclear
)
MESSAGE_BYTES = 8
MIN_VISITS_WHEN_QUIET = 2  # measurements of each pair, with noise below QUIET_NOISE
MIN_VISITS = 6  # with more noise
MAX_VISITS = 12

VisitTimes = Mapping[str, Sequence[float]]  # by host: the typical time of each visit, in s


@dataclass(frozen=True)
class Gap:
    """``near``: the longest time inside a cabinet. ``far``: the shortest to another. Both in s."""

    near: float
    far: float


@dataclass(frozen=True)
class PivotView:
    """The times from a pivot to all others, and the gap in them."""

    times: VisitTimes
    gap: Gap | None

    @property
    def noise(self) -> float:
        return noise_of(self.times) if self.times else 0.0

    def near(self) -> set[str]:
        """The hosts on the near side of the gap; none without a gap."""
        if self.gap is None:
            return set()
        middle = math.sqrt(self.gap.near * self.gap.far)
        return {host for host, visits in self.times.items() if min(visits) < middle}


PivotMeasurement = Generator[Round, Result, PivotView | None]


def discover(hosts: Sequence[str], round_trips: int) -> Generator[Round, Result, Topology]:
    """Returns the hosts of each cabinet; a single cabinet where times show no gap or contradict each other.

    ``round_trips``: their number for each pair and visit.
    """
    unassigned, gap = list(hosts), None
    cabinets: list[list[str]] = []
    noise = 0.0
    while unassigned:
        pivot, others = unassigned[0], unassigned[1:]
        view = yield from _measure_from(pivot, others, round_trips, gap)
        if view is not None and view.gap is None and len(others) > 1:
            # All times are alike: a single cabinet, or the pivot is alone in its cabinet. Another host tells.
            second = yield from _measure_from(others[-1], [pivot, *others[:-1]], round_trips, None)
            view = view if second is None else PivotView(view.times, second.gap)
        if view is None:
            return {_name(0): list(hosts)}
        gap, noise = view.gap, max(noise, view.noise)
        near = {pivot} | (view.near() if gap else set(others))
        cabinets.append([host for host in unassigned if host in near])
        unassigned = [host for host in unassigned if host not in near]
    # Times without noise (a simulator's) need no confirmation. Steady times need it too: the processors that ranks
    # run on may add the same time in every visit.
    if noise > 0 and len(cabinets) > 1 and not (yield from _is_confirmed(hosts, cabinets, round_trips, gap)):
        return {_name(0): list(hosts)}
    return {_name(i): cabinet for i, cabinet in enumerate(cabinets)}


def _is_confirmed(
    hosts: Sequence[str], cabinets: Sequence[Sequence[str]], round_trips: int, gap: Gap | None
) -> Generator[Round, Result, bool]:
    """Whether a second host of each cabinet sees the same hosts near as the pivot did.

    False if a cabinet has a single host.
    """
    for cabinet in cabinets:
        *others, witness = cabinet
        view = (
            (yield from _measure_from(witness, [h for h in hosts if h != witness], round_trips, gap))
            if others
            else None
        )
        if view is None or view.near() != set(others):
            return False
    return True


def _measure_from(
    pivot: str, others: Sequence[str], round_trips: int, earlier_gap: Gap | None
) -> PivotMeasurement:
    """Measures all pairs until odd and even visits agree on which hosts are near; None where they never do.

    A visit is one measurement of every pair. ``earlier_gap``: the gap that an earlier pivot saw, used where these
    times show none.
    """
    pairs = tuple((pivot, other) for other in others)
    times: dict[str, list[float]] = {other: [] for other in others}
    for visit in range(1, MAX_VISITS + 1) if others else ():
        params: dict[str, Scalar] = {"experiment": "discover", "pivot": pivot, "visit": visit}
        result = yield Round(pairs, sizes=(MESSAGE_BYTES,), count=max(1, round_trips // 2), params=params)
        for record in result.latencies:
            times[str(record.subject.peer)].append(typical(record.samples))
        gap = find_gap(times) or earlier_gap
        odd, even = (PivotView(half, gap) for half in halves(times))
        view = PivotView(times, gap)
        is_enough = visit % 2 == 0 and visit >= (
            MIN_VISITS_WHEN_QUIET if view.noise < QUIET_NOISE else MIN_VISITS
        )
        if is_enough and odd.near() == even.near():
            return view
    return None if others else PivotView(times, earlier_gap)


def find_gap(times: VisitTimes) -> Gap | None:
    """The widest gap between the sorted times; None where it is not clear: narrow, or the times below it are as
    different from each other."""
    if len(times) < 2:
        return None
    fastest = np.sort([min(visits) for visits in times.values()])
    steps = np.diff(fastest)
    widest = int(np.argmax(steps))
    if steps[widest] < fastest[widest] * max(MIN_GAP_TO_NOISE * noise_of(times), MIN_GAP_SHARE):
        return None
    if steps[:widest].max(initial=0) > steps[widest] * MAX_STEP_INSIDE:
        return None
    return Gap(float(fastest[widest]), float(fastest[widest + 1]))


def halves(times: VisitTimes) -> tuple[VisitTimes, VisitTimes]:
    """The odd and the even visits; the first visit is number 1."""
    odd = {host: visits[::2] for host, visits in times.items()}
    return odd, {host: visits[1::2] for host, visits in times.items()}


def noise_of(times: VisitTimes) -> float:
    """The relative difference of the shortest times in odd and even visits, as the median over hosts.

    Infinite after a single visit.
    """
    odd, even = halves(times)
    if not all(even.values()):
        return math.inf
    return median([abs(min(odd[host]) / min(even[host]) - 1) for host in times])


def _name(index: int) -> str:
    """c1, c2, ...: names of cabinets that the user has not named."""
    return f"c{index + 1}"
