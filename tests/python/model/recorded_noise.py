"""Studies drawn from the noise of recorded ones: how often a proof is wrong.

A recorded study gives, for each point, the times of its visits or the rates of its slices, and its error in the proof.
A drawn study has the same points. Its passes over the message sizes are drawn from the recorded ones, and its slices in
blocks, since those in a row are alike: no distribution is assumed. The second session stays as far from the first as it
was.

The recorded studies are two of a lab of six hosts on an idle machine with two processors, with Open MPI and with MPICH.
Nothing is left out. In the second, short messages took a fifth longer at the end of the study than in its sweep.

    python tests/python/model/recorded_noise.py record RUN... > tests/python/model/recorded_noise.json
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
from assay.model.times import VISITS, MessageTimes, change, deviations, error_of_time
from assay.records.run import Run
from assay.records.schema import Comparison

LIMIT = 0.05
RECORDED = Path(__file__).with_suffix(".json")
SLICES, BLOCK = 8, 4  # of a round; drawn together
DRAWS = 200  # of all times of a study
RATE_DRAWS = 25  # of each rate; a study combines one of each


@dataclass
class Point:
    """A recorded point. ``values``: its visits or slices, relative to the measured value."""

    curve: str
    x: float
    error: float
    values: list[float]
    sessions: list[int]  # of each visit: 0 is the sweep, 1 the one at the end; empty for slices


def record(folder: Path) -> list[dict]:
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
                medians = [float(np.median(visit.samples)) for visit in visits]
                sessions = [int(int(visit.params["visit"]) >= VISITS) for visit in visits]
                if len(visits) > 1:
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


class RecordedStudy:
    """Draws studies like a recorded one."""

    def __init__(self, points: Sequence[dict], random: np.random.Generator, draws: int = DRAWS) -> None:
        self.points = [Point(**point) for point in points]
        self.random = random
        self.times = [self._draw_times() for _ in range(draws)]
        self.rates = [self._draw_rates(point) for point in self.points]
        names = list(dict.fromkeys(point.curve for point in self.points))
        self.curves = {name: np.array([point.curve == name for point in self.points]) for name in names}
        self.errors = self._true_errors()

    def _true_errors(self) -> NDArray:
        """Of a right model: what was found, less the noise in it (positive-part James-Stein), within the limit."""
        found = np.array([point.error for point in self.points])
        values = [np.array(point.values) for point in self.points]
        noise = np.array([uncertainty / Z95 for _, uncertainty in self._figures(values, None)])
        kept = np.maximum(0.0, 1 - (noise / np.maximum(np.abs(found), 1e-9)) ** 2)
        return np.clip(found * kept, -LIMIT, LIMIT)

    def _draw_times(self) -> list[NDArray]:
        """The visits to each point, of a true time of 1; none for a point that is a rate.

        A pass visits all sizes in turn, and what disturbs one disturbs the next: so passes are drawn, not visits. The
        platform is fitted to the first session. The visits of the second one lie where they were.
        """
        drawn_passes: dict[int, NDArray] = {}
        result: list[NDArray] = []
        for point in self.points:
            values, sessions = np.array(point.values), np.array(point.sessions)
            if not point.sessions:
                result.append(np.empty(0))
                continue
            first = values[sessions == 0]
            count = len(first)
            if count not in drawn_passes:
                drawn_passes[count] = self.random.integers(0, count, count)
            drawn = np.concatenate([first[drawn_passes[count]], values[sessions == 1]])
            result.append(drawn / np.median(first))
        return result

    def _draw_rates(self, point: Point) -> list[Estimate]:
        """Measurements of a rate of 1; none of a time."""
        if point.sessions:
            return []
        slices = np.array(point.values) / np.median(point.values)
        return [self._rate(slices) for _ in range(RATE_DRAWS)]

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
        times = self.times[self.random.integers(len(self.times))]
        rates = [
            of_point[self.random.integers(len(of_point))] if of_point else None for of_point in self.rates
        ]
        return self._figures(times, rates)

    def _figures(
        self, visits: Sequence[NDArray], rates: Sequence[Estimate | None] | None
    ) -> list[tuple[float, float]]:
        """Value and uncertainty of each point. ``rates``: None takes those of the values themselves."""
        pooled = deviations(
            (int(point.x), values)
            for point, values in zip(self.points, visits, strict=True)
            if point.sessions
        )
        result = []
        for i, (point, values) in enumerate(zip(self.points, visits, strict=True)):
            estimated = rates[i] if rates is not None else None
            figure = estimated or estimate(values)
            error = figure.standard_error
            if point.sessions:
                error = error_of_time(figure, pooled, int(point.x), change(values, point.sessions))
            result.append((figure.value, Z95 * error))
        return result

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
    simulating = verbs.add_parser("simulate")
    simulating.add_argument("--studies", type=int, default=1000)
    simulating.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.verb == "record":
        print("[\n" + ",\n".join(json.dumps(record(run), separators=(",", ":")) for run in args.runs) + "\n]")
        return
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for case, outcome in simulate(json.loads(RECORDED.read_text()), args.studies, args.seed):
        outcomes[case][outcome] += 1
    for case, counts in outcomes.items():
        print(f"{case}: {dict(counts)}", file=sys.stdout)


if __name__ == "__main__":
    main()
