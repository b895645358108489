"""Checks a chaos run: its files and reads against the model, and the returned errors against the planted fault."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from chaos_medium import UnsafeBytes
from chaos_model import Check, History, Write
from chaos_plan import KILLS, SLOW, Plan
from chaos_replay import File, Read, Replay


@dataclass(frozen=True)
class Violation:
    """``kind``: the name under which violations are counted."""

    kind: str
    text: str


def check_errors(plan: Plan, replay: Replay, after: dict[int, UnsafeBytes]) -> list[Violation]:
    """Operations may fail only during the fault, or if the program must take bytes for lost after a failed fsync.

    ``after``: by sync or close, the bytes that were not safe when it returned.
    """
    notes = replay.logs[0].notes
    begins, ends = notes.get("fault-begins"), notes.get("fault-ended")
    violations = [Violation("wrong count", flaw) for flaw in replay.flaws]
    for operation, rank, outcome in replay.errors():
        if plan.fault in KILLS or operation.number in replay.expected_failures:
            continue
        description = f"{operation.line()}: error class {outcome.error} on rank {rank}"
        if begins is None or outcome.ended_ns < begins or plan.fault in SLOW:
            violations.append(Violation("error without a fault", description))
        elif operation.number in after and after[operation.number].doubtful:
            continue
        elif ends and outcome.started_ns > ends:
            violations.append(
                Violation("error after the fault", f"{description}, after the file system was well again")
            )
    for rank, log in enumerate(replay.logs):
        for note in ("opened-on-some-ranks", "view-not-reset"):
            if note in log.notes:
                violations.append(Violation(note, f"rank {rank} says {note}"))
    return violations


def check_reads(replay: Replay) -> list[Violation]:
    """A read must return the bytes that were written before it."""
    return [Violation("wrong read", line) for read in replay.reads for line in _check_read(read)]


def _check_read(read: Read) -> list[str]:
    history = read.file.history
    past = History(
        history.name,
        history.slot,
        [write for write in history.writes if write.epoch <= read.epoch],
        [resize for resize in history.resizes if resize.operation < read.operation],
    )

    def is_visible(write: Write) -> bool:
        is_own = write.rank == read.rank and write.operation < read.operation
        return write.acknowledged and (is_own or write.epoch < read.epoch)

    reader = f"operation {read.operation} of rank {read.rank} read"
    low, high = past.sizes(is_visible)
    least = min(read.wanted, max(0, low - read.offset))
    most = min(read.wanted, max(0, high - read.offset))
    if not least <= len(read.data) <= most:
        return [f"{reader} {len(read.data)} bytes at {read.offset}, expected {least} to {most}"]
    return [f"{reader} {line}" for line in Check(past, is_visible).violations(read.data, read.offset)]


def check_files(plan: Plan, replay: Replay, folder: Path, recovered: bool) -> list[Violation]:
    """The files must hold the promised writes: after recovery (``recovered``) all that were acknowledged, before it
    those that were followed by a successful sync or close."""
    present = {path.name for path in folder.iterdir()}
    replay.settle_names(present)
    violations = []
    for file in replay.files:
        if file.name is None:
            continue
        if file.name not in present:
            if file.exists:
                violations.append(Violation("missing file", f"{file.name} is not there"))
            continue
        violations += _check_file(plan, file, folder / file.name, recovered)
    unknown = present - {file.name for file in replay.files}
    if plan.mpi == "openmpi" and plan.fault in KILLS:
        shared_pointer = re.compile(rf"{plan.name_prefix}\d+\W")  # its files beside those that have one
        unknown = {name for name in unknown if not shared_pointer.match(name)}
    violations += [Violation("unknown file", f"{name} is there") for name in sorted(unknown)]
    return violations


def _check_file(plan: Plan, file: File, path: Path, recovered: bool) -> list[Violation]:
    content = path.read_bytes()
    when = "after recovery" if recovered else "before recovery"

    def promised(write: Write) -> bool:
        return write.acknowledged and (recovered or is_saved(file, write))

    # The documented limit: nodes whose ranks were killed are recovered one by one, in any order.
    unordered = recovered and plan.node(plan.ranks - 1) > 0 and plan.fault in KILLS
    lines = Check(file.history, promised, plan.node if unordered else None).violations(content)
    violations = [Violation(f"lost data {when}", f"{when}: {line}") for line in lines]
    low, high = file.history.sizes(promised)
    if not low <= len(content) <= high:
        expected = f"{low} bytes" if low == high else f"{low} to {high} bytes"
        violations.append(
            Violation(
                f"wrong size {when}", f"{when}: {file.name} has {len(content)} bytes, expected {expected}"
            )
        )
    return violations


def is_saved(file: File, write: Write) -> bool:
    """Whether a later sync or close of the write's rank has succeeded."""
    return any(write.operation < number and write.rank in ranks for number, ranks in file.saved.items())


def check_medium(replay: Replay, at_end: dict[str, UnsafeBytes]) -> list[Violation]:
    """When the job has ended and no store is left, everything is on the medium. ``at_end``: by name of the file."""
    return [
        Violation("not on the medium", f"no store is left, but {file.name} has bytes that are {state}")
        for file in replay.files
        if file.name in at_end
        for state in ("unsynced", "lost")
        if getattr(at_end[file.name], state)
    ]


def check_synchronised(replay: Replay, after: dict[int, UnsafeBytes]) -> list[Violation]:
    """After a sync or close that succeeded on all ranks, a power failure must lose nothing.

    ``after``: by sync or close, the bytes that were not safe when it returned.
    """
    violations = []
    for number in replay.acknowledged_saves:
        description = f"{replay.operation(number).line()} succeeded"
        if number in after and after[number].unsynced:
            violations.append(
                Violation("no fsync", f"{description}, but the file was written after its last fsync")
            )
        if number in after and after[number].lost:
            violations.append(
                Violation(
                    "lost by fsync",
                    f"{description}, but bytes that a failed fsync lost were not written again",
                )
            )
    return violations
