"""Runs a saturation study: sends the rounds of the experiments to the engine, and keeps the results in the run.

One MPI job serves the whole study. The engine prints ``ready``, reads a round from standard input, measures it, and
prints ``ready`` again. The experiments choose each round from the results so far. A resumed run repeats the
experiments from the start and takes the rounds that it has from its records, so resuming needs no other state.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from ClusterShell.NodeSet import NodeSet

from assay.errors import UserError
from assay.launch.launchers import Launcher
from assay.launch.placement import Segment, Site
from assay.measure.session import Session
from assay.model.compare import replay
from assay.model.experiments import expected_rounds, experiments
from assay.model.network import Topology
from assay.model.rounds import NAME, Result, Round, results
from assay.model.study import Effort, Study
from assay.records.schema import AnyRecord, Flows, Measurement, Progress, Scalar

# Longest time without a line from the engine: a round may take minutes of computing in the simulator.
SILENCE_S = 600.0


@dataclass
class SaturationRequest:
    """The hosts, the effort, and the cabinets (measured when empty)."""

    launcher: Launcher
    site: Site
    hosts: list[str]
    effort: Effort
    cabinets: Topology = field(default_factory=dict)
    params: dict[str, Scalar] = field(default_factory=dict)


class Conductor:
    """Passes the engine's results to the experiments, and the experiments' rounds to the engine.

    ``labels``: the host of each rank. ``earlier``: results that the run has already, by the key of the round.
    ``on_step`` is called for each new round. ``stdin`` is the engine's end of the pipe.
    """

    def __init__(
        self,
        rounds: Generator[Round, Result, object],
        labels: Sequence[str],
        earlier: Mapping[str, Result],
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self._rounds = rounds
        self._ranks = {label: rank for rank, label in enumerate(labels)}
        self._earlier = earlier
        self._on_step = on_step
        self._requested: Round | None = None
        self._answer = Result()
        self.failure: UserError | None = None
        self.finished = False
        self.stdin, self._pipe = os.pipe()

    def receive(self, record: AnyRecord) -> AnyRecord:
        """Adds the record to the result of the requested round, if it belongs to it. Returns the record."""
        if self._requested is None or not isinstance(record, Flows | Measurement):
            return record
        if record.name == NAME and record.params.get("round") == self._requested.key:
            unknown = [host for host in _hosts_of(record) if host not in self._ranks]
            if unknown:  # an engine that has not reported its ranks
                self.failure = self.failure or UserError(
                    f"the host '{unknown[0]}' takes part but was not named", "name each machine once"
                )
            if isinstance(record, Flows):
                self._answer.flows = record
            else:
                self._answer.latencies.append(record)
        return record

    def check_labels(self, labels: Sequence[str]) -> None:
        """Checks the host of each rank, as the engine reports it. Every host of the study must have one rank."""
        unknown_labels = [label for label in labels if label not in self._ranks]
        if unknown_labels:
            self.failure = self.failure or UserError(
                f"{unknown_labels[0]} takes part but was not named"
                if ":" not in unknown_labels[0]
                else f"{unknown_labels[0].partition(':')[0]} is named more than once, by different names",
                "name each machine once",
            )
            return
        self._ranks = {label: rank for rank, label in enumerate(labels)}

    def ready(self) -> None:
        """Handles an engine that waits: sends the next round that the run does not have yet, or ends the engine."""
        try:
            request = self._next() if self.failure is None else None
        except UserError as error:
            self.failure, request = error, None
        if request is None:
            self.close()
        elif self._pipe >= 0:
            try:
                os.write(self._pipe, request.line(self._ranks))
            except BrokenPipeError:  # it has ended; its reader says why
                self.close()

    def _next(self) -> Round | None:
        try:
            if self._requested is None:
                self._requested = next(self._rounds)
            else:
                self._requested = self._rounds.send(self._answer)
            self._on_step()
            while (result := self._earlier.get(self._requested.key)) is not None and result.is_complete(
                self._requested
            ):
                self._requested = self._rounds.send(result)
                self._on_step()
        except StopIteration:
            self.finished = True
            return None
        self._answer = Result()
        return self._requested

    def close(self) -> None:
        for descriptor in (self._pipe, self.stdin):
            if descriptor >= 0:
                os.close(descriptor)
        self._pipe = self.stdin = -1


def _hosts_of(record: Flows | Measurement) -> list[str]:
    if isinstance(record, Flows):
        return [*record.sources, *record.targets]
    return [str(record.subject.host), str(record.subject.peer)]


def measure_saturation(session: Session, request: SaturationRequest) -> Study:
    """Runs the study as far as it goes; the run's options hold the topology as soon as it is known."""
    labels = request.hosts
    study = Study(list(labels), request.effort, dict(request.cabinets))
    study_progress = _StudyProgress(session, study)
    conductor = Conductor(experiments(study), labels, results(session.run.records), study_progress.step)
    params: dict[str, Scalar] = dict(request.params)
    if request.site.lab:
        params["yield_us"] = 0  # lab hosts share this machine's cores
    _converse(session, request, conductor, params, study_progress.progress)
    return study


def measure_rounds(
    session: Session,
    request: SaturationRequest,
    rounds: Sequence[Round],
    has_time: Callable[[], bool],
) -> None:
    """Measures the rounds one after the other while ``has_time()``; the run keeps their records."""
    answers: dict[str, Result] = {}
    in_time = itertools.takewhile(lambda _: has_time(), rounds)
    conductor = Conductor(replay(in_time, answers), request.hosts, {})
    params: dict[str, Scalar] = {"yield_us": 0} if request.site.lab else {}
    progress = lambda: Progress(len(answers) / max(1, len(rounds)), "groups of flows")  # noqa: E731
    _converse(session, request, conductor, params, progress)
    if blank := sum(not (answer.flows and answer.flows.values) for answer in answers.values()):
        session.err.print(
            f"{blank} of {len(answers)} rounds have no time in which all of their flows ran: they judge nothing"
        )


def simulate_rounds(
    session: Session, request: SaturationRequest, rounds: Sequence[Round]
) -> dict[str, Result]:
    """Runs the rounds one after the other on the request's launcher. The run keeps none of them."""
    answers: dict[str, Result] = {}
    done = 0

    def step() -> None:
        nonlocal done
        done += 1

    conductor = Conductor(replay(rounds, answers), request.hosts, {}, step)
    progress = lambda: Progress(done / max(1, len(rounds)), "simulating")  # noqa: E731
    _converse(session, request, conductor, request.params, progress, keep=False)
    return answers


def _converse(
    session: Session,
    request: SaturationRequest,
    conductor: Conductor,
    params: Mapping[str, Scalar],
    progress: Callable[[], Progress],
    keep: bool = True,
) -> None:
    segments = [Segment(request.hosts)]
    try:
        session.converse(
            NAME, request.launcher, request.site, segments, params, conductor, progress, SILENCE_S, keep
        )
    finally:
        conductor.close()
    if conductor.failure is not None:
        session.give_up(conductor.failure)


class _StudyProgress:
    """Follows a running study: saves its cabinets in the run, and reports its progress."""

    def __init__(self, session: Session, study: Study) -> None:
        self._session, self._study = session, study
        self._begun = time.monotonic()
        self._cabinets_saved = False

    def step(self) -> None:
        if self._study.cabinets and not self._cabinets_saved:
            self._cabinets_saved = True
            self._session.run.info.options["cabinets"] = write_cabinets(self._study.cabinets)
            self._session.run.info.options["cabinets_by"] = self._study.grouped_by or "unknown: taken as one"
            self._session.run.save()

    def progress(self) -> Progress:
        expected = expected_rounds(self._study)
        done = min(0.99, self._study.rounds_requested / expected) if expected else 0.0
        elapsed = time.monotonic() - self._begun
        seconds_left = elapsed * (1 - done) / done if done > 0.05 else -1.0
        return Progress(done, self._study.phase, seconds_left)


def write_cabinets(cabinets: Topology) -> list[str]:
    """Formats cabinets as on the command line: ["c1=n[0-15]", ...]."""
    return [f"{name}={NodeSet.fromlist(hosts)}" for name, hosts in cabinets.items()]


def read_cabinets(assignments: Sequence[str]) -> Topology:
    """Inverse of write_cabinets, for the options of a run."""
    pairs = (assignment.partition("=") for assignment in assignments)
    return {name: list(NodeSet(hosts)) for name, _, hosts in pairs}
