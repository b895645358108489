"""A model of the medium below a chaos run's file system, from the log of the calls (tests/engines/faulty_fs).

A byte that was written is *unsynced* until an fsync that began later has succeeded. If that fsync fails, the byte is
*lost*, as with kernels that count the page as clean afterwards: a later fsync does not write it. The program must write
it again.

An fsync concerns the bytes that its own node has written, since each node has a page cache. A process of which the log
names no rank may be of any node: its fsyncs concern all bytes, and every fsync concerns its bytes.

A program cannot see each fsync. It knows that bytes are safe when a sync or close has returned and no fsync has failed
meanwhile. After a failed one it must take all bytes for lost that it has written since the last such return. These
bytes are *doubtful*: the library may ask for them again, although an fsync of its own has saved them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
class UnsafeBytes:
    """Whether a file had unsynced, lost or doubtful bytes when all ranks had returned from a sync or close."""

    unsynced: bool
    lost: bool
    doubtful: bool


@dataclass
class FileOnMedium:
    """By byte: its state, its state as the program knows it, and the line of the log and the node that wrote it.

    ``succeeded``: the fsyncs that have succeeded since the last return, by their first line and node.
    """

    state: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    known: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    line: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    node: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    succeeded: list[tuple[int, int]] = field(default_factory=list)

    def write(self, begin: int, end: int, line: int, node: int) -> None:
        missing = max(0, end - len(self.state))
        self.state = np.pad(self.state, (0, missing))
        self.known = np.pad(self.known, (0, missing))
        self.line = np.pad(self.line, (0, missing))
        self.node = np.pad(self.node, (0, missing))
        self.state[begin:end] = self.known[begin:end] = State.unsynced
        self.line[begin:end] = line
        self.node[begin:end] = node

    def sync(self, began: int, failed: bool, node: int) -> None:
        self.state[self._concerned(self.state, began, node)] = State.lost if failed else State.safe
        if failed:
            self.known[self._concerned(self.known, began, NO_NODE)] = State.lost
            self.succeeded.clear()
        else:
            self.succeeded.append((began, node))

    def _concerned(self, state: NDArray[np.uint8], began: int, node: int) -> NDArray[np.bool_]:
        """The unsynced bytes that an fsync of the node covers."""
        concerned = (state == State.unsynced) & (self.line < began)
        if node != NO_NODE:
            concerned &= (self.node == node) | (self.node == NO_NODE)
        return concerned

    def return_from_sync(self) -> None:
        """The program learns which fsyncs have succeeded."""
        for began, node in self.succeeded:
            self.known[self._concerned(self.known, began, node)] = State.safe
        self.succeeded.clear()

    def cut(self, size: int) -> None:
        self.state[size:] = self.known[size:] = State.safe

    def forget_lost(self) -> None:
        for state in (self.state, self.known):
            state[state == State.lost] = State.safe

    def unsafe(self) -> UnsafeBytes:
        return UnsafeBytes(
            unsynced=bool((self.state == State.unsynced).any()),
            lost=bool((self.state == State.lost).any()),
            doubtful=bool((self.known == State.lost).any()),
        )


@dataclass(frozen=True)
class Line:
    """A line of the log: "PROCESS EVENT VALUE OFFSET INODE PATH"."""

    process: str
    event: str
    value: int
    offset: int
    inode: int

    @staticmethod
    def parse(text: str) -> Line:
        process, event, value, offset, inode, _ = text.split(" ", 5)
        return Line(process, event, int(value), int(offset), int(inode))


def unsafe_bytes(
    log: Path,
    operations: Sequence[Operation],
    node_of_rank: Callable[[int], int],
    close_reports: bool = True,
) -> tuple[dict[int, UnsafeBytes], dict[int, UnsafeBytes]]:
    """The unsafe bytes by sync or close, and at the end of the log by inode: names change, and two files may have had
    the same one.

    ``close_reports``: a close waits for the file system, so it reports bytes that are lost.

    The log also has lines of the ranks: "rank", its own number, "returned" when all have returned from a sync or close,
    "resized" after a change of size.
    """
    by_number = {operation.number: operation for operation in operations}
    files: dict[int, FileOnMedium] = {}
    began: dict[tuple[str, int], int] = {}
    nodes: dict[str, int] = {}
    result_by_save = {}
    for number, text in enumerate(log.read_text().splitlines() if log.exists() else []):
        line = Line.parse(text)
        file = files.setdefault(line.inode, FileOnMedium())
        node = nodes.get(line.process, NO_NODE)
        if line.event == "rank":
            nodes[line.process] = node_of_rank(line.value)
        elif line.event == "wrote" and line.value > 0:
            file.write(line.offset, line.offset + line.value, number, node)
        elif line.event == "syncing":
            began[line.process, line.inode] = number
        elif line.event in ("synced", "failed"):
            file.sync(began.get((line.process, line.inode), 0), line.event == "failed", node)
        elif line.event == "resized":
            file.cut(int(by_number[line.value].arguments[1]))
        elif line.event == "returned":
            file.return_from_sync()
            result_by_save[line.value] = file.unsafe()
            if close_reports and by_number[line.value].kind == "close":  # later handles need not report them
                file.forget_lost()
    return result_by_save, {inode: file.unsafe() for inode, file in files.items()}
