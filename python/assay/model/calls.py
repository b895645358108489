"""The costs of MPI calls, as SimGrid's parameters: smpi/os, smpi/ois, smpi/or, and the thresholds of a send.

SimGrid sleeps ``os`` in an MPI_Send that does not wait for its receiver (a detached one), ``ois`` in every MPI_Isend,
and ``or`` at the end of every receive of a detached message. A send waits for its receiver from
``smpi/send-is-detached-thresh`` bytes on. A shorter one moves when its receive is posted; below
``smpi/async-small-thresh`` it moves at once.

The receiver posts its receive late, so each call is timed alone (engines/network/saturation/calls.hpp). A message's
time in ping-pong includes the calls of both sides. ``Overheads.time_in_calls`` is their share; the network's factors
are fitted to the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.model.estimate import ACCEPTED_UNCERTAINTY, Estimate, estimate
from assay.model.rounds import NAME, Flow, Round
from assay.model.segments import MAX_BREAK_RATIO, Point, Segment, fit_segments
from assay.model.study import Rounds, Study
from assay.model.times import MessageTimes
from assay.records.schema import AnyRecord, Measurement, Scalar
from assay.records.statistics import median
from assay.records.units import format_share

SEND, ISEND, RECEIVE = "send_call", "isend_call", "receive_call"  # metrics
SIZES = tuple(2**k for k in range(17))  # 1 B to 64 KiB
MAX_SEARCHED_SIZE = 1 << 20  # B: longest message of the search for the threshold
MAX_EXACT_SIZE = 128 << 10  # B: smaller thresholds are found to the byte, larger ones within SEARCH_TOLERANCE
SEARCH_TOLERANCE = 0.01  # relative
MIN_VISITS, MAX_VISITS = 3, 8  # to each size; one visit in a simulation, where times do not vary
SEARCH_COUNT = 3  # calls of each size in the search for the threshold
# The receiver pauses for PAUSE_RATIO times the message's time in ping-pong, so that a message that does not wait has
# arrived. The pause is at least MIN_PAUSE (s), which is longer than any call that does not wait.
PAUSE_RATIO, MIN_PAUSE = 4, 5e-4
# A call's time is known if its uncertainty is at most ACCEPTED_UNCERTAINTY, or this share of the message's time.
SMALL_SHARE = 0.02
# The calls of both sides together are at most this share of a message's time in ping-pong, and leave the time on the
# wire. They take longer if the receiver or the wire works before the send has returned. SimGrid has no such overlap.
MAX_CALLS_SHARE = 0.8
# A message is long if it takes this many times the shortest one. The network's share of its time is then clear.
MIN_LONG_RATIO = 4
NO_GAP = 1e-18  # s/B: less is a fit's rounding error


def time_calls(study: Study) -> Rounds:
    """Times the calls of the sweep's first pair: all sizes until they are known, then finds the detached threshold."""
    study.phase = "calls of MPI"
    times = next(iter(study.times.values()))
    measured = CallTimes(times.pair)
    varies = study.effort.repeats > 1
    count = max(2, study.effort.round_trips // 2)

    def measure(sizes: Sequence[int], count: int, visit: int) -> Rounds:
        pauses = tuple(max(MIN_PAUSE, PAUSE_RATIO * time_between(times, size)) for size in sizes)
        params: dict[str, Scalar] = {"experiment": "calls", "visit": visit}
        result = yield Round((times.pair,), sizes=tuple(sizes), pauses=pauses, count=count, params=params)
        measured.add(result.latencies)

    for visit in range(MAX_VISITS if varies else 1):
        unsure = [
            size
            for size in SIZES
            if visit < MIN_VISITS
            or not all(measured.is_known(m, size, times) for m in (SEND, ISEND, RECEIVE))
        ]
        if not unsure:
            break
        yield from measure(unsure, count, visit)
        if not measured.visits(SEND):  # the transport has no MPI calls
            return
    longest = max(SIZES)
    while measured.is_detached(longest) and longest < MAX_SEARCHED_SIZE:
        longest *= 2
        yield from measure([longest], SEARCH_COUNT, 0)
    detached, waiting = measured.threshold()
    while waiting is not None and waiting - detached > (
        1 if waiting <= MAX_EXACT_SIZE else SEARCH_TOLERANCE * waiting
    ):
        middle = (detached + waiting) // 2
        yield from measure([middle], SEARCH_COUNT, 0)
        if measured.is_detached(middle):
            detached = middle
        else:
            waiting = middle
    if waiting is not None:  # time MPI_Isend of a message that waits; longer ones take as long
        beyond = 1 << math.ceil(math.log2(waiting))
        for visit in range(len(measured.visits(ISEND).get(beyond, [])), MIN_VISITS if varies else 1):
            yield from measure([beyond], SEARCH_COUNT, visit)


def time_between(times: MessageTimes, size: int) -> float:
    """A message's time in ping-pong in s, interpolated between the measured sizes."""
    sizes = sorted(times.visits)
    return float(np.interp(size, sizes, [times.time_of(measured).value for measured in sizes]))


class CallTimes:
    """Durations of the calls of one pair, in s. A visit to a size is one record."""

    def __init__(self, pair: tuple[str, str]) -> None:
        self.pair = pair
        self._by_metric: dict[str, MessageTimes] = {}

    def add(self, records: Iterable[Measurement]) -> None:
        for record in records:
            self._by_metric.setdefault(record.metric, MessageTimes(self.pair)).add([record])

    def visits(self, metric: str) -> Mapping[int, list[Measurement]]:
        times = self._by_metric.get(metric)
        return times.visits if times is not None else {}

    def sweep_sizes(self) -> list[int]:
        """The sizes without those that were only visited in the search for the threshold."""
        visits = {size: len(visits) for size, visits in self.visits(ISEND).items()}
        return sorted(size for size, n in visits.items() if n >= min(MIN_VISITS, max(visits.values())))

    def estimate(self, metric: str, size: int) -> Estimate:
        """The median of the visits' medians. A token bucket does not delay a call, so no means are needed."""
        return estimate(median(visit.samples) for visit in self.visits(metric)[size])

    def is_known(self, metric: str, size: int, times: MessageTimes) -> bool:
        """Whether a call's time is precise enough. ``times``: of the pair in ping-pong."""
        duration = self.estimate(metric, size)
        allowed = max(ACCEPTED_UNCERTAINTY * duration.value, SMALL_SHARE * time_between(times, size))
        return max(duration.high - duration.value, duration.value - duration.low) <= allowed

    def is_detached(self, size: int) -> bool:
        """Whether MPI_Send returns before its receive is posted."""
        pause = float(self.visits(SEND)[size][0].params["pause_s"])
        return self.estimate(SEND, size).value < pause / 2

    def threshold(self) -> tuple[int, int | None]:
        """The longest message below all that wait, and the shortest that waits (None: none does)."""
        sizes = sorted(self.visits(SEND))
        waiting = next((size for size in sizes if not self.is_detached(size)), None)
        return max((s for s in sizes if waiting is None or s < waiting), default=0), waiting


@dataclass
class Overheads:
    """SimGrid's parameters of the MPI calls; empty or None if they are not known."""

    send: list[Segment] = field(default_factory=list)  # s, s/B: smpi/os
    isend: list[Segment] = field(default_factory=list)  # smpi/ois
    receive: list[Segment] = field(default_factory=list)  # smpi/or
    detached: int | None = None  # B: shorter messages do not wait for their receiver
    eager: int | None = None  # B: shorter messages move before their receive is posted
    sources: dict[str, str] = field(default_factory=dict)  # by parameter: its source, or why it is missing
    evidence: dict[str, list[int]] = field(default_factory=dict)  # ids of the records

    def time_in_calls(self, size: int) -> float:
        """The time of a ping-pong message in s that is spent in calls: MPI_Isend, and MPI_Recv if it is detached."""
        receive = time_at(self.receive, size) if self.detached is None or size < self.detached else 0.0
        return time_at(self.isend, size) + receive


def time_at(segments: Sequence[Segment], size: int) -> float:
    """The time of a size by the segments in s; 0 without segments."""
    segment = next((s for s in reversed(segments) if s.start <= size), None)
    return segment.latency + size * segment.gap if segment is not None else 0.0


OS, OIS, OR = "smpi/os", "smpi/ois", "smpi/or"
DETACHED, EAGER = "smpi/send-is-detached-thresh", "smpi/async-small-thresh"
MISSING = {
    OS: "no MPI_Send is known to return before its receive was posted",
    OIS: "MPI_Isend was not measured",
    OR: "no message is known to have been there before its receive was posted",
}


def fit_calls(
    records: Iterable[AnyRecord],
    times: Mapping[str, MessageTimes],
    time_on_wire: Callable[[Flow, int], float] = lambda pair, size: 0.0,
) -> Overheads:
    """Fits a run's calls. ``times``: its sweeps over message sizes, by level; ``time_on_wire``: the time in s that a
    pair's message of a size needs at the measured rate (0: not known)."""
    overheads = Overheads()
    measured: CallTimes | None = None
    for record in records:
        if isinstance(record, Measurement) and (record.name, record.params.get("experiment")) == (
            NAME,
            "calls",
        ):
            measured = measured or CallTimes((str(record.subject.host), str(record.subject.peer)))
            measured.add([record])
    sweep = next((t for t in times.values() if measured is not None and t.pair == measured.pair), None)
    if measured is None or sweep is None or not measured.visits(SEND):
        return overheads
    _fit_thresholds(overheads, measured, sweep)
    longest_detached = (overheads.detached or 1) - 1
    longest_eager = (overheads.eager or 1) - 1
    sizes = measured.sweep_sizes()
    for key, name, segments, metric, candidates in (
        (OS, "MPI_Send", "send", SEND, [s for s in sizes if s <= longest_detached]),
        (OIS, "MPI_Isend", "isend", ISEND, sizes),
        (OR, "MPI_Recv", "receive", RECEIVE, [s for s in sizes if s <= longest_eager]),
    ):
        known = [s for s in candidates if measured.is_known(metric, s, sweep)]
        overheads.evidence[key] = [r.id for s in known for r in measured.visits(metric)[s]]
        if not known or 2 * len(known) < len(candidates):
            reason = f"the times of {name} are not precise" if candidates else MISSING[key]
            overheads.sources[key] = f"left out: {reason}"
            continue
        estimates = [(s, measured.estimate(metric, s)) for s in known]
        points = [Point(s, e.value, e.uncertainty, 1.0, float(s)) for s, e in estimates if e.value > 0]
        setattr(overheads, segments, fit_segments(points) or [Segment(0, 0.0, 0.0)])
        text = f"{name} between {' and '.join(measured.pair)}, {known[0]} B to {known[-1]} B"
        if len(known) < len(candidates):
            text += f"; {len(candidates) - len(known)} sizes are not known precisely"
        overheads.sources[key] = text
    _limit_to_message_times(overheads, sweep, lambda size: time_on_wire(sweep.pair, size))
    return overheads


def _limit_to_message_times(
    overheads: Overheads, sweep: MessageTimes, time_on_wire: Callable[[int], float]
) -> None:
    """Shortens the calls where, with the time on the wire, they would be longer than a message in ping-pong: both sides
    and the wire then work at the same time."""
    sizes = sorted(sweep.visits)
    factors: list[float] = []
    for size in sizes:
        time, spent, on_wire = sweep.time_of(size).value, overheads.time_in_calls(size), time_on_wire(size)
        most = min(MAX_CALLS_SHARE * time, max(0.0, time - on_wire))
        factor = most / spent if spent > most else 1.0
        # Where the wire leaves no time to the calls, a longer message leaves none either. What remains is noise.
        factors.append(min(factor, factors[-1]) if on_wire and factors else factor)
    least = min(factors)
    if least == 1:
        return
    for key, name in ((OS, "send"), (OIS, "isend"), (OR, "receive")):
        if segments := getattr(overheads, name):
            setattr(overheads, name, _shortened(segments, sizes, factors))
            overheads.sources[key] += (
                f"; of some sizes {format_share(least)}: the two sides and the wire work at the same time, and a "
                "message's calls are not longer than the message"
            )


def _shortened(segments: Sequence[Segment], sizes: Sequence[int], factors: Sequence[float]) -> list[Segment]:
    """The segments with their times multiplied by a factor at each size."""
    starts = {segment.start for segment in segments if segment.start > 0}
    all_sizes = sorted({*sizes, *starts, *(start - 1 for start in starts)})
    shortened = [
        (size, float(np.interp(size, sizes, factors)) * time_at(segments, size)) for size in all_sizes
    ]
    points = [Point(size, time, 0.0, 1.0, float(size)) for size, time in shortened if time > 0]
    longest = max((point.size for point in points), default=0)
    zero = next((size for size in all_sizes if size > longest), None)  # none is left from here on
    fitted = fit_segments(points) or [Segment(0, 0.0, 0.0)]
    return fitted if zero is None or not points else [*fitted, Segment(zero, 0.0, 0.0)]


def _fit_thresholds(overheads: Overheads, measured: CallTimes, sweep: MessageTimes) -> None:
    detached, waiting = measured.threshold()
    sizes = sorted(measured.visits(SEND))
    overheads.evidence[DETACHED] = [r.id for s in sizes for r in measured.visits(SEND)[s]]
    overheads.evidence[EAGER] = [r.id for s in sizes for r in measured.visits(RECEIVE).get(s, [])]
    mixed = waiting is not None and any(measured.is_detached(s) for s in sizes if s > waiting)
    if mixed:
        overheads.sources[DETACHED] = (
            f"left out: MPI_Send of {waiting} B waited for its receive, longer ones did not"
        )
        return
    if waiting is not None and waiting - detached > 1 and waiting > MAX_BREAK_RATIO * detached:
        overheads.sources[DETACHED] = f"left out: only known to be between {detached} B and {waiting} B"
        return
    overheads.detached = detached + 1
    overheads.sources[DETACHED] = f"MPI_Send of {detached} B returned before its receive was posted" + (
        f", of {waiting} B it waited" if waiting is not None else "; none waited: the threshold may be higher"
    )
    # A receive that takes less than half of a long message's time found the message there. All shorter messages are
    # then taken to be there, too, since their receives are harder to judge.
    shortest = time_between(sweep, min(sizes))
    swept = [s for s in measured.sweep_sizes() if s <= detached]
    long = [s for s in swept if time_between(sweep, s) > MIN_LONG_RATIO * shortest]
    arrived = [s for s in long if measured.estimate(RECEIVE, s).value < time_between(sweep, s) / 2]
    if not long:
        overheads.sources[EAGER] = "left out: no message that does not wait is long enough to tell"
        return
    longest = max(arrived, default=0)
    overheads.eager = (overheads.detached if longest == swept[-1] else longest + 1) if longest else 0
    overheads.sources[EAGER] = (
        f"MPI_Recv of up to {longest} B found its message there"
        if longest
        else "no message was there before its receive was posted"
    )


def format_segments(segments: Sequence[Segment]) -> str:
    """Segments in SimGrid's format: the size above which each holds in B, s, and s/B."""
    return ";".join(
        f"{segment.start - 1 if segment.start else 0}:{segment.latency:.6g}:"
        f"{segment.gap if segment.gap > NO_GAP else 0:.6g}"
        for segment in segments
    )


def parameters(overheads: Overheads) -> dict[str, str]:
    """The known parameters by SimGrid's names, except EAGER. With EAGER, SimGrid 3.32 reports a deadlock in some
    collective operations (MPI_Reduce_scatter, MPI_Gather, then MPI_Scatter, on 4 ranks)."""
    values = {
        key: format_segments(segments)
        for key, segments in ((OS, overheads.send), (OIS, overheads.isend), (OR, overheads.receive))
        if segments
    }
    return values | ({DETACHED: str(overheads.detached)} if overheads.detached is not None else {})


def describe_parameters(overheads: Overheads) -> list[str]:
    """A line for each parameter: its source, or why it is missing."""
    lines = {key: f"{key}: {source}" for key, source in overheads.sources.items()}
    if overheads.eager is not None:
        lines[EAGER] += f": {overheads.eager}; not set, since SimGrid 3.32 may deadlock with it"
    return list(lines.values())
