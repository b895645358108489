"""A busy machine fails no rate and no time; what no load changes still fails. A planted machine decides nothing."""

from __future__ import annotations

import pytest

from assay.judge import deciding_criteria, doubt
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Subject, Summary, Verdict

BUSY = "this machine was busy: other programs took 1.4 of 2 processors"


def measured(name: str, metric: str, unit: str, **changes: object) -> Measurement:
    return Measurement(id=1, name=name, metric=metric, unit=unit, summary=Summary(n=3, median=0.9), **changes)  # type: ignore[arg-type]


def judged(*records: AnyRecord, busy: str = BUSY, outcome: str = "FAIL") -> Verdict:
    verdict = Verdict(criterion="c", outcome=outcome, evidence=[r.id for r in records], reason="why")  # type: ignore[arg-type]
    doubt([verdict], records, busy)
    return verdict


@pytest.mark.parametrize(
    "record",
    [
        measured("node.memory", "bandwidth", "B/s"),
        measured("network.all_to_all", "latency", "s"),
        measured("node.noise", "lost", "1"),
        measured("node.memory_paced", "achieved", "1"),
        Finding(id=1, rule="slow_node", cause="h3 is slow"),
    ],
)
def test_a_figure_that_load_explains_decides_nothing(record: AnyRecord) -> None:
    verdict = judged(record)
    assert verdict.outcome == "INCONCLUSIVE" and verdict.reason == f"{BUSY}; why"
    assert "nothing else runs" in verdict.fix
    assert judged(record, busy="").outcome == "FAIL"


@pytest.mark.parametrize(
    "record",
    [
        measured("network.all_to_all", "corrupted", "1"),
        measured("node.rdma", "bandwidth", "B/s", status="unfit"),
        Finding(id=1, rule="corruption", cause="payloads are corrupted"),
        Finding(id=1, rule="slow_host", cause="h3 is slow, and its retest confirms it"),
    ],
)
def test_what_no_load_changes_still_fails(record: AnyRecord) -> None:
    assert judged(record).outcome == "FAIL"


def test_one_certain_cause_among_the_evidence_is_enough_to_fail() -> None:
    certain = Finding(id=2, rule="corruption", cause="payloads are corrupted")
    assert judged(measured("node.memory", "bandwidth", "B/s"), certain).outcome == "FAIL"


def test_a_failure_without_evidence_and_a_pass_stay() -> None:
    assert judged().outcome == "FAIL"
    assert judged(measured("node.memory", "bandwidth", "B/s"), outcome="PASS").outcome == "PASS"


@pytest.mark.parametrize("outcome", ["PASS", "FAIL"])
def test_a_planted_machine_neither_passes_nor_fails(outcome: str) -> None:
    corrupted = measured("network.all_to_all", "corrupted", "1")
    facts = {"topology.planted": "numa:4 core:8 pu:2"}
    verdict = judged(corrupted, Context(subject=Subject(host="n1"), facts=facts), busy="", outcome=outcome)
    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.reason == "n1 was measured as the planted machine 'numa:4 core:8 pu:2'"
    assert verdict.fix.startswith("unset ASSAY_TOPOLOGY")


def test_the_reason_that_leaves_all_criteria_undecided_is_said_once() -> None:
    planted = Context(subject=Subject(host="n1"), facts={"topology.planted": "numa:4 core:8 pu:2"})
    verdicts = [Verdict(criterion=name, outcome="PASS") for name in ("a", "b")]
    doubt(verdicts, [planted], busy="")
    assert deciding_criteria(verdicts) == (
        "n1 was measured as the planted machine 'numa:4 core:8 pu:2'; fix: unset ASSAY_TOPOLOGY, and measure again"
    )
