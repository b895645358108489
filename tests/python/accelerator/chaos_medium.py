"""The medium below a chaos run's file system, from the log of its calls (tests/engines/faulty_fs).

A byte that was written is *unsynced* until an fsync that began later has succeeded. Where that fsync fails, the byte is
*lost*, as with kernels that then count the page as clean: a later fsync does not bring it. It must be written again.

An fsync concerns what its own node has written: each node has its page cache. Background drains are processes of which
the log says no node. Theirs concerns all bytes, and their bytes all fsyncs.
"""

from __future__ import annotations

from collections.abc import Callable
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
class Returned:
    """What was not safe when all ranks had returned from a sync or close."""

    unsynced: bool
    lost: bool


def returns(
    log: Path, operations: list[Operation], names: dict[int, str], node_of_rank: Callable[[int], int]
) -> dict[int, Returned]:
    """By sync or close. ``names``: of their files.

    The log also has lines of the ranks: "rank", its own number, "returned" when all have returned from a sync or close,
    "changed-name" after a rename or deletion, "resized" after a change of size.
    """
    by_number = {operation.number: operation for operation in operations}
    files: dict[str, FileOnMedium] = {}
    began: dict[tuple[str, str], int] = {}
    nodes: dict[str, int] = {}
    found = {}
    for number, line in enumerate(log.read_text().splitlines() if log.exists() else []):
        process, what, result, offset, path = line.split(" ", 4)
        name, value = Path(path).name, int(result)
        node = nodes.get(process, NO_NODE)
        if what == "rank":
            nodes[process] = node_of_rank(value)
        elif what == "wrote" and value > 0:
            files.setdefault(name, FileOnMedium()).write(int(offset), int(offset) + value, number, node)
        elif what == "syncing":
            began[process, name] = number
        elif what in ("synced", "failed") and name in files:
            files[name].sync(began.get((process, name), 0), what == "failed", node)
        elif what == "changed-name":
            _change_name(by_number[value], files)
        elif what == "resized" and (file := files.get(names.get(value, ""))):
            file.cut(int(by_number[value].arguments[1]))
        elif what == "returned" and value in names:
            file = files.get(names[value], FileOnMedium())
            found[value] = Returned(file.has(State.unsynced), file.has(State.lost))
            if by_number[value].kind == "close":  # it has told it; later handles are not concerned
                file.state[file.state == State.lost] = State.safe
    return found


def _change_name(operation: Operation, files: dict[str, FileOnMedium]) -> None:
    """The log calls a file without a name by its last one."""
    moved = files.pop(str(operation.arguments[0]), None)
    name = str(operation.arguments[1 if operation.kind == "rename" else 0])
    gone = files.pop(name, None) if operation.kind == "rename" else moved
    if gone:
        files[f"{name} (deleted)"] = gone
    if operation.kind == "rename" and moved:
        files[name] = moved
