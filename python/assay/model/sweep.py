"""The sweep over message sizes: the time of a message by size, and the message size for all other rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from assay.model.estimate import MIN_VISITS_FOR_INTERVAL, RUN_LENGTH
from assay.model.rounds import Round
from assay.model.segments import TOLERANCE, Point, fit_segments, points_of, sizes_near_breaks
from assay.model.study import MIB, PLATEAU, Rounds, Study
from assay.model.times import VISITS, MessageTimes
from assay.records.schema import Scalar

LONGEST = MIB  # B: longest message of a saturation round
REFINEMENTS = 3  # of a protocol's limits: each halves the open interval
FIRST_VISITS = 2  # to a size, at least, one after the other
SHORT = 4096  # B; times of shorter messages vary more
SHORT_REPEATS = 8  # short messages are sent this many times as often
LONG_SECONDS = 4.0  # a size of LONGEST and more takes about so long; its times vary less
DRAIN = MIB  # B: each round first sends this much, which empties a rate limiter's token bucket
NEIGHBOURS = 2  # sizes on each side that must be precise, too, since one disturbance can delay several
SWEEP = tuple(2**k for k in range(23))  # 1 B to 4 MiB
# At the end of the study: the longest message that is measured again in B, and how often, at most, in each pass.
MAX_CONFIRMED, CONFIRMATIONS = 64 << 10, MIN_VISITS_FOR_INTERVAL


def sweep(study: Study) -> Rounds:
    """Times of messages inside a cabinet and between two; then more sizes where two protocols meet."""
    study.phase = "message sizes"
    inside = next((hosts for hosts in study.cabinets.values() if len(hosts) > 1), None)
    firsts = [hosts[0] for hosts in study.cabinets.values()]
    levels: dict[str, MessageTimes] = {}
    if inside:
        levels["inside"] = MessageTimes((inside[0], inside[1]))
    if len(firsts) > 1:
        levels["between"] = MessageTimes((firsts[0], firsts[1]))
    study.times = levels
    yield from _visits(study, levels, {level: dict.fromkeys(SWEEP, FIRST_VISITS) for level in levels})
    level, first = next(iter(levels.items()))
    for _ in range(REFINEMENTS):
        if sizes := sizes_near_breaks(points_of(first)):
            yield from _visits(study, {level: first}, {level: dict.fromkeys(sizes, FIRST_VISITS)})
    study.segments = fit_segments(points_of(first))
    study.size = _message_size(study, first)


def confirm(study: Study) -> Rounds:
    """Times the short messages again, minutes after the sweep.

    Visits in a row may share a disturbance that lasts longer than they do, and then agree. A size whose time has
    changed since, or that the common factors of all pairs do not explain, is visited until its interval is known.
    """
    if study.effort.repeats == 1:  # times do not vary
        return
    study.phase = "message sizes again"
    least = {
        level: {size: len(visits) + 1 for size, visits in times.visits.items() if size <= MAX_CONFIRMED}
        for level, times in study.times.items()
    }
    yield from _visits(study, study.times, least, range(VISITS, VISITS + CONFIRMATIONS))
    unexplained_sizes = unexplained(study)
    for level, size in unexplained_sizes:
        least[level][size] = MIN_VISITS_FOR_INTERVAL
    if unexplained_sizes:
        visits = range(VISITS + CONFIRMATIONS, VISITS + 2 * CONFIRMATIONS)
        yield from _visits(study, study.times, least, visits)


def unexplained(study: Study) -> list[tuple[str, int]]:
    """Levels and sizes whose time differs by more than TOLERANCE from the segments that all pairs share."""
    if not study.pair_rate:
        return []
    by_level = {
        level: [
            point
            for point in points_of(times, times.latency, 1 / study.pair_rate)
            if point.size <= MAX_CONFIRMED
        ]
        for level, times in study.times.items()
    }
    segments = fit_segments(point for points in by_level.values() for point in points)

    def fitted(point: Point) -> float:
        segment = next(s for s in reversed(segments) if s.start <= point.size)
        return segment.latency * point.latency + segment.gap * point.transfer

    return [
        (level, point.size)
        for level, points in by_level.items()
        for point in points
        if abs(fitted(point) - point.time) > TOLERANCE * point.time
    ]


def _visits(
    study: Study,
    levels: Mapping[str, MessageTimes],
    least: Mapping[str, Mapping[int, int]],
    visits: Sequence[int] = range(VISITS),
) -> Rounds:
    """Visits each size ``least`` times or more often, until it and its neighbours are as precise as requested.

    ``visits``: their numbers, one where times do not vary. The levels take turns, so that a disturbance affects both.
    """
    varies = study.effort.repeats > 1
    count = max(2, study.effort.round_trips // 2)
    for visit in visits if varies else visits[:1]:
        for level, times in levels.items():
            sizes = sorted(least[level])
            unsure = [
                len(times.visits.get(size, [])) < least[level][size]
                or times.time_of(size).uncertainty > study.effort.confidence
                for size in sizes
            ]
            revisited = [
                s for i, s in enumerate(sizes) if any(unsure[max(0, i - NEIGHBOURS) : i + NEIGHBOURS + 1])
            ]
            for group, messages in (
                _groups(revisited, count, study.pair_rate) if varies else [(revisited, count)]
            ):
                if group:
                    order = _drained_first(group, messages) if varies else tuple(group)
                    params: dict[str, Scalar] = {"experiment": "sweep", "level": level, "visit": visit}
                    result = yield Round((times.pair,), sizes=order, count=messages, params=params)
                    times.add(result.latencies)


def _groups(sizes: Sequence[int], count: int, rate: float) -> list[tuple[list[int], int]]:
    """The sizes of each round, and how many messages of each it sends. ``rate``: of the pair in B/s."""
    short = [size for size in sizes if size < SHORT]
    middle = [size for size in sizes if SHORT <= size < LONGEST]
    long = [size for size in sizes if size >= LONGEST]
    in_time = int(LONG_SECONDS * rate / (2 * max(long))) if long else 0
    return [(short, SHORT_REPEATS * count), (middle, count), (long, min(count, max(RUN_LENGTH, in_time)))]


def _drained_first(sizes: Sequence[int], messages: int) -> tuple[int, ...]:
    """The order of a round: first a size whose messages empty a token bucket, then the others, the longest first.

    A shaper's token bucket fills between two rounds, and lets the first messages of the next one pass at once.
    How many depends on the machine's speed. Behind an empty bucket each message takes what the rate allows.
    """
    drain = 1 << math.ceil(math.log2(DRAIN / messages))
    if min(sizes) > drain:  # the longest message drains it
        return tuple(sorted(sizes, reverse=True))
    return (drain, *sorted((size for size in sizes if size != drain), reverse=True))


def _message_size(study: Study, times: MessageTimes) -> int:
    """A size in the last protocol, long against the latency and against what a token bucket lets pass at once.

    Not longer than that: two directions alternate where a socket holds a whole message.
    """
    latency = min(times.time_of(size).value for size in times.visits)
    least = max(study.segments[-1].start, 20 * latency * study.pair_rate, study.effort.min_size)
    size = 1 << math.ceil(math.log2(min(least, LONGEST)))
    longest = max(times.visits)
    gap = times.time_of(longest).value / longest
    while size < LONGEST and times.time_of(size).value < PLATEAU * size * gap:
        size *= 2
    return size
