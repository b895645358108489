"""Reads the logs of the ranks of a chaos run, as tests/engines/chaos_io/record_log.hpp writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """The result of an operation on a rank. ``error``: MPI's error class, 0: success, None: it has not returned."""

    started_ns: int
    ended_ns: int = 0
    error: int | None = None
    bytes: int = 0


@dataclass
class RankLog:
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by operation
    skipped: set[int] = field(default_factory=set)
    notes: dict[str, int] = field(default_factory=dict)  # the time of each, in ns
    reads: bytes = b""


def read_log(folder: Path, rank: int) -> RankLog:
    log = RankLog()
    path = folder / f"log.{rank}"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []  # a last line may be incomplete
    for line in lines:
        kind, number, *rest = line.split()
        if kind == "note":
            log.notes[number] = int(rest[0])
        elif kind == "skip":
            log.skipped.add(int(number))
        elif kind == "start":
            log.outcomes[int(number)] = Outcome(int(rest[0]))
        else:
            ended, error, moved = (int(value) for value in rest)
            log.outcomes[int(number)] = Outcome(log.outcomes[int(number)].started_ns, ended, error, moved)
    reads = folder / f"read.{rank}"
    log.reads = reads.read_bytes() if reads.exists() else b""
    return log
