"""Advice on allocators: the fastest is named if it leads by more than the spread, and growing memory is a warning."""

from __future__ import annotations

import pytest

from assay.explain import explain
from assay.records.schema import AnyRecord, Finding, Measurement, Scalar, Subject, Summary


def measured(
    name: str, metric: str, value: float, params: dict[str, Scalar], spread: float = 0.01, identity: int = 0
) -> Measurement:
    return Measurement(
        id=identity, name=f"profile.alloc.{name}", metric=metric, unit="s", subject=Subject(host="n1"), params=params,
        summary=Summary(n=9, median=value, mad=spread * value),
    )  # fmt: skip


def cycle_records(
    allocator: str, size: int, malloc: float, touch: float = 1e-9, spread: float = 0.01
) -> list[AnyRecord]:
    params: dict[str, Scalar] = {"allocator": allocator, "size": size, "threads": 1, "state": "repeated"}
    phases = {"malloc": malloc, "first_touch": touch, "free": malloc}
    return [measured("cycle", metric, value, params, spread) for metric, value in phases.items()]


def causes(records: list[AnyRecord], severity: str = "advice") -> list[str]:
    return [f.cause for f in explain(records) if f.severity == severity]


def only_finding(records: list[AnyRecord], **options: list[str]) -> Finding:
    (finding,) = explain(records, options=options)
    return finding


def test_a_single_allocator_gives_no_advice() -> None:
    assert explain(cycle_records("glibc", 16, 1e-8)) == []


def test_the_leader_is_named_with_its_figures_and_how_to_start_it() -> None:
    records = cycle_records("glibc", 16, 10e-9) + cycle_records("fast", 16, 5e-9)
    start_prefixes = [
        "fast LD_PRELOAD=/lib/fast.so"
    ]  # "ALLOCATOR PREFIX": PREFIX ./program uses the allocator
    finding = only_finding(records, started=start_prefixes)
    assert (finding.rule, finding.cause, finding.severity) == ("alloc", "for small blocks: fast", "advice")
    assert finding.details[1] == "fast relative to glibc: 0.5"
    assert "fast 10 ns" in finding.details[0] and "glibc 20 ns" in finding.details[0]
    assert "LD_PRELOAD=/lib/fast.so ./program" in finding.fix


@pytest.mark.parametrize(("lead", "spread"), [(1.03, 0.0), (1.5, 0.1)])
def test_no_allocator_leads_within_the_spread(lead: float, spread: float) -> None:
    records = cycle_records("a", 16, 1e-8, spread=spread) + cycle_records("b", 16, lead * 1e-8, spread=spread)
    finding = only_finding(records)
    assert finding.cause.startswith("for small blocks: no clear winner among a, b")
    assert finding.fix == ""


def test_large_blocks_are_judged_including_their_first_touch() -> None:
    records = cycle_records("maps", 1 << 24, 1e-9, touch=8e-3) + cycle_records(
        "keeps", 1 << 24, 1e-7, touch=3e-5
    )
    assert causes(records) == ["for large blocks that are allocated repeatedly: keeps"]


def test_only_sizes_that_all_allocators_have_are_compared() -> None:
    records = cycle_records("a", 16, 2e-8) + cycle_records("b", 16, 1e-8) + cycle_records("b", 64, 1.0)
    assert causes(records) == ["for small blocks: b"]


def test_the_highest_rate_of_threads_wins() -> None:
    records: list[AnyRecord] = [
        measured("threads", "rate", rate, {"allocator": name, "threads": 8})
        for name, rate in (("a", 1e8), ("b", 3e8))
    ]
    assert causes(records) == ["with 8 threads: b"]


def test_a_replay_is_judged_by_the_time_that_it_took() -> None:
    records: list[AnyRecord] = [
        measured("replay", "time", value, {"allocator": name, "trace": "before"})
        for name, value in (("a", 2.0), ("b", 1.0))
    ]
    assert causes(records) == ["for before: b"]


@pytest.mark.parametrize(
    ("retained_batches", "grows"),
    [([1, 5, 10], True), ([1, 2, 2], False), ([5, 10, 10], False), ([0, 0, 0], False)],
)
def test_memory_that_grows_with_every_cycle_is_a_warning(retained_batches: list[int], grows: bool) -> None:
    """Batches that are retained after 1, 5 and 10 cycles. A constant amount does not count as growth."""
    batch = 1 << 24
    records: list[AnyRecord] = [
        measured(
            "retention",
            "retained",
            n * batch,
            {"allocator": "x", "size": 64, "total": batch, "cycles": cycles},
        )
        for n, cycles in zip(retained_batches, (1, 5, 10), strict=True)
    ]
    warnings = causes(records, "warning")
    assert bool(warnings) == grows
    assert not grows or warnings[0].startswith("x never reuses freed memory")
