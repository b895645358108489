"""The allocator study (``assay alloc``): its steps, their order and their expected duration.

A question is one of the study's measurements, such as "threads". For each question all allocators are measured one
after the other, so that compared figures are close in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.launch.engines import describe
from assay.measure.allocators import Allocator, engine, start_command
from assay.measure.progress import ProgressTracker
from assay.measure.session import Session
from assay.profile.alloc import CYCLE, HANDOVER, MIXED, RETENTION, THREADS
from assay.records.schema import Measurement, Scalar, Subject

# Longest time without a line from the engine. It runs up to four processes of at most 300 s each between two lines.
SILENCE_S = 1800.0
# Rough terms of the expected duration.
PROCESS_START_S = 0.1
CYCLE_TOUCHES = 8  # times that a block of the "sizes" question is touched for the first time
MIN_RETENTION_BYTES = 3 * (16 << 20)  # touched in a cycle of the "retention" question, at least
FIRST_TOUCH_RATE = 2e9  # B/s, roughly; corrected by the measured durations
QUESTIONS = {
    "sizes": CYCLE,  # the time of malloc, first touch and free, by size
    "retention": RETENTION,  # the memory that is kept after cycles of allocating and freeing
    "threads": THREADS,  # the rate of allocations of several threads
    "handover": HANDOVER,  # blocks that one thread allocates and another frees
    "mixed": MIXED,  # blocks of mixed sizes and lifetimes
}


@dataclass(frozen=True)
class Plan:
    """The measurements of a study."""

    allocators: Sequence[Allocator]
    sizes: Sequence[int]
    threads: Sequence[int]
    cycles: int = 10
    seconds: float = 0.5
    total: int = 64 << 20  # live bytes of the mixed measurement
    questions: Sequence[str] = tuple(QUESTIONS)

    def params(self, question: str) -> dict[str, Scalar]:
        sizes, threads = ",".join(map(str, self.sizes)), ",".join(map(str, self.threads))
        fewest_and_most = ",".join(map(str, dict.fromkeys([self.threads[0], self.threads[-1]])))
        by_question: dict[str, dict[str, Scalar]] = {
            "sizes": {"sizes": sizes, "threads": fewest_and_most, "seconds": self.seconds},
            "retention": {"sizes": sizes, "cycles": self.cycles},
            "threads": {"threads": threads, "seconds": 2 * self.seconds},
            "handover": {"threads": max(2, self.threads[-1]), "seconds": 2 * self.seconds},
            "mixed": {"total": self.total},
        }
        return by_question[question]

    def expected_s(self, question: str) -> float:
        if question == "sizes":
            counts = dict.fromkeys([self.threads[0], self.threads[-1]])
            return sum(
                self.seconds + PROCESS_START_S + CYCLE_TOUCHES * size * count / FIRST_TOUCH_RATE
                for size in self.sizes
                for count in counts
            )
        if question == "retention":
            return sum(max(MIN_RETENTION_BYTES, size) * self.cycles / FIRST_TOUCH_RATE for size in self.sizes)
        return 2 * self.seconds * (len(self.threads) if question == "threads" else 2)


@dataclass(frozen=True)
class Step:
    measurement: str
    allocator: Allocator
    params: dict[str, Scalar]
    expected_s: float

    @property
    def key(self) -> str:
        return f"{self.measurement} {self.allocator.name}"


def steps_of(plan: Plan) -> list[Step]:
    return [
        Step(QUESTIONS[question], allocator, plan.params(question), plan.expected_s(question))
        for question in plan.questions
        for allocator in plan.allocators
    ]


def run_steps(session: Session, steps: Sequence[Step]) -> None:
    """Runs the steps that the run lacks. A step that fails does not end the others."""
    open_steps = [step for step in steps if step.key not in session.run.info.completed]
    tracker = ProgressTracker([step.expected_s for step in open_steps if not step.allocator.missing_reason])
    for step in open_steps:
        if session.interrupted:
            return
        if step.allocator.missing_reason:
            _waive(session, step)
            continue
        expected = tracker.step(step.allocator.name, step.expected_s)
        session.run_step(
            step.key,
            start_command(step.measurement, step.allocator, step.params),
            expected,
            silence_s=SILENCE_S,
        )
        tracker.completed(step.expected_s)
        session.continue_after_failure()


def _waive(session: Session, step: Step) -> None:
    metric = describe(engine()).find(step.measurement).metrics[0]
    session.run.append(
        Measurement(
            name=step.measurement,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            subject=Subject(host=session.run.info.hosts[0]),
            params={"allocator": step.allocator.name},
            status="waived",
            reason=step.allocator.missing_reason,
        )
    )


def thread_counts(cores: int) -> list[int]:
    """The powers of two below ``cores``, and ``cores``."""
    counts = [1]
    while counts[-1] * 2 < cores:
        counts.append(counts[-1] * 2)
    return [*counts, cores] if cores > 1 else counts
