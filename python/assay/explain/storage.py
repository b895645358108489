"""Rules on storage: wrong data, and slow ranks and nodes.

A benchmark of parallel I/O lasts as long as its slowest rank. A rank that is the slowest in nearly every round, by
more than noise, is named; so is a node if the slowest rank varies but is always one of its ranks.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from assay.explain.evidence import Evidence
from assay.records.schema import Corruption, Finding, Measurement, Scalar, Subject

NAMES = ("storage.ior", "storage.metadata")  # whose records name the slowest rank
MIN_RATIO = 1.5  # of the slowest rank's time over the others'; 2 ranks on 2 busy cores differ by a third
MIN_ROUNDS = 3  # fewer cannot tell a slow rank from a single slow round
MAX_DETAILS = 8

FIX = (
    "check that host's path to the storage (adapter, client, memory) and what else runs there; then measure again "
    "without it"
)
FIX_ONE_NODE = "check what else runs on that rank's processors, and how ranks are bound; then measure again"


def wrong_data(evidence: Evidence) -> list[Finding]:
    """A finding per file: the offsets, writers and number of wrong transfers."""
    by_file: dict[str, list[Corruption]] = defaultdict(list)
    for record in evidence.records:
        if isinstance(record, Corruption) and record.name.startswith("storage."):
            by_file[str(record.params.get("file", ""))].append(record)
    return [_corruption_finding(file, records) for file, records in by_file.items()]


def _corruption_finding(file: str, records: Sequence[Corruption]) -> Finding:
    first = min(records, key=lambda record: int(record.params["file_offset"]))
    io = ", ".join(sorted({str(record.params.get("io", "")) for record in records}))
    return Finding(
        rule="wrong_data",
        cause=f"{file}: wrong data from offset {first.params['file_offset']} on ({io} I/O)",
        subject=Subject(host=first.subject.host, peer=first.subject.peer),
        side="none",
        confidence=0.95,
        evidence=[record.id for record in records],
        details=[_detail(record) for record in records[:MAX_DETAILS]]
        + ([f"and {len(records) - MAX_DETAILS} more"] if len(records) > MAX_DETAILS else []),
        fix="do not trust this file system with data: look at its logs and its servers' memory; if only one of "
        "stock and accelerated shows it, at that one",
    )


def _detail(record: Corruption) -> str:
    writer, reader = record.params["writer"], record.params["reader"]
    ranks = f"written by rank {writer} ({record.subject.host}), read by rank {reader} ({record.subject.peer})"
    return (
        f"offset {record.params['file_offset']}, {ranks}: expected {record.expected}, got {record.observed}"
    )


def straggler(evidence: Evidence) -> list[Finding]:
    """The rank that is the slowest in every round of an operation; or the node, if its ranks alternate."""
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for name in NAMES:
        for record in evidence.measurements(name, "straggler"):
            key = {
                key: value
                for key, value in record.params.items()
                if key not in ("round", "transfer", "block")
            }
            groups[name + repr(sorted(key.items(), key=str))].append(record)
    findings: dict[tuple[str | None, int | None], Finding] = {}
    for records in groups.values():
        slow = [record for record in records if record.summary and record.summary.median >= MIN_RATIO]
        # At least four in five rounds.
        if len(records) < MIN_ROUNDS or len(slow) < 0.8 * len(records):
            continue
        finding = _same_rank(slow) or _same_host(slow)
        if finding is None:
            continue
        finding_so_far = findings.setdefault((finding.subject.host, finding.subject.rank), finding)
        if finding_so_far is not finding:
            finding_so_far.evidence += finding.evidence
            finding_so_far.details += finding.details
            finding_so_far.effect = min(finding_so_far.effect or 0.0, finding.effect or 0.0)
    return list(findings.values())


def _same_rank(slow: Sequence[Measurement]) -> Finding | None:
    (rank, host), times = Counter((record.subject.rank, record.subject.host) for record in slow).most_common(
        1
    )[0]
    if times < 0.8 * len(slow):
        return None
    return _straggler_finding(
        f"rank {rank} on {host}", Subject(host=host, rank=rank), slow, times / len(slow)
    )


def _same_host(slow: Sequence[Measurement]) -> Finding | None:
    """The node of most of the slowest ranks, if there are other nodes to compare with."""
    host, times = Counter(record.subject.host for record in slow).most_common(1)[0]
    if times < 0.8 * len(slow) or all(record.params.get("nodes") == 1 for record in slow):
        return None
    return _straggler_finding(f"node {host}", Subject(host=host), slow, times / len(slow))


def _straggler_finding(name: str, subject: Subject, slow: Sequence[Measurement], share: float) -> Finding:
    ratio = statistics.median(record.summary.median for record in slow if record.summary)
    params = slow[0].params
    return Finding(
        rule="straggler",
        cause=f"{name} slows down the others: its operations take {ratio:.2g} times as long",
        subject=subject,
        side="node",
        severity="warning",
        effect=1 / ratio - 1,
        confidence=round(0.9 * share, 2),
        evidence=[record.id for record in slow],
        details=[
            f"{_describe_operation(params)}: {ratio:.2g} times the other ranks' median, in {len(slow)} measurements"
        ],
        fix=FIX_ONE_NODE if params.get("nodes") == 1 else FIX,
    )


def _describe_operation(params: dict[str, Scalar]) -> str:
    data = f" of {params['data']} data" if "data" in params else ""
    return f"{params.get('io')} {params.get('op')}{data}, {params.get('ranks')} ranks"
