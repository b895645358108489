"""The sweep over message sizes behind a token bucket: times are those of an empty bucket, on machines of any speed."""

from __future__ import annotations

import numpy as np
import pytest
from planted_network import conduct

from assay.model.rounds import Result, Round
from assay.model.segments import fit_segments, points_of
from assay.model.study import Effort, Study
from assay.model.sweep import sweep
from assay.model.times import MessageTimes
from assay.records.schema import Measurement, Subject, Summary

RATE, BUCKET, HEADER = 25e6, 128e3, 66  # B/s, B, B: 200 Mbit/s, as the lab's shapers are set
PAUSE = 20e-3  # s between two rounds, in which the bucket fills
COPY = 5e9  # B/s at which the machine itself moves a message


class TokenBuckets:
    """A pair in ping-pong, each direction behind a token bucket, which stays as the last message left it."""

    def __init__(self, latency: float, seed: int) -> None:
        self.latency = latency
        self.random = np.random.default_rng(seed)
        self.clock = 0.0
        self.tokens, self.updated = [BUCKET, BUCKET], [0.0, 0.0]
        self.times: dict[str, MessageTimes] = {}

    def steady(self, size: int) -> float:
        """Half a round trip with empty buckets: each direction rests while the other is used."""
        return max(self.latency + size / COPY, (size + HEADER) / RATE / 2)

    def answer(self, request: Round) -> Result:
        self.clock += PAUSE
        latencies = []
        for size in request.sizes:
            samples = [self._half_round_trip(size) for _ in range(request.count)]
            (pair,) = request.flows
            latency = Measurement(
                id=1, name="network.saturation", metric="latency", unit="s",
                subject=Subject(host=pair[0], peer=pair[1]), params={**request.params, "size": size},
                summary=Summary(n=len(samples), median=float(np.median(samples))), samples=samples,
            )  # fmt: skip
            self.times.setdefault(str(request.params["level"]), MessageTimes(pair)).add([latency])
            latencies.append(latency)
        return Result(latencies=latencies)

    def _half_round_trip(self, size: int) -> float:
        begun = self.clock
        for direction in (0, 1):
            self.clock += (self.latency + size / COPY) * self.random.lognormal(0, 0.03)
            self._fill(direction)
            self.clock += max(0.0, size + HEADER - self.tokens[direction]) / RATE
            self._fill(direction)
            self.tokens[direction] = max(0.0, self.tokens[direction] - size - HEADER)
        return (self.clock - begun) / 2

    def _fill(self, direction: int) -> None:
        # A message longer than the bucket takes what comes in while it passes.
        most = max(BUCKET, self.tokens[direction])
        self.tokens[direction] = min(
            most, self.tokens[direction] + (self.clock - self.updated[direction]) * RATE
        )
        self.updated[direction] = self.clock


@pytest.mark.parametrize("latency", [2e-6, 3.5e-6, 5.3e-6, 8e-6, 12e-6, 17e-6, 30e-6])
def test_an_empty_bucket_is_timed_on_machines_of_any_speed(latency: float):
    pair = TokenBuckets(latency, seed=1)
    study = Study(["a", "b"], Effort(confidence=0.04), {"rack": ["a", "b"]})
    study.single = RATE
    conduct(sweep(study), pair.answer)
    times = pair.times["inside"]
    short = [size for size in times.visits if size <= 16 << 10]
    errors = {size: times.time_of(size).value / pair.steady(size) - 1 for size in short}
    assert max(map(abs, errors.values())) <= 0.05, errors
    segments = fit_segments(points_of(times))
    for size in short:
        piece = [s for s in segments if s.start <= size][-1]
        assert piece.latency + size * piece.gap == pytest.approx(times.time_of(size).value, rel=0.05)
