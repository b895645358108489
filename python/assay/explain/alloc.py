"""Which allocator for what: one piece of advice a question, with the figures of every allocator, and only where the
difference is larger than what the figures themselves spread; and a warning of one that takes memory for ever."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from assay.explain.evidence import Evidence
from assay.profile.alloc import CYCLE, HANDOVER, MIXED, REPLAY, RETENTION, THREADS, AllocStudy
from assay.records.schema import Finding, Measurement, Scalar, Subject
from assay.records.units import format_quantity, format_share, format_size

SMALL = 1024  # bytes, at most
LARGE = 1 << 20  # bytes, at least
LEAST_LEAD = 0.05  # below, no program notices
SPREADS = 3.0  # median deviations of both together: within them nobody leads
GROWTH = 0.8  # of a batch, in each later cycle: memory that is never used again
LEAST_CYCLES = 4  # fewer cannot tell growing from filling


@dataclass(frozen=True)
class Score:
    """What an allocator reaches in a question; ``spread`` is relative."""

    allocator: str
    value: float
    spread: float
    evidence: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    words: str  # "for small blocks"
    what: str  # what the figures are
    unit: str
    scores: list[Score]
    higher: bool = False


def alloc(evidence: Evidence) -> list[Finding]:
    study = AllocStudy(evidence.records)
    if not study.measured:
        return []
    host = study.measured[0].subject.host
    started = dict(one.split(" ", 1) for one in _texts(evidence.options.get("started")) if " " in one)
    advice = [_advice(one, host, started) for one in _questions(study) if len(one.scores) > 1]
    return [*_growing(study, host), *advice]


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _questions(study: AllocStudy) -> list[Question]:
    threads = study.values(CYCLE, "threads")
    most = study.values(THREADS, "threads")
    found = []
    if threads:
        sizes = study.values(CYCLE, "size")
        small, large = [s for s in sizes if s <= SMALL], [s for s in sizes if s >= LARGE]
        for words, what, metrics, chosen in (
            ("for small blocks", "malloc and free", ("malloc", "free"), small),
            ("for large blocks again and again", "malloc, first touch and free",
             ("malloc", "first_touch", "free"), large),
        ):  # fmt: skip
            scores = _by_size(study, metrics, chosen, threads[0])
            found.append(Question(words, f"{what}, {_range(chosen)}", "s", scores))
    if most:
        words = f"with {most[-1]} threads" if most[-1] > 1 else "for blocks of mixed sizes"
        scores = _single(study, THREADS, "rate", threads=most[-1])
        found.append(Question(words, "blocks of 16 B to 1 KiB replaced", "1/s", scores, higher=True))
    found.append(
        Question("for blocks that another thread frees", "handed over", "1/s", _handover(study), higher=True)
    )
    found.append(
        Question(
            "for little memory", "most resident over most live", "1", _single(study, MIXED, "peak_over_live")
        )
    )
    traces = dict.fromkeys(str(r.params.get("trace", "")) for r in study.measured if r.name == REPLAY)
    for trace in traces:
        found.append(Question(f"for {trace}", "in its calls and first touches", "s", _replayed(study, trace)))
    return found


def _range(sizes: Sequence[int]) -> str:
    if not sizes:
        return ""
    return format_size(sizes[0]) + (f" to {format_size(sizes[-1])}" if len(sizes) > 1 else "")


def _score(allocator: str, records: Sequence[list[Measurement]]) -> Score | None:
    """The geometric mean of sums: over the records of each size, over the sizes."""
    if not records or any(not parts for parts in records):
        return None
    sums = [sum(_median(one) for one in parts) for parts in records]
    if min(sums) <= 0:
        return None
    spreads = [sum(_mad(one) for one in parts) / whole for parts, whole in zip(records, sums, strict=True)]
    mean = math.exp(sum(map(math.log, sums)) / len(sums))
    ids = tuple(one.id for parts in records for one in parts)
    return Score(allocator, mean, sum(spreads) / len(spreads), ids)


def _median(record: Measurement) -> float:
    return record.summary.median if record.summary else 0.0


def _mad(record: Measurement) -> float:
    return record.summary.mad if record.summary else 0.0


def _scores(
    study: AllocStudy, name: str, records: Callable[[str], list[list[Measurement]] | None]
) -> list[Score]:
    found = []
    for allocator in study.allocators(name):
        chosen = records(allocator)
        score = _score(allocator, chosen) if chosen else None
        if score:
            found.append(score)
    return found


def _by_size(study: AllocStudy, metrics: Sequence[str], sizes: Sequence[int], threads: int) -> list[Score]:
    """Over the sizes that every allocator has."""

    def phases(allocator: str, size: int) -> list[Measurement]:
        where: dict[str, Scalar] = {"size": size, "threads": threads, "state": "repeated"}
        found = [study.record(CYCLE, metric, allocator, **where) for metric in metrics]
        return [] if any(one is None for one in found) else [one for one in found if one is not None]

    common = [s for s in sizes if all(phases(a, s) for a in study.allocators(CYCLE))]
    return _scores(study, CYCLE, lambda allocator: [phases(allocator, size) for size in common])


def _single(study: AllocStudy, name: str, metric: str, **where: int) -> list[Score]:
    def one(allocator: str) -> list[list[Measurement]] | None:
        record = study.record(name, metric, allocator, **where)
        return [[record]] if record else None

    return _scores(study, name, one)


def _handover(study: AllocStudy) -> list[Score]:
    def rates(allocator: str) -> list[list[Measurement]]:
        found = [study.record(HANDOVER, "rate", allocator, size=s) for s in study.values(HANDOVER, "size")]
        return [[one] if one else [] for one in found]

    return _scores(study, HANDOVER, rates)


def _replayed(study: AllocStudy, trace: str) -> list[Score]:
    def spent(allocator: str) -> list[list[Measurement]]:
        found = study.record(REPLAY, "time", allocator, trace=trace)
        return [[found] if found else []]

    return _scores(study, REPLAY, spent)


def _advice(question: Question, host: str | None, started: dict[str, str]) -> Finding:
    ranked = sorted(question.scores, key=lambda one: -one.value if question.higher else one.value)
    best = ranked[0]
    equals = list(takewhile(lambda one: not _leads(best, one), ranked))
    if len(equals) > 1:
        names = ", ".join(one.allocator for one in equals)
        cause = f"{question.words}: no clear winner among {names}, whose figures differ less than they spread"
    else:
        cause = f"{question.words}: {best.allocator}"
    details = [f"{question.what}: " + ", ".join(_words(one, question.unit) for one in ranked)]
    base = next((one for one in ranked if one.allocator == "glibc"), None)
    if base and base is not best:
        details.append(f"{best.allocator} over glibc: {best.value / base.value:.3g}")
    how = started.get(best.allocator, "") if len(equals) == 1 else ""
    return Finding(
        rule="alloc",
        cause=cause,
        subject=Subject(host=host),
        side="node",
        severity="advice",
        evidence=sorted(number for one in ranked for number in one.evidence)[:40],
        details=details,
        fix=f"try it with your program: {how} ./program" if how else "",
    )


def _leads(best: Score, other: Score) -> bool:
    """Whether the difference is more than the spread of both, and more than anyone would notice."""
    if best is other:
        return False
    lead = abs(math.log(other.value / best.value))
    return lead > max(LEAST_LEAD, SPREADS * (best.spread + other.spread))


def _words(score: Score, unit: str) -> str:
    return f"{score.allocator} {format_quantity(score.value, unit)}" + (
        f" ± {format_share(score.spread)}" if score.spread >= 0.01 else ""
    )


def _growing(study: AllocStudy, host: str | None) -> list[Finding]:
    """Those that ask for new memory in each later cycle although all of the last one's has been freed."""
    cycles = study.values(RETENTION, "cycles")
    if len(cycles) < 2 or cycles[-1] < LEAST_CYCLES:
        return []
    found = []
    for allocator in study.allocators(RETENTION):
        for size in study.values(RETENTION, "size"):
            half, whole = (
                study.record(RETENTION, "retained", allocator, size=size, cycles=n) for n in cycles[-2:]
            )
            if half is None or whole is None:
                continue
            growth = (_median(whole) - _median(half)) / (cycles[-1] - cycles[-2])
            if growth > GROWTH * int(whole.params["total"]):
                found.append(_growth_finding(host, allocator, size, growth, [half.id, whole.id]))
                break
    return found


def _growth_finding(
    host: str | None, allocator: str, size: int, growth: float, evidence: list[int]
) -> Finding:
    return Finding(
        rule="alloc",
        cause=f"{allocator} never uses freed memory again: it grows by {format_quantity(growth, 'B')} a cycle",
        subject=Subject(host=host),
        side="node",
        severity="warning",
        evidence=evidence,
        details=[f"blocks of {format_size(size)}, all freed after each cycle"],
        fix="do not use it for a program that runs for long",
    )
