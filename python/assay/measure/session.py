"""One run from its first measurement to its verdict, the same for every verb.

    session.measure(...)    starts an engine; records go to the run as they come, progress to the terminal
    session.conclude(...)   explains, judges, writes the report, prints the outcome; returns the exit code

A failure or Ctrl-C ends the measuring, not the run: the records so far are kept and judged, and the run is marked
as partial.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

from assay.errors import EXIT_INTERRUPTED, EXIT_OF, EXIT_PASS, UserError
from assay.explain import Evidence, explain_evidence, state_power
from assay.judge import Specification, deciding_criteria, doubt, integrity, judge, overall, result
from assay.launch.engines import describe, probe
from assay.launch.identity import HostRenamer
from assay.launch.large_packets import name_lost_packets
from assay.launch.launchers import Launcher, Local
from assay.launch.placement import Segment, Site
from assay.launch.supervise import EngineProcess, EngineResult, Limits, run_engine
from assay.measure.engine_processes import START_S_PER_RANK, Side, engine_process, pipe_with_line, start_limit
from assay.measure.show_progress import shown_progress
from assay.profile.profiles import Profiles
from assay.records import schema
from assay.records.run import Run
from assay.records.schema import AnyRecord
from assay.records.text import json_line
from assay.records.units import parse_size
from assay.report.console import console
from assay.report.heap import show_profiles
from assay.report.html import build_report
from assay.report.numa import show_numa_profiles
from assay.report.sources import show_source_notices
from assay.report.terminal import show_outcome, show_run, show_verdicts

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]


class Conductor(Protocol):
    """Decides the next round of an engine from the records so far, and sends it over the engine's standard input."""

    stdin: int
    finished: bool  # no round is left

    def receive(self, record: AnyRecord) -> AnyRecord:
        """Takes a record of the engine and returns the record to keep."""

    def check_labels(self, labels: Sequence[str]) -> None:
        """Checks the host of each rank, as the engine reports it."""

    def ready(self) -> None:
        """Sends the next round to the engine, which waits for it; closes the pipe after the last round."""


class Session:
    """A run being measured. ``as_json`` prints it as one JSON object when it is concluded. ``quiet`` leaves standard
    output to the caller (--compat-netsan)."""

    def __init__(self, run: Run, verbose: bool = False, quiet: bool = False, as_json: bool = False) -> None:
        self.run = run
        self.verbose = verbose
        self.quiet = quiet
        self.as_json = as_json
        self.ended_early = ""  # why measuring stopped; empty while it goes on
        self.interrupted = False
        self.labels: list[str] = []  # of the last engine's ranks, in their order
        self.failed = ""  # the failure of a measurement after which others went on
        self.out = console()
        self.err = console(stderr=True)

    def measure(
        self,
        measurement: str,
        launcher: Launcher,
        site: Site,
        segments: Sequence[Segment],
        params: Mapping[str, schema.Scalar],
        silence_s: float = 90.0,
        flavour: str | None = None,
        more_follow: bool = False,
        late_s: float | None = None,
    ) -> bool:
        """Runs one measurement; True when every rank finished. Does nothing once measuring has ended.

        ``flavour``: the engine to start, when it is not the launcher's own ("" for one without MPI).
        ``more_follow``: other hosts or devices follow, so the measurement is not complete yet. ``late_s``: how long the
        start waits for a host that is late.
        """
        if self.ended_early:
            return False
        if measurement in self.run.info.completed:
            return True
        started = engine_process(
            measurement, launcher, site, segments, self._remaining_params(measurement, params), flavour
        )
        finished = self._supervise(measurement, [started], launcher, silence_s, late_s=late_s)
        if finished and not more_follow:
            self.complete(measurement)
        return not self.ended_early

    def measure_pair(
        self, first: Side, other: Side, silence_s: float = 90.0, more_follow: bool = False
    ) -> bool:
        """Runs one measurement between two processes: starts ``first``, and ``other`` once it can be reached.

        Both get the same new token on standard input, by which they recognise each other. True when both finished.
        Does nothing once measuring has ended.
        """
        if self.ended_early:
            return False
        if first.measurement in self.run.info.completed:
            return True
        local = Local()
        token = secrets.token_hex(32)
        with ExitStack() as pipes:
            started = [
                replace(
                    engine_process(
                        side.measurement,
                        local,
                        side.site,
                        [Segment([side.host])],
                        {**side.params, "token": "-"},
                        "",
                    ),
                    stdin=pipes.enter_context(pipe_with_line(token)),
                )
                for side in (first, other)
            ]
            if self._supervise(first.measurement, started, local, silence_s) and not more_follow:
                self.complete(*{first.measurement, other.measurement})
        return not self.ended_early

    def converse(
        self,
        measurement: str,
        launcher: Launcher,
        site: Site,
        segments: Sequence[Segment],
        params: Mapping[str, schema.Scalar],
        conductor: Conductor,
        progress: Callable[[], schema.Progress],
        silence_s: float,
        keep: bool = True,
    ) -> bool:
        """Runs one measurement whose rounds a conductor sends. ``keep``: the run keeps the records, not the conductor
        alone. True when the conductor finished."""
        if self.ended_early:
            return False
        started = replace(
            engine_process(measurement, launcher, site, segments, params, None), stdin=conductor.stdin
        )

        names = HostRenamer(started.hosts)

        def on_ranks(ranks: schema.Ranks) -> None:
            self._record_names(names, ranks)
            conductor.check_labels(names.labels)

        def on_record(record: AnyRecord) -> None:
            record = conductor.receive(names.rename(record))
            if keep:
                self.run.append(record)

        with shown_progress(self.err, measurement) as on_progress:

            def ready() -> None:
                conductor.ready()
                on_progress(progress())

            limits = Limits(start=start_limit(started), silence=silence_s)
            ending = self._run_to_end(
                [started],
                lambda: run_engine(
                    started,
                    on_record,
                    on_progress,
                    launcher.diagnose,
                    limits,
                    on_ready=ready,
                    on_silence=on_progress.silent,
                    on_ranks=on_ranks,
                ),
                names,
            )
        if ending and conductor.finished and keep:
            self.complete(measurement)
        return ending and conductor.finished

    def run_step(
        self,
        key: str,
        started: EngineProcess,
        overall: Callable[[schema.Progress], schema.Progress],
        silence_s: float,
        launcher: Launcher | None = None,
    ) -> bool:
        """Runs one engine among several; ``overall`` turns its progress into that of all of them, and ``key`` is the
        step's name in the run's ``completed``. True when it finished."""
        if self.ended_early:
            return False
        if self._supervise(key, [started], launcher or Local(), silence_s, overall):
            self.complete(key)
        return not self.ended_early

    def waive(self, measurement: str, host: str, reason: str) -> None:
        """Records for every metric of a measurement why it is not measured."""
        self._append_without_value(measurement, schema.Subject(host=host), {}, "waived", reason)

    def unfit(self, measurement: str, host: str, device: str, reason: str) -> None:
        """Records that a device exists but cannot be measured because it is not in order: its rates fail, its other
        metrics stay inconclusive."""
        subject = schema.Subject(host=host, device=device)
        self._append_without_value(measurement, subject, {"B/s": "unfit"}, "error", reason)

    def broken(self, measurement: str, host: str, device: str, reason: str) -> None:
        """Records that the measurement of a device failed."""
        self._append_without_value(measurement, schema.Subject(host=host, device=device), {}, "error", reason)

    def _append_without_value(
        self,
        measurement: str,
        subject: schema.Subject,
        status_of: Mapping[str, schema.Status],
        status: schema.Status,
        reason: str,
    ) -> None:
        """Appends a record without a value for each metric. ``status_of``: the status by the metric's unit, where it
        differs from ``status``."""
        described = describe(probe()).find(measurement)
        for metric in described.metrics:
            self.run.append(
                schema.Measurement(
                    name=described.name,
                    metric=metric.name,
                    unit=metric.unit,
                    better=metric.better,
                    subject=subject,
                    status=status_of.get(metric.unit, status),
                    reason=reason,
                )
            )

    def complete(self, *measurements: str) -> None:
        """Marks measurements as done: a resumed run skips them."""
        self.run.info.completed.extend(measurements)
        self.run.save()

    def _supervise(
        self,
        title: str,
        started: Sequence[EngineProcess],
        launcher: Launcher,
        silence_s: float,
        overall: Callable[[schema.Progress], schema.Progress] = lambda progress: progress,
        late_s: float | None = None,
    ) -> bool:
        start_s = start_limit(started[0])
        if late_s is not None:
            start_s, late_s = max(start_s, late_s), late_s + START_S_PER_RANK * len(started[0].hosts)
        names = HostRenamer(started[0].hosts if len(started) == 1 else [])
        with shown_progress(self.err, title) as on_progress:
            return self._run_to_end(
                started,
                lambda: run_engine(
                    started[0],
                    lambda record: self.run.append(names.rename(record)),
                    lambda progress: on_progress(overall(progress)),
                    launcher.diagnose,
                    Limits(start_s, silence_s, late_s),
                    second_engine=started[1] if len(started) > 1 else None,
                    on_silence=on_progress.silent,
                    on_ranks=lambda ranks: self._record_names(names, ranks),
                ),
                names,
            )

    def _record_names(self, names: HostRenamer, ranks: schema.Ranks) -> None:
        """Takes the listed names of the engine's hosts, and records those that differ, once."""
        contexts = names.match_ranks(ranks)
        self.labels = names.labels
        known = [(r.subject, r.facts) for r in self.run.records if isinstance(r, schema.Context)]
        for context in contexts:
            if (context.subject, context.facts) not in known:
                self.run.append(context)

    def _run_to_end(
        self, started: Sequence[EngineProcess], run: Callable[[], EngineResult], names: HostRenamer
    ) -> bool:
        """Runs an engine and records its failure, if it failed; True when it finished."""
        if self.verbose:
            for engine in started:
                self.err.print("+ " + " ".join(engine.argv), soft_wrap=True)
        ending = run()
        if self.verbose and ending.stderr.strip():
            self.err.print(ending.stderr.rstrip(), soft_wrap=True)
        busy = ending.load.reason() if started[0].timed_here else ""
        self.run.info.busy = busy or self.run.info.busy
        if ending.interrupted:
            self.interrupt()
        elif ending.failure:
            ending.failure.problem += f" ({busy})" if busy else ""
            names.rename(ending.failure)
            try:
                name_lost_packets(ending.failure, started[0].site, ending.silent)
            finally:  # also after Ctrl-C
                self.run.append(ending.failure)
                self.ended_early = ending.failure.problem
        return not self.ended_early

    def interrupt(self) -> None:
        """Ctrl-C, during an engine or between two: nothing more is measured, and the run is concluded."""
        self.interrupted, self.ended_early = True, "interrupted"

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Makes Ctrl-C between two engines end the measuring, as Ctrl-C during an engine does."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupt()

    def continue_after_failure(self) -> None:
        """Lets other measurements run after one has failed. The run stays partial. After Ctrl-C it does nothing."""
        if not self.interrupted:
            self.failed, self.ended_early = self.failed or self.ended_early, ""

    def give_up(self, error: UserError) -> None:
        """Records that nothing can be measured, and ends the measuring. The criteria stay inconclusive."""
        self.run.append(schema.Failure(problem=error.what, fix=error.fix))
        self.ended_early = error.what

    def _remaining_params(
        self, measurement: str, params: Mapping[str, schema.Scalar]
    ) -> Mapping[str, schema.Scalar]:
        """The parameters without the sizes that a resumed run has already (one at least is kept)."""
        if "sizes" not in params:
            return params
        ops = str(params.get("op", "send")).split(",")
        measured = {
            (r.params.get("size"), r.params.get("op"))
            for r in self.run.records
            if isinstance(r, schema.Measurement) and r.name == measurement and r.metric == "corrupted"
        }
        sizes = [parse_size(size) for size in str(params["sizes"]).split(",")]
        remaining = [size for size in sizes if any((size, op) not in measured for op in ops)] or sizes[-1:]
        return {**params, "sizes": ",".join(map(str, remaining))}

    def conclude(self, specifications: Sequence[Specification], profiles: Profiles | None = None) -> int:
        """Explains and judges the records, writes the report, and shows both. Returns the exit code. ``profiles``:
        those of the run, where they are loaded already.

        Without a specification nothing is judged: the code says whether everything was measured.
        """
        hosts, options = self.run.info.hosts, self.run.info.options
        profiles = profiles or Profiles(self.run.path)
        evidence = Evidence(self.run.records, hosts, options, profiles)
        findings = explain_evidence(evidence)
        for finding in findings:
            self.run.append(finding)
        verdicts = [v for spec in specifications for v in judge(spec, self.run.records, hosts)]
        if specifications:
            verdicts += integrity(self.run.records, verdicts)
        doubt(verdicts, self.run.records, self.run.info.busy)
        state_power(verdicts, evidence)
        for verdict in verdicts:
            self.run.append(verdict)
        self.ended_early = self.ended_early or self.failed
        outcome = self._outcome(verdicts, judged=bool(specifications))
        self.run.info.outcome, self.run.info.result = outcome, result(self.run.records)
        self.run.finish("partial" if self.ended_early else "complete", self.ended_early)
        report, unwritten = None, None
        try:
            report = build_report(self.run.path, profiles=profiles)
        except UserError as error:  # what was measured is shown all the same
            unwritten = error
        if self.as_json:
            self.print_json()
        elif not self.quiet:
            self._show(verdicts, profiles, report)
        if unwritten:
            raise unwritten
        if self.interrupted:
            return EXIT_INTERRUPTED
        return EXIT_OF[outcome] if outcome else EXIT_PASS

    def _show(self, verdicts: Sequence[schema.Verdict], profiles: Profiles, report: Path | None) -> None:
        outcome = self.run.info.outcome
        show_profiles(self.out, profiles, self.run.path)
        show_numa_profiles(self.out, profiles, self.run.path)
        show_source_notices(self.out, self.run.path)
        show_run(self.out, self.run.records)
        show_verdicts(self.out, verdicts)
        show_outcome(
            self.out, outcome, self._because(outcome, verdicts) if outcome else "", self.run.info.result
        )
        if self.run.info.busy:
            self.out.print(
                f"{self.run.info.busy}; fix: measure again when nothing else runs here", soft_wrap=True
            )
        if report:
            self.out.print(f"report: {report}", soft_wrap=True)

    def _outcome(self, verdicts: Sequence[schema.Verdict], judged: bool) -> Outcome | None:
        """A partial run can fail, but never pass."""
        outcome = overall(verdicts) if judged else None
        if self.ended_early and outcome != "FAIL":
            return "INCONCLUSIVE"
        return outcome

    def _because(self, outcome: Outcome, verdicts: Sequence[schema.Verdict]) -> str:
        """The criteria that failed; of a run that did not fail, why it did not pass."""
        partial = f"the run is partial: {self.ended_early}" if self.ended_early else ""
        return deciding_criteria(verdicts) if outcome == "FAIL" else partial or deciding_criteria(verdicts)

    def publish(self, state: str, reason: str) -> Path:
        """Saves a concluded run with new conclusions, and writes its report again. Its state stays as it was."""
        self.run.finish(state, reason)
        return build_report(self.run.path)

    def print_json(self) -> None:
        """Prints the run as one JSON object on standard output."""
        data = schema.ReportData(run=self.run.info, records=self.run.records)
        sys.stdout.buffer.write(json_line(data).encode() + b"\n")
