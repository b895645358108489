"""Advises which allocator to use: names the best one for each use, with the figures of all.

An allocator is named best only if its lead exceeds the spread of the figures. A warning names each allocator that
never reuses freed memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from assay.explain.evidence import Evidence
from assay.profile.alloc import CYCLE, HANDOVER, MIXED, REPLAY, RETENTION, THREADS, AllocStudy
from assay.records.schema import Finding, Measurement, Scalar, Subject
from assay.records.units import format_quantity, format_share, format_size

MAX_SMALL = 1024  # bytes: the largest small block
MIN_LARGE = 1 << 20  # bytes: the smallest large block
MIN_LEAD = 0.05  # the least lead, as natural logarithm of the ratio of two figures; about 5 %
MIN_LEAD_IN_SPREADS = 3.0  # the least lead in multiples of the sum of both relative spreads
# An allocator does not reuse memory if each cycle adds more than this share of the cycle's bytes to its memory.
MIN_GROWTH = 0.8
MIN_CYCLES = 4  # the first cycles may fill the allocator's caches


@dataclass(frozen=True)
class Score:
    """An allocator's figure for a question.

    ``value``: in the question's unit. ``spread``: its relative median absolute deviation (MAD). ``evidence``: ids of
    the records.
    """

    allocator: str
    value: float
    spread: float
    evidence: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """A use of an allocator, with the score of each allocator."""

    title: str  # "for small blocks"
    quantity: str  # what the figures measure, e.g. "malloc and free, 16 B to 1 KiB"
    unit: str
    scores: list[Score]
    higher: bool = False  # whether higher figures are better


def alloc(evidence: Evidence) -> list[Finding]:
    study = AllocStudy(evidence.records)
    if not study.measured:
        return []
    host = study.measured[0].subject.host
    # The option "started" holds "ALLOCATOR PREFIX" for each allocator: PREFIX ./program starts a program with it.
    prefixes = dict(
        entry.split(" ", 1) for entry in _strings(evidence.options.get("started")) if " " in entry
    )
    advice = [_advice(question, host, prefixes) for question in _questions(study) if len(question.scores) > 1]
    return [*_growth_findings(study, host), *advice]


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _questions(study: AllocStudy) -> list[Question]:
    threads = study.values(CYCLE, "threads")
    thread_counts = study.values(THREADS, "threads")
    questions = []
    if threads:
        sizes = study.values(CYCLE, "size")
        small, large = (
            [size for size in sizes if size <= MAX_SMALL],
            [size for size in sizes if size >= MIN_LARGE],
        )
        for title, quantity, metrics, chosen_sizes in (
            ("for small blocks", "malloc and free", ("malloc", "free"), small),
            ("for large blocks that are allocated repeatedly", "malloc, first touch and free",
             ("malloc", "first_touch", "free"), large),
        ):  # fmt: skip
            scores = _by_size(study, metrics, chosen_sizes, threads[0])
            questions.append(Question(title, f"{quantity}, {_range(chosen_sizes)}", "s", scores))
    if thread_counts:
        title = f"with {thread_counts[-1]} threads" if thread_counts[-1] > 1 else "for blocks of mixed sizes"
        scores = _single(study, THREADS, "rate", threads=thread_counts[-1])
        questions.append(Question(title, "blocks of 16 B to 1 KiB replaced", "1/s", scores, higher=True))
    questions.append(
        Question(
            "for blocks that another thread frees",
            "blocks passed to another thread",
            "1/s",
            _handover(study),
            higher=True,
        )
    )
    questions.append(
        Question(
            "for a small memory footprint",
            "peak resident over peak live bytes",
            "1",
            _single(study, MIXED, "peak_over_live"),
        )
    )
    traces = dict.fromkeys(
        str(record.params.get("trace", "")) for record in study.measured if record.name == REPLAY
    )
    for trace in traces:
        questions.append(
            Question(f"for {trace}", "time in its calls and first touches", "s", _replayed(study, trace))
        )
    return questions


def _range(sizes: Sequence[int]) -> str:
    if not sizes:
        return ""
    return format_size(sizes[0]) + (f" to {format_size(sizes[-1])}" if len(sizes) > 1 else "")


def _score(allocator: str, records: Sequence[list[Measurement]]) -> Score | None:
    """The geometric mean over sizes of the sum of each size's records. ``records``: one list per size. None without
    records or without positive sums."""
    if not records or any(not size_records for size_records in records):
        return None
    sums = [sum(record.median for record in size_records) for size_records in records]
    if min(sums) <= 0:
        return None
    spreads = [
        sum(record.mad for record in size_records) / total
        for size_records, total in zip(records, sums, strict=True)
    ]
    mean = math.exp(sum(map(math.log, sums)) / len(sums))
    ids = tuple(record.id for size_records in records for record in size_records)
    return Score(allocator, mean, sum(spreads) / len(spreads), ids)


def _scores(
    study: AllocStudy, name: str, records: Callable[[str], list[list[Measurement]] | None]
) -> list[Score]:
    scores = []
    for allocator in study.allocators(name):
        by_size = records(allocator)
        score = _score(allocator, by_size) if by_size else None
        if score:
            scores.append(score)
    return scores


def _by_size(study: AllocStudy, metrics: Sequence[str], sizes: Sequence[int], threads: int) -> list[Score]:
    """Scores over the sizes that were measured for every allocator."""

    def phases(allocator: str, size: int) -> list[Measurement]:
        params: dict[str, Scalar] = {"size": size, "threads": threads, "state": "repeated"}
        records = [study.record(CYCLE, metric, allocator, **params) for metric in metrics]
        return (
            []
            if any(record is None for record in records)
            else [record for record in records if record is not None]
        )

    common = [size for size in sizes if all(phases(allocator, size) for allocator in study.allocators(CYCLE))]
    return _scores(study, CYCLE, lambda allocator: [phases(allocator, size) for size in common])


def _single(study: AllocStudy, name: str, metric: str, **params: int) -> list[Score]:
    def records(allocator: str) -> list[list[Measurement]] | None:
        record = study.record(name, metric, allocator, **params)
        return [[record]] if record else None

    return _scores(study, name, records)


def _handover(study: AllocStudy) -> list[Score]:
    def rates(allocator: str) -> list[list[Measurement]]:
        records = [
            study.record(HANDOVER, "rate", allocator, size=size) for size in study.values(HANDOVER, "size")
        ]
        return [[record] if record else [] for record in records]

    return _scores(study, HANDOVER, rates)


def _replayed(study: AllocStudy, trace: str) -> list[Score]:
    def times(allocator: str) -> list[list[Measurement]]:
        record = study.record(REPLAY, "time", allocator, trace=trace)
        return [[record] if record else []]

    return _scores(study, REPLAY, times)


def _advice(question: Question, host: str | None, prefixes: dict[str, str]) -> Finding:
    ranked = sorted(question.scores, key=lambda score: -score.value if question.higher else score.value)
    best = ranked[0]
    tied = list(takewhile(lambda score: not _leads(best, score), ranked))
    if len(tied) > 1:
        names = ", ".join(score.allocator for score in tied)
        cause = f"{question.title}: no clear winner among {names}: their difference is within the spread"
    else:
        cause = f"{question.title}: {best.allocator}"
    details = [f"{question.quantity}: " + ", ".join(_format_score(score, question.unit) for score in ranked)]
    glibc = next((score for score in ranked if score.allocator == "glibc"), None)
    if glibc and glibc is not best:
        details.append(f"{best.allocator} relative to glibc: {best.value / glibc.value:.3g}")
    prefix = prefixes.get(best.allocator, "") if len(tied) == 1 else ""
    return Finding(
        rule="alloc",
        cause=cause,
        subject=Subject(host=host),
        side="node",
        severity="advice",
        evidence=sorted(record_id for score in ranked for record_id in score.evidence)[:40],
        details=details,
        fix=f"try it with your program: {prefix} ./program" if prefix else "",
    )


def _leads(best: Score, other: Score) -> bool:
    """Whether the difference exceeds the spread of both figures and MIN_LEAD."""
    if best is other:
        return False
    lead = abs(math.log(other.value / best.value))
    return lead > max(MIN_LEAD, MIN_LEAD_IN_SPREADS * (best.spread + other.spread))


def _format_score(score: Score, unit: str) -> str:
    return f"{score.allocator} {format_quantity(score.value, unit)}" + (
        f" ± {format_share(score.spread)}" if score.spread >= 0.01 else ""
    )


def _growth_findings(study: AllocStudy, host: str | None) -> list[Finding]:
    """Warnings about allocators whose retained memory grows in each cycle, although each cycle frees all its blocks."""
    cycles = study.values(RETENTION, "cycles")
    if len(cycles) < 2 or cycles[-1] < MIN_CYCLES:
        return []
    findings = []
    for allocator in study.allocators(RETENTION):
        for size in study.values(RETENTION, "size"):
            earlier, later = (
                study.record(RETENTION, "retained", allocator, size=size, cycles=n) for n in cycles[-2:]
            )
            if earlier is None or later is None:
                continue
            growth = (later.median - earlier.median) / (cycles[-1] - cycles[-2])
            if growth > MIN_GROWTH * int(later.params["total"]):
                findings.append(_growth_finding(host, allocator, size, growth, [earlier.id, later.id]))
                break
    return findings


def _growth_finding(
    host: str | None, allocator: str, size: int, growth: float, evidence: list[int]
) -> Finding:
    return Finding(
        rule="alloc",
        cause=f"{allocator} never reuses freed memory: it grows by {format_quantity(growth, 'B')} a cycle",
        subject=Subject(host=host),
        side="node",
        severity="warning",
        evidence=evidence,
        details=[f"blocks of {format_size(size)}, all freed after each cycle"],
        fix="do not use it for long-running programs",
    )
