"""A model of the medium below a chaos run's file system, from the log of the calls (tests/engines/faulty_fs).

A byte that was written is *unsynced* until an fsync that began later has succeeded. If that fsync fails, the byte is
*lost*, as with kernels that count the page as clean afterwards: a later fsync does not write it. The program must write
it again.

An fsync concerns the bytes that its own node has written, since each node has a page cache. A process of which the log
names no rank may be of any node: its fsyncs concern all bytes, and every fsync concerns its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

import numpy as np
from chaos_plan import Operation
from numpy.typing import NDArray

NO_NODE = -1


class State(IntEnum):
    safe = 0
    unsynced = 1
    lost = 2


@dataclass
class FileOnMedium:
    """By byte: its state, and the line of the log and the node that wrote it."""

    state: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    line: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    node: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))

    def write(self, begin: int, end: int, line: int, node: int) -> None:
        missing = max(0, end - len(self.state))
        self.state = np.pad(self.state, (0, missing))
        self.line = np.pad(self.line, (0, missing))
        self.node = np.pad(self.node, (0, missing))
        self.state[begin:end] = State.unsynced
        self.line[begin:end] = line
        self.node[begin:end] = node

    def sync(self, began: int, failed: bool, node: int) -> None:
        concerned = (self.state == State.unsynced) & (self.line < began)
        if node != NO_NODE:
            concerned &= (self.node == node) | (self.node == NO_NODE)
        self.state[concerned] = State.lost if failed else State.safe

    def cut(self, size: int) -> None:
        self.state[size:] = State.safe

    def has(self, state: State) -> bool:
        return bool((self.state == state).any())


@dataclass(frozen=True)
class Line:
    """A line of the log: "PROCESS EVENT VALUE OFFSET PATH"."""

    process: str
    event: str
    value: int
    offset: int
    name: str

    @staticmethod
    def parse(text: str) -> Line:
        process, event, value, offset, path = text.split(" ", 4)
        return Line(process, event, int(value), int(offset), Path(path).name)


@dataclass(frozen=True)
class UnsafeBytes:
    """Whether a file had unsynced or lost bytes when all ranks had returned from a sync or close."""

    unsynced: bool
    lost: bool


def unsafe_bytes(
    log: Path,
    operations: list[Operation],
    names: dict[int, str],
    node_of_rank: Callable[[int], int],
    close_reports: bool = True,
) -> tuple[dict[int, UnsafeBytes], dict[str, UnsafeBytes]]:
    """The unsafe bytes by sync or close, and at the end of the log by name of the file.

    ``names``: by sync or close, the name of its file. ``close_reports``: a close waits for the file system, so it
    reports bytes that are lost.

    The log also has lines of the ranks: "rank", its own number, "returned" when all have returned from a sync or close,
    "changed-name" after a rename or deletion, "resized" after a change of size.
    """
    by_number = {operation.number: operation for operation in operations}
    files: dict[str, FileOnMedium] = {}
    began: dict[tuple[str, str], int] = {}
    nodes: dict[str, int] = {}
    result_by_save = {}
    lines = [Line.parse(text) for text in log.read_text().splitlines()] if log.exists() else []
    changes = _changes_of_names(lines, by_number)
    for number, line in enumerate(lines):
        process, event, value, offset, name = line.process, line.event, line.value, line.offset, line.name
        node = nodes.get(process, NO_NODE)
        for operation in changes.get(number, []):
            _change_name(operation, files, began)
        if event == "rank":
            nodes[process] = node_of_rank(value)
        elif event == "wrote" and value > 0:
            files.setdefault(name, FileOnMedium()).write(offset, offset + value, number, node)
        elif event == "syncing":
            began[process, name] = number
        elif event in ("synced", "failed") and name in files:
            files[name].sync(began.get((process, name), 0), event == "failed", node)
        elif event == "resized" and (file := files.get(names.get(value, ""))):
            file.cut(int(by_number[value].arguments[1]))
        elif event == "returned" and value in names:
            file = files.get(names[value], FileOnMedium())
            result_by_save[value] = UnsafeBytes(file.has(State.unsynced), file.has(State.lost))
            if close_reports and by_number[value].kind == "close":  # later handles need not report them
                file.state[file.state == State.lost] = State.safe
    at_end = {
        name: UnsafeBytes(file.has(State.unsynced), file.has(State.lost)) for name, file in files.items()
    }
    return result_by_save, at_end


def _changes_of_names(
    lines: Sequence[Line], by_number: Mapping[int, Operation]
) -> dict[int, list[Operation]]:
    """The renames and deletions by the line before which they happened.

    A rank logs a rename when it has returned. What others log meanwhile has the new name already: the rename is before
    the first such line, if no file had that name before."""
    changes: dict[int, list[Operation]] = {}
    last_change: dict[str, int] = {}  # by name
    for number, line in enumerate(lines):
        if line.event != "changed-name":
            continue
        operation = by_number[line.value]
        old, new = str(operation.arguments[0]), str(operation.arguments[-1])
        moment = number
        if operation.kind == "rename":
            since = last_change.get(new, -1) + 1
            uses = [k for k in range(since, number) if lines[k].name == new]
            last_old = max((k for k in range(number) if lines[k].name == old), default=-1)
            if uses and uses[0] > last_old:
                moment = uses[0]
        changes.setdefault(moment, []).append(operation)
        last_change[old] = last_change[new] = number
    return changes


def _change_name(
    operation: Operation, files: dict[str, FileOnMedium], began: dict[tuple[str, str], int]
) -> None:
    """Follows a rename or deletion. The log names a deleted file by its last name and " (deleted)"."""
    if operation.kind == "rename":
        old, new = str(operation.arguments[0]), str(operation.arguments[1])
        for process, name in [key for key in began if key[1] == old]:
            began[process, new] = began.pop((process, name))
    moved = files.pop(str(operation.arguments[0]), None)
    name = str(operation.arguments[1 if operation.kind == "rename" else 0])
    gone = files.pop(name, None) if operation.kind == "rename" else moved
    if gone:
        files[f"{name} (deleted)"] = gone
    if operation.kind == "rename" and moved:
        files[name] = moved
