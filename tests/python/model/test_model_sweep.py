"""Message sizes swept behind a token bucket: the times are those of an empty bucket, on fast and slow machines."""

from __future__ import annotations

import numpy as np
import pytest
from planted_network import answer_rounds

from assay.model.estimate import RUN_LENGTH
from assay.model.rounds import Result, Round
from assay.model.segments import fit_segments, points_of
from assay.model.study import Effort, Study
from assay.model.sweep import MAX_CONFIRMED, confirm, sweep, unexplained
from assay.model.times import MessageTimes
from assay.records.schema import Measurement, Subject, Summary

pytestmark = pytest.mark.slow

RATE, BUCKET, HEADER = 25e6, 128e3, 66  # B/s, B, B: 200 Mbit/s, as the lab's shapers are set
PAUSE = 20e-3  # s between two rounds, in which the bucket fills
COPY = 5e9  # B/s at which the machine itself moves a message


class TokenBuckets:
    """A pair in ping-pong, each direction behind a token bucket, which stays as the last message left it.

    ``latencies`` are by level: "inside" a cabinet or "between" two. A message that waits for tokens waits ``wake``
    seconds more on average, as the timers of a virtual machine do; the bucket fills meanwhile, and the next messages
    pass at once.
    """

    def __init__(self, latencies: dict[str, float], seed: int, wake: float = 0.0) -> None:
        self.latencies = latencies
        self.wake = wake
        self.random = np.random.default_rng(seed)
        self.clock = 0.0
        self.tokens, self.updated = [BUCKET, BUCKET], [0.0, 0.0]
        self.times: dict[str, MessageTimes] = {}

    def steady(self, size: int, level: str = "inside") -> float:
        """Half a round trip with empty buckets: each direction rests while the other is used."""
        return max(self.latencies[level] + size / COPY, (size + HEADER) / RATE / 2)

    def answer(self, request: Round) -> Result:
        self.clock += PAUSE
        latencies = []
        for size in request.sizes:
            latency_s = self.latencies[str(request.params["level"])]
            samples = [self._half_round_trip(size, latency_s) for _ in range(request.count)]
            (pair,) = request.flows
            latency = Measurement(
                id=1, name="network.saturation", metric="latency", unit="s",
                subject=Subject(host=pair[0], peer=pair[1]), params={**request.params, "size": size},
                summary=Summary(n=len(samples), median=float(np.median(samples))), samples=samples,
            )  # fmt: skip
            self.times.setdefault(str(request.params["level"]), MessageTimes(pair)).add([latency])
            latencies.append(latency)
        return Result(latencies=latencies)

    def _half_round_trip(self, size: int, latency_s: float) -> float:
        begun = self.clock
        for direction in (0, 1):
            self.clock += (latency_s + size / COPY) * self.random.lognormal(0, 0.03)
            self._fill(direction)
            if (lacking := size + HEADER - self.tokens[direction]) > 0:
                self.clock += lacking / RATE + self.wake * self.random.uniform(0.5, 1.5)
            self._fill(direction)
            self.tokens[direction] = max(0.0, self.tokens[direction] - size - HEADER)
        return (self.clock - begun) / 2

    def _fill(self, direction: int) -> None:
        # A message longer than the bucket takes what comes in while it passes.
        limit = max(BUCKET, self.tokens[direction])
        self.tokens[direction] = min(
            limit, self.tokens[direction] + (self.clock - self.updated[direction]) * RATE
        )
        self.updated[direction] = self.clock


@pytest.mark.parametrize("latency", [2e-6, 3.5e-6, 5.3e-6, 8e-6, 12e-6, 17e-6, 30e-6])
def test_an_empty_bucket_is_timed_on_machines_of_any_speed(latency: float):
    pair = TokenBuckets({"inside": latency}, seed=1)
    study = Study(["a", "b"], Effort(confidence=0.04), {"rack": ["a", "b"]})
    study.pair_rate = RATE
    answer_rounds(sweep(study), pair.answer)
    times = pair.times["inside"]
    short = [size for size in times.visits if size <= 16 << 10]
    errors = {size: times.time_of(size).value / pair.steady(size) - 1 for size in short}
    assert max(map(abs, errors.values())) <= 0.05, errors
    segments = fit_segments(points_of(times))
    for size in short:
        piece = [s for s in segments if s.start <= size][-1]
        assert piece.latency + size * piece.gap == pytest.approx(times.time_of(size).value, rel=0.05)


@pytest.mark.parametrize("wake", [0.0, 20e-6, 60e-6])
@pytest.mark.parametrize("inside", [4e-6, 7e-6, 8.9e-6, 13e-6, 25e-6])
def test_one_set_of_segments_holds_for_both_levels(inside: float, wake: float):
    """Where one level is behind the bucket for sure and the other one at its edge."""
    between = 1.35 * inside
    pairs = TokenBuckets({"inside": inside, "between": between}, seed=2, wake=wake)
    study = Study(["a", "b", "c", "d"], Effort(confidence=0.04), {"left": ["a", "b"], "right": ["c", "d"]})
    study.pair_rate = RATE
    answer_rounds(sweep(study), pairs.answer)
    points = {
        level: [
            point
            for point in points_of(pairs.times[level], pairs.latencies[level], 1 / RATE)
            if point.size <= 16 << 10
        ]
        for level in ("inside", "between")
    }
    segments = fit_segments([point for level in points.values() for point in level])

    def waits_are_seen(size: int) -> bool:
        """Waits that come less often than once in the messages of which means are taken are not seen."""
        waits = [pairs.steady(size, level) - latency for level, latency in pairs.latencies.items()]
        return all(wait <= 0.01 * inside or wake < RUN_LENGTH * 2 * wait for wait in waits)

    seen = [(level, point) for level in points for point in points[level] if waits_are_seen(point.size)]
    assert len(seen) > 20
    for level, point in seen:
        piece = [s for s in segments if s.start <= point.size][-1]
        fitted = piece.latency * pairs.latencies[level] + piece.gap * point.transfer
        assert fitted == pytest.approx(point.time, rel=0.05), (level, point.size)
        assert point.time == pytest.approx(pairs.steady(point.size, level), rel=0.1), (level, point.size)


DISTURBED = range(64, 300)  # B


class DisturbedPairs(TokenBuckets):
    """Pairs without a limit of their rate. The first ``visits`` visits to the sizes of DISTURBED inside a cabinet take
    ``factor`` times as long, which lies within the requested precision of no other visit."""

    def __init__(self, visits: int, factor: float) -> None:
        super().__init__({"inside": 8e-6, "between": 10e-6}, seed=3)
        self.left, self.factor = visits, factor

    def steady(self, size: int, level: str = "inside") -> float:
        return self.latencies[level] + size / COPY

    def answer(self, request: Round) -> Result:
        is_disturbed = self.left > 0 and request.params["level"] == "inside" and 128 in request.sizes
        self.left -= is_disturbed
        self.disturbed_now = is_disturbed
        return super().answer(request)

    def _half_round_trip(self, size: int, latency_s: float) -> float:
        factor = self.factor if self.disturbed_now and size in DISTURBED else 1.0
        return factor * (latency_s + size / COPY) * self.random.lognormal(0, 0.01)


@pytest.mark.parametrize("factor", [1.08, 1.2, 0.9])
def test_a_disturbance_of_all_first_visits_is_found_at_the_end(factor: float):
    pairs = DisturbedPairs(2, factor)
    study = Study(["a", "b", "c", "d"], Effort(confidence=0.04), {"left": ["a", "b"], "right": ["c", "d"]})
    study.pair_rate = COPY
    answer_rounds(sweep(study), pairs.answer)
    times = study.times["inside"]
    assert times.time_of(128).value == pytest.approx(factor * pairs.steady(128), rel=0.02)
    assert times.time_of(128).uncertainty < 0.04  # the visits agree with each other
    answer_rounds(confirm(study), pairs.answer)
    for size in (size for size in times.visits if size <= MAX_CONFIRMED):
        assert times.time_of(size).value == pytest.approx(pairs.steady(size), rel=0.02), size
    assert not unexplained(study)


def test_a_size_that_the_shared_factors_do_not_explain_is_visited_until_its_interval_is_known():
    """The disturbance lasts, so the time is what it is, and its interval is believed."""
    pairs = DisturbedPairs(1000, 0.8)
    study = Study(["a", "b", "c", "d"], Effort(confidence=0.04), {"left": ["a", "b"], "right": ["c", "d"]})
    study.pair_rate = COPY
    answer_rounds(sweep(study), pairs.answer)
    assert ("inside", 128) in unexplained(study)
    answer_rounds(confirm(study), pairs.answer)
    visits = study.times["inside"].visits
    assert len(visits[128]) >= 6 > len(visits[32 << 10])


def test_a_simulated_study_confirms_nothing():
    study = Study(["a", "b"], Effort(repeats=1), {"left": ["a", "b"]})
    assert answer_rounds(confirm(study), lambda _: Result()) == []
