"""Studies drawn from the noise of a recorded one: how often a proof is wrong.

A recorded study gives, for each point, the times of its visits or the rates of its slices, and its error in the proof.
A drawn study has the same points. Its visits vary as those of the recorded one: disturbances that a visit has alone,
and changes between the two sessions of a study, minutes apart. Both are drawn from all visits to sizes nearby, as they
are: no distribution is assumed. Slices are drawn in blocks, since those in a row are alike.

The recorded study is of a lab of six hosts on a machine with two processors that other programs used (load 10 to 15).
Visits that were disturbed themselves are left out; the noise of the rates is all there.

    python tests/python/model/recorded_noise.py record --calm RUN... > tests/python/model/recorded_noise.json
    python tests/python/model/recorded_noise.py simulate --studies 1000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from assay.measure.saturation import read_cabinets
from assay.model import compare
from assay.model.compare import raise_to_typical, rounds_to_simulate
from assay.model.estimate import Z95, Estimate, estimate
from assay.model.proof import verdict
from assay.model.rounds import Result
from assay.model.study import RATE_CONFIDENCE, Effort
from assay.model.sweep import VISITS
from assay.model.times import NEAR, MessageTimes, deviations, error_of_time
from assay.records.run import Run
from assay.records.schema import Comparison

LIMIT = 0.05
RECORDED = Path(__file__).with_suffix(".json")
SLICES, BLOCK = 8, 4  # of a round; drawn together
CALM = 0.05
DRAWS = 100  # of each point's measurement; a study combines one of each


@dataclass
class Point:
    """A recorded point. ``values``: its visits or slices, relative to the measured value."""

    curve: str
    x: float
    error: float
    values: list[float]
    sessions: list[int]  # of each visit: 0 is the sweep, 1 the one at the end; empty for slices


def record(folder: Path, calm: bool) -> list[dict]:
    """The points of a run whose platform `assay model` has compared."""
    run = Run.load(folder)
    cabinets = read_cabinets(run.info.options["cabinets"])
    compared = {(point.curve, point.x): point for point in run.records if isinstance(point, Comparison)}
    points: list[dict] = []

    def add(curve: str, x: float, measured: float, values: Sequence[float], sessions: Sequence[int]) -> None:
        known = compared.pop((curve, x), None)
        if known is not None and not known.waived and known.error is not None:
            relative = [round(value / measured, 3) for value in values]
            points.append(vars(Point(curve, x, round(known.error, 4), relative, list(sessions))))

    for simulated in rounds_to_simulate(run.records):
        if isinstance(simulated.measured, MessageTimes):
            level = "inside a cabinet" if simulated.round.params["level"] == "inside" else "between cabinets"
            for size, visits in simulated.measured.visits.items():
                kept = [visit for visit in visits if not calm or _is_calm(visit.samples)]
                medians = [float(np.median(visit.samples)) for visit in kept]
                sessions = [int(int(visit.params["visit"]) >= VISITS) for visit in kept]
                if len(kept) > 1:
                    add(f"time of a message {level}", size, float(np.median(medians)), medians, sessions)
            continue
        slices: list[list[float]] = []

        def estimate_and_keep(samples: Sequence[float], kept: list[list[float]] = slices) -> Estimate:
            kept.append(list(samples))
            return estimate(samples)

        with mock.patch.object(compare, "estimate", estimate_and_keep):
            rates = compare._rates(simulated.round, simulated.measured, Result(), cabinets)
        for point, samples in zip(rates, slices, strict=True):
            add(point.curve, point.x, point.measured, samples, [])
    return points


def _is_calm(samples: Sequence[float]) -> bool:
    """Whether the middle half of a visit's messages took the same time. It says nothing about other visits."""
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
    return high - low <= CALM * middle


class RecordedStudy:
    """Draws studies like a recorded one."""

    def __init__(self, points: Sequence[dict], random: np.random.Generator, draws: int = DRAWS) -> None:
        self.points = [Point(**point) for point in points]
        self.random, self.draws = random, draws
        self.alone, self.session = self._pools()
        self.drawn = [self._draw(point) for point in self.points]
        names = list(dict.fromkeys(point.curve for point in self.points))
        self.curves = {name: np.array([point.curve == name for point in self.points]) for name in names}
        # A right model: the errors that were found, of which noise is a part, but none above the limit.
        self.errors = np.clip([point.error for point in self.points], -LIMIT, LIMIT)

    def _pools(self) -> tuple[list[tuple[float, NDArray]], list[tuple[float, NDArray]]]:
        """Logarithms by size: of visits against others of the session, and of sessions against the other one."""
        alone, between = [], []
        for point in self.points:
            sessions = [
                np.log([v for v, s in zip(point.values, point.sessions, strict=True) if s == session])
                for session in sorted(set(point.sessions))
            ]
            for values in sessions:
                if len(values) > 1:
                    inflation = np.sqrt(len(values) / (len(values) - 1))
                    alone.append((point.x, (values - np.median(values)) * inflation))
            if len(sessions) > 1:
                change = (np.median(sessions[1]) - np.median(sessions[0])) / np.sqrt(2)
                between.append((point.x, np.array([change, -change])))
        return alone, between

    def _near(self, pool: Sequence[tuple[float, NDArray]], size: float) -> NDArray:
        near = [values for other, values in pool if size / NEAR <= other <= size * NEAR]
        if not near:
            return np.zeros(1)
        values = np.concatenate(near)
        return values - np.median(values)  # drawn values have the true time as their median

    def _draw(self, point: Point) -> list[tuple[Estimate, NDArray]]:
        """Measurements of a point whose true value is 1."""
        random, count = self.random, len(point.values)
        if point.sessions:
            alone, change = self._near(self.alone, point.x), self._near(self.session, point.x)
            shared = random.choice(change, (self.draws, 2))[:, point.sessions]
            drawn = np.exp(random.choice(alone, (self.draws, count)) + shared)
            return [(estimate(values), values) for values in drawn]
        return [
            (self._rate(np.array(point.values) / np.median(point.values)), np.empty(0))
            for _ in range(self.draws // 4)
        ]

    def _rate(self, slices: NDArray) -> Estimate:
        """Rounds of slices, until the rate is known as well as a study wants it."""
        drawn = np.empty(0)
        for _ in range(Effort.repeats):
            starts = self.random.integers(0, len(slices), SLICES // BLOCK)
            indices = (starts[:, np.newaxis] + np.arange(BLOCK)).ravel() % len(slices)
            drawn = np.append(drawn, slices[indices])
            if (rate := estimate(drawn)).uncertainty <= RATE_CONFIDENCE:
                break
        return rate

    def measured(self) -> list[tuple[float, float]]:
        """Measured value and uncertainty of each point of a drawn study."""
        chosen = [draws[self.random.integers(len(draws))] for draws in self.drawn]
        timed = [(point, draw) for point, draw in zip(self.points, chosen, strict=True) if point.sessions]
        pooled = deviations((int(point.x), values) for point, (_, values) in timed)
        return [
            (
                time.value,
                Z95 * (error_of_time(time, pooled, int(point.x)) if point.sessions else time.standard_error),
            )
            for point, (time, _) in zip(self.points, chosen, strict=True)
        ]

    def outcome(self, measured: Sequence[tuple[float, float]], errors: NDArray) -> str:
        """Of the proof of a platform with these true errors."""
        points = [
            Comparison(
                curve=point.curve, axis="x", x=point.x, unit="s" if point.sessions else "B/s", measured=value,
                simulated=1 + float(error), error=(1 + float(error)) / value - 1, uncertainty=uncertainty,
            )
            for point, (value, uncertainty), error in zip(self.points, measured, errors, strict=True)
        ]  # fmt: skip
        raise_to_typical([point for point in points if point.unit == "B/s"])
        return verdict(points, LIMIT).outcome

    def off(self, curve: str, by: float) -> NDArray:
        """The errors of a right model but for one curve, whose errors are ``by`` in the mean."""
        chosen = self.curves[curve]
        return np.where(chosen, self.errors - self.errors[chosen].mean() + by, self.errors)


def simulate(studies: Sequence[Sequence[dict]], count: int, seed: int) -> Iterator[tuple[str, str]]:
    """The case ("right", or a curve that is off by twice the limit) and its outcome: ``count`` of each.

    The curves of a study take turns, and so do the recorded studies.
    """
    random = np.random.default_rng(seed)
    recorded = [RecordedStudy(points, random) for points in studies]
    for i in range(count):
        study = recorded[i % len(recorded)]
        turn = i // len(recorded)
        yield "right", study.outcome(study.measured(), study.errors)
        curve = list(study.curves)[turn % len(study.curves)]
        by = 2 * LIMIT * (-1) ** (turn // len(study.curves))
        yield curve, study.outcome(study.measured(), study.off(curve, by))


def main() -> None:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("runs", nargs="+", type=Path)
    recording.add_argument(
        "--calm", action="store_true", help="leave out visits that were disturbed themselves"
    )
    simulating = verbs.add_parser("simulate")
    simulating.add_argument("--studies", type=int, default=1000)
    simulating.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.verb == "record":
        print(
            "[\n"
            + ",\n".join(json.dumps(record(run, args.calm), separators=(",", ":")) for run in args.runs)
            + "\n]"
        )
        return
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for case, outcome in simulate(json.loads(RECORDED.read_text()), args.studies, args.seed):
        outcomes[case][outcome] += 1
    for case, counts in outcomes.items():
        print(f"{case}: {dict(counts)}", file=sys.stdout)


if __name__ == "__main__":
    main()
