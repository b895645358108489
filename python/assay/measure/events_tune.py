"""The search for the event builder's best parameters (``assay eb tune``): one job of the engine for each point.

A point is one set of parameters. Only its failures and wrong fragments are kept as the job's records. Its throughput
is kept as ``events.tune/throughput`` with the point's parameters, one sample for each time that it was measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from assay.events.figures import BUILD, TUNE, WRONG_FRAGMENTS, describe
from assay.events.landscape import importances
from assay.events.space import Point, Space
from assay.events.tuner import Tuner, Tuning
from assay.launch.engines import MeasurementDescription, Metric
from assay.launch.launchers import Launcher
from assay.launch.placement import Site
from assay.launch.threads import Threads
from assay.measure.events import EventRequest, per_rank
from assay.measure.session import Session
from assay.records.schema import AnyRecord, Measurement, Progress, Scalar, Summary
from assay.records.units import format_quantity

REPORT_S = 10.0  # between two lines on the best point so far
MARGIN = 0.02  # of the best: the points that count as reaching it

DESCRIBED = [
    MeasurementDescription(
        name=TUNE,
        scope="group",
        help="the search for the event builder's best parameters: assay eb tune",
        parameters=[],
        metrics=[
            Metric("throughput", "B/s", "higher", "verified payload of a point; one sample for each time"),
            Metric(
                "importance", "1", "none", "of a parameter among the best points (PED-ANOVA), all together 1"
            ),
            Metric("reached", "1", "none", "share of the measured points within 2 % of the best"),
            Metric("cost", "1", "lower", "measurements over the points of the full grid"),
        ],
    )
]


@dataclass
class TuneRequest:
    """``points``: measurements to make; ``duration`` of each in seconds. ``hosts``: one rank each."""

    launcher: Launcher
    site: Site
    hosts: list[str]
    space: Space
    points: int
    duration: float
    timeout: float = 30.0


class _Listener:
    """The conductor of one job: takes its throughput, failures and wrong fragments."""

    def __init__(self) -> None:
        self.throughput: float | None = None
        self.wrong: list[AnyRecord] = []
        self.finished = True
        self.stdin = os.open(os.devnull, os.O_RDONLY)

    def receive(self, record: AnyRecord) -> AnyRecord:
        if isinstance(record, Measurement) and record.name == BUILD and record.summary is not None:
            if record.metric == "throughput" and record.status == "ok":
                self.throughput = record.median
            elif record.metric in WRONG_FRAGMENTS and record.median > 0:
                self.wrong.append(record)
        return record

    def check_labels(self, labels: Sequence[str]) -> None:
        """Does nothing: the ranks are those that were requested."""

    def ready(self) -> None:
        """Does nothing: the event builder reads no rounds."""

    def close(self) -> None:
        os.close(self.stdin)


def measure_tuning(session: Session, request: TuneRequest) -> Tuning:
    """Searches for the best point and records the measured points, also of an interrupted search."""
    done = 0

    reported_at = time.monotonic()

    def measure(point: Point) -> float | None:
        nonlocal done, reported_at
        if session.ended_early:
            raise KeyboardInterrupt
        value = _measure_point(session, request, request.space.params(point), done / request.points)
        done += 1
        if session.interrupted:
            raise KeyboardInterrupt
        session.continue_after_failure()  # a point that cannot be measured is not the end of the search
        if time.monotonic() - reported_at > REPORT_S:
            reported_at = time.monotonic()
            session.err.print(_progress_line(done, request.points, tuner.result), soft_wrap=True)
        return value

    tuner = Tuner(request.space, measure, request.points)
    try:
        tuner.run()
    except KeyboardInterrupt:
        session.interrupt()
    for record in landscape_records(tuner.result):
        session.run.append(record)
    if tuner.result.best is not None:
        session.failed = ""  # some points failed, and their failures are in the run; the search did not
        if not session.interrupted:
            session.complete(TUNE)
    return tuner.result


def _progress_line(done: int, points: int, result: Tuning) -> str:
    if result.best is None:
        return f"{done} of {points} points, none could be measured yet"
    rate = format_quantity(result.value(result.best), "B/s")
    return f"{done} of {points} points, best {rate}: {describe(result.space.params(result.best))}"


def _measure_point(
    session: Session, request: TuneRequest, params: dict[str, Scalar], done: float
) -> float | None:
    chosen = {key: value for key, value in params.items() if key != "processes"}
    hosts = per_rank(request.hosts, int(params.get("processes", 1)))
    launcher = Threads(len(hosts)) if isinstance(request.launcher, Threads) else request.launcher
    job = EventRequest(launcher, request.site, hosts, chosen, timeout=request.timeout)
    listener = _Listener()
    try:
        ended = session.converse(
            BUILD,
            launcher,
            request.site,
            job.segments(launcher),
            {**job.common(), **chosen, "duration": request.duration},
            listener,
            lambda: Progress(done, "searching"),
            job.silence_s,
            keep=False,
        )
    finally:
        listener.close()
    for record in listener.wrong:
        session.run.append(record)
    return listener.throughput if ended and not listener.wrong else None


def landscape_records(result: Tuning) -> list[Measurement]:
    """Every point with its samples, the importance of each parameter, and what the search cost."""
    records = [
        Measurement(
            name=TUNE,
            metric="throughput",
            unit="B/s",
            better="higher",
            params=result.space.params(point),
            summary=Summary(n=len(samples), median=result.value(point), min=min(samples), max=max(samples)),
            samples=samples,
        )
        for point, samples in result.values.items()
    ]
    values = {point: result.value(point) for point in result.values}
    records += [
        _figure("importance", share, {"parameter": name})
        for name, share in importances(result.space, values).items()
    ]
    if result.best is not None:
        records.append(_figure("reached", result.share_within(MARGIN)))
        records.append(_figure("cost", result.measured / result.space.size))
    return records


def _figure(metric: str, value: float, params: dict[str, Scalar] | None = None) -> Measurement:
    described = next(m for m in DESCRIBED[0].metrics if m.name == metric)
    return Measurement(
        name=TUNE,
        metric=metric,
        unit=described.unit,
        better=described.better,
        params=params or {},
        summary=Summary(n=1, median=value),
    )
