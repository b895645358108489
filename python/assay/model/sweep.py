"""The sweep over message sizes: the time of a message by size, and the message size for all other rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from assay.model.rounds import Round
from assay.model.segments import between_breaks, fit_segments, points_of
from assay.model.study import MIB, PLATEAU, Rounds, Study
from assay.model.times import MessageTimes
from assay.records.schema import Scalar

LONGEST = MIB  # B: longest message of a saturation round
REFINEMENTS = 3  # of a protocol's limits: each halves the open interval
VISITS = 20  # to a size, at most
SHORT = 4096  # B; times of shorter messages vary more
SHORT_REPEATS = 8  # short messages are sent this many times as often
DRAIN = MIB  # B: each round first sends this much, which empties a rate limiter's token bucket
NEIGHBOURS = 2  # sizes on each side that must be precise, too, since one disturbance can delay several
SWEEP = tuple(2**k for k in range(23))  # 1 B to 4 MiB


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
    yield from _visits(study, levels, SWEEP)
    level, first = next(iter(levels.items()))
    for _ in range(REFINEMENTS):
        if sizes := between_breaks(points_of(first)):
            yield from _visits(study, {level: first}, sizes)
    study.segments = fit_segments(points_of(first))
    study.size = _message_size(study, first)


def _visits(study: Study, levels: Mapping[str, MessageTimes], sizes: Sequence[int]) -> Rounds:
    """Visits each size at least twice where times vary, then until it and its neighbours are as precise as requested.

    Two visits may agree by chance, hence the neighbours. The levels take turns, so that a disturbance affects both.
    """
    varies = study.effort.repeats > 1
    count = max(2, study.effort.round_trips // 2)
    for visit in range(VISITS if varies else 1):
        for level, times in levels.items():
            unsure = [
                visit < 2 or times.time_of(size).uncertainty > study.effort.confidence for size in sizes
            ]
            revisited = [
                s for i, s in enumerate(sizes) if any(unsure[max(0, i - NEIGHBOURS) : i + NEIGHBOURS + 1])
            ]
            short = [size for size in revisited if varies and size < SHORT]
            long = [size for size in revisited if size not in short]
            for group, messages in ((short, SHORT_REPEATS * count), (long, count)):
                if group:
                    order = _drained_first(group, messages) if varies else tuple(group)
                    params: dict[str, Scalar] = {"experiment": "sweep", "level": level, "visit": visit}
                    result = yield Round((times.pair,), sizes=order, count=messages, params=params)
                    times.add(result.latencies)


def _drained_first(sizes: Sequence[int], messages: int) -> tuple[int, ...]:
    """The order of a round: first a size whose messages empty a token bucket, then the others, the longest first.

    A shaper's token bucket fills between two rounds, and lets the first messages of the next one pass at once.
    How many depends on the machine's speed. Behind an empty bucket each message takes what the rate allows.
    """
    drain = 1 << math.ceil(math.log2(DRAIN / messages))
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
