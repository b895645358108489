"""Storage: what was read and had never been written so, and ranks and nodes that hold all others up.

A benchmark of parallel I/O lasts as long as its slowest rank. One that is the slowest in every round, by more than
chance gives, is named; so is a node whose ranks take turns at being the slowest.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from assay.explain.evidence import Evidence
from assay.records.schema import Corruption, Finding, Measurement, Scalar, Subject

NAME = "storage.ior"
LEAST_RATIO = 1.5  # of the slowest rank's time over the others'; 2 ranks on 2 busy cores differ by a third
LEAST_ROUNDS = 3  # fewer cannot tell a rank that is slow from one that was
MOST_DETAILS = 8

FIX = (
    "look at that host's path to the storage (its adapter, client, memory) and at what else runs there; take it out "
    "and measure again"
)
FIX_ALONE = "look at what else runs on that rank's processors, and how ranks are bound; then measure again"


def wrong_data(evidence: Evidence) -> list[Finding]:
    """One finding a file: at which offsets, who wrote there, and how much of it there is."""
    by_file: dict[str, list[Corruption]] = defaultdict(list)
    for one in evidence.records:
        if isinstance(one, Corruption) and one.name.startswith("storage."):
            by_file[str(one.params.get("file", ""))].append(one)
    return [_wrong(file, records) for file, records in by_file.items()]


def _wrong(file: str, records: Sequence[Corruption]) -> Finding:
    first = min(records, key=lambda one: int(one.params["file_offset"]))
    io = ", ".join(sorted({str(one.params.get("io", "")) for one in records}))
    return Finding(
        rule="wrong_data",
        cause=f"{file}: wrong data from offset {first.params['file_offset']} on ({io} I/O)",
        subject=Subject(host=first.subject.host, peer=first.subject.peer),
        side="none",
        confidence=0.95,
        evidence=[one.id for one in records],
        details=[_located(one) for one in records[:MOST_DETAILS]]
        + ([f"and {len(records) - MOST_DETAILS} more"] if len(records) > MOST_DETAILS else []),
        fix="do not trust this file system with data: look at its logs and its servers' memory; if only one of "
        "stock and accelerated shows it, at that one",
    )


def _located(one: Corruption) -> str:
    writer, reader = one.params["writer"], one.params["reader"]
    who = f"written by rank {writer} ({one.subject.host}), read by rank {reader} ({one.subject.peer})"
    return f"offset {one.params['file_offset']}, {who}: expected {one.expected}, got {one.observed}"


def straggler(evidence: Evidence) -> list[Finding]:
    """The rank that is the slowest in every round of an operation; or the node, where its ranks take turns."""
    asked: dict[str, list[Measurement]] = defaultdict(list)
    for one in evidence.measurements(NAME, "straggler"):
        same = {key: value for key, value in one.params.items() if key not in ("round", "transfer", "block")}
        asked[repr(sorted(same.items(), key=str))].append(one)
    found: dict[tuple[str | None, int | None], Finding] = {}
    for records in asked.values():
        slow = [one for one in records if one.summary and one.summary.median >= LEAST_RATIO]
        # Of few rounds each counts; of many, four in five.
        if len(records) < LEAST_ROUNDS or len(slow) < 0.8 * len(records):
            continue
        finding = _same_rank(slow) or _same_host(slow)
        if finding is None:
            continue
        known = found.setdefault((finding.subject.host, finding.subject.rank), finding)
        if known is not finding:
            known.evidence += finding.evidence
            known.details += finding.details
            known.effect = min(known.effect or 0.0, finding.effect or 0.0)
    return list(found.values())


def _same_rank(slow: Sequence[Measurement]) -> Finding | None:
    (rank, host), times = Counter((one.subject.rank, one.subject.host) for one in slow).most_common(1)[0]
    if times < 0.8 * len(slow):
        return None
    return _finding(f"rank {rank} on {host}", Subject(host=host, rank=rank), slow, times / len(slow))


def _same_host(slow: Sequence[Measurement]) -> Finding | None:
    """Only where there is another node to be the slow one's better."""
    host, times = Counter(one.subject.host for one in slow).most_common(1)[0]
    if times < 0.8 * len(slow) or all(one.params.get("nodes") == 1 for one in slow):
        return None
    return _finding(f"node {host}", Subject(host=host), slow, times / len(slow))


def _finding(who: str, subject: Subject, slow: Sequence[Measurement], share: float) -> Finding:
    ratio = statistics.median(one.summary.median for one in slow if one.summary)
    params = slow[0].params
    return Finding(
        rule="straggler",
        cause=f"{who} holds the others up: its transfers take {ratio:.2g} times as long",
        subject=subject,
        side="node",
        severity="warning",
        effect=1 / ratio - 1,
        confidence=round(0.9 * share, 2),
        evidence=[one.id for one in slow],
        details=[
            f"{_operation(params)}: {ratio:.2g} times the median of the other ranks, in {len(slow)} measurements"
        ],
        fix=FIX_ALONE if params.get("nodes") == 1 else FIX,
    )


def _operation(params: dict[str, Scalar]) -> str:
    whose = f" of {params['data']} data" if "data" in params else ""
    return f"{params.get('io')} {params.get('op')}{whose}, {params.get('ranks')} ranks"
