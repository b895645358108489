"""Stragglers and wrong data of storage benchmarks, planted in records: which rank, node or file is named."""

from __future__ import annotations

from collections.abc import Sequence

from assay.explain import explain
from assay.records.schema import AnyRecord, Corruption, Finding, Measurement, Subject, Summary


def slowest(rounds: Sequence[tuple[int, str, float]], nodes: int = 2) -> list[AnyRecord]:
    """The records of each round's slowest rank, from (rank, host, its time relative to the median rank)."""
    return [
        Measurement(
            name="storage.ior",
            metric="straggler",
            unit="1",
            subject=Subject(host=host, rank=rank),
            params={
                "op": "write",
                "io": "stock",
                "ranks": 8,
                "nodes": nodes,
                "round": number,
                "transfer": 32768,
            },
            summary=Summary(n=1, median=ratio),
            id=number,
        )
        for number, (rank, host, ratio) in enumerate(rounds, 1)
    ]


def straggler_findings(records: list[AnyRecord]) -> list[Finding]:
    return [finding for finding in explain(records) if finding.rule == "straggler"]


def test_a_rank_that_is_always_the_slowest_is_named() -> None:
    (finding,) = straggler_findings(slowest([(5, "n2", 2.0), (5, "n2", 2.2), (5, "n2", 2.1)]))
    assert finding.subject == Subject(host="n2", rank=5)
    assert finding.severity == "warning" and "2.1 times as long" in finding.cause
    assert finding.evidence == [1, 2, 3]


def test_a_node_whose_ranks_take_turns_is_named() -> None:
    (finding,) = straggler_findings(slowest([(4, "n2", 2.0), (5, "n2", 2.2), (6, "n2", 2.1)]))
    assert finding.subject == Subject(host="n2")
    assert finding.cause.startswith("node n2")


def test_a_changing_slowest_rank_is_no_finding() -> None:
    assert straggler_findings(slowest([(1, "n1", 2.0), (5, "n2", 2.2), (2, "n1", 2.1)])) == []


def test_a_changing_slowest_rank_on_one_node_is_no_finding() -> None:
    assert (
        straggler_findings(slowest([(1, "n1", 2.0), (0, "n1", 2.2), (1, "n1", 2.1), (0, "n1", 3.0)], nodes=1))
        == []
    )


def test_small_or_single_delays_are_no_finding() -> None:
    assert straggler_findings(slowest([(5, "n2", 1.2), (5, "n2", 1.3), (5, "n2", 1.2)])) == []
    assert straggler_findings(slowest([(5, "n2", 4.0)])) == []


def test_wrong_data_name_the_file_and_not_the_network() -> None:
    wrong: list[AnyRecord] = [
        Corruption(
            name="storage.ior",
            subject=Subject(host="n1", peer="n2"),
            params={
                "file": "/scratch/f",
                "file_offset": offset,
                "writer": 0,
                "reader": 4,
                "io": "accelerated",
            },
            message=number,
            expected="00",
            observed="10",
            id=number,
        )
        for number, offset in ((1, 8192), (2, 4096))
    ]
    (finding,) = explain(wrong)
    assert finding.rule == "wrong_data" and finding.severity == "fault"
    assert finding.cause == "/scratch/f: wrong data from offset 4096 on (accelerated I/O)"
    assert len(finding.details) == 2 and "written by rank 0 (n1), read by rank 4 (n2)" in finding.details[0]
