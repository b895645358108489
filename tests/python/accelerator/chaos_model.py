"""A model of the contents that a file may have after a chaos run.

A file's history is its writes and its changes of size. Each has an epoch. A write is before another write if its epoch
is lower, or if both are of one rank and its operation number is lower. Writes without an order may come in any order.

A byte may be of any write that was started and is not before a *promised* write of the same byte. It may be zero if no
promised write has come after the file's creation, or after the last change of size that removed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from chaos_bytes import Offsets, decode, encode
from chaos_plan import Blocks
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Write:
    operation: int
    rank: int
    slot: int
    blocks: Blocks
    epoch: int
    acknowledged: bool
    settled: bool = True  # a sync or close followed, so newer writes of other nodes are after it

    def ranges(self, begin: int, end: int) -> Iterable[slice]:
        """Its bytes within [begin, end), as slices of that range."""
        for k in range(self.blocks.count):
            first = self.blocks.begin + k * self.blocks.stride
            low, high = max(first, begin), min(first + self.blocks.length, end)
            if low < high:
                yield slice(low - begin, high - begin)

    def covers(self, offsets: Offsets) -> Flags:
        inside = (offsets >= self.blocks.begin) & (offsets < self.blocks.end)
        if self.blocks.count > 1:
            inside &= (offsets - self.blocks.begin) % self.blocks.stride < self.blocks.length
        return inside


@dataclass(frozen=True)
class Resize:
    """A change of the file's size."""

    operation: int
    size: int
    epoch: int
    acknowledged: bool


@dataclass
class History:
    """The history of a file. ``slot``: the number by which its bytes are tagged."""

    name: str
    slot: int
    writes: list[Write] = field(default_factory=list)
    resizes: list[Resize] = field(default_factory=list)

    def sizes(self, promised: Callable[[Write], bool]) -> tuple[int, int]:
        """The smallest and the largest size that the file may have, in bytes."""
        low = high = 0
        events: list[Write | Resize] = sorted(
            [*self.writes, *self.resizes], key=lambda event: event.operation
        )
        for event in events:
            if isinstance(event, Write):
                high = max(high, event.blocks.end)
                if promised(event):
                    low = max(low, event.blocks.end)
            elif event.acknowledged:
                low = high = event.size
            else:
                low, high = min(low, event.size), max(high, event.size)
        return low, high


class Check:
    """Compares bytes of a file with its history. ``promised``: the writes that must not be missing."""

    def __init__(
        self, history: History, promised: Callable[[Write], bool], node_of: Callable[[int], int] | None = None
    ) -> None:
        """``node_of``: the node of a rank, where nodes are recovered in any order; unsettled writes of two nodes then
        have no order."""
        self.history = history
        self.promised = [write for write in history.writes if promised(write)]
        self.by_operation = {(write.operation, write.rank): write for write in history.writes}
        self.node_of = node_of

    def violations(self, content: bytes, begin: int = 0) -> list[str]:
        """One line for each kind of violation. ``content``: the file's bytes from ``begin`` on."""
        self.begin, self.end = begin, begin + len(content)
        self._order()
        data = np.frombuffer(content, np.uint8)
        offsets = np.arange(self.begin, self.end, dtype=np.int64)
        good = self._allowed_zeros(offsets) & (data == 0)
        for write in self.history.writes:
            for part in write.ranges(self.begin, self.end):
                if good[part].all():
                    continue
                expected = encode(write.slot, write.rank, write.operation, offsets[part])
                good[part] |= (data[part] == expected) & self._allowed(write, part)
        return self._explain(data, offsets, np.flatnonzero(~good))

    def _order(self) -> None:
        """For each byte: the highest epoch and the highest operation of a promised write, by rank and node."""
        byte_count = self.end - self.begin
        self.newest = np.full(byte_count, -1, np.int64)
        self.newest_of_rank: dict[int, Offsets] = {}
        self.newest_of_node: dict[int, Offsets] = {}
        for write in self.promised:
            newest_own = self.newest_of_rank.setdefault(write.rank, np.full(byte_count, -1, np.int64))
            node = self.node_of(write.rank) if self.node_of else 0
            newest_near = self.newest_of_node.setdefault(node, np.full(byte_count, -1, np.int64))
            for part in write.ranges(self.begin, self.end):
                newest_own[part] = np.maximum(newest_own[part], write.operation)
                newest_near[part] = np.maximum(newest_near[part], write.epoch)
                self.newest[part] = np.maximum(self.newest[part], write.epoch)
        self.cut = np.full(byte_count, -1, np.int64)  # the last resize that may have made the byte zero
        for resize in self.history.resizes:
            part = slice(max(0, resize.size - self.begin), None)
            self.cut[part] = resize.epoch
            if resize.acknowledged:
                for newest in (self.newest, *self.newest_of_node.values()):
                    newest[part] = np.maximum(newest[part], resize.epoch)

    def _allowed(self, write: Write, part: slice) -> Flags:
        newest = self.newest[part]
        if self.node_of and not write.settled:
            newest_near = self.newest_of_node.get(self.node_of(write.rank))
            newest = self.cut[part] * 0 - 1 if newest_near is None else newest_near[part]
        newest_own = self.newest_of_rank.get(write.rank)
        allowed = newest <= write.epoch
        return allowed if newest_own is None else allowed & (newest_own[part] <= write.operation)

    def _allowed_zeros(self, offsets: Offsets) -> Flags:
        return self.newest <= self.cut

    # ---- what is wrong

    def _explain(self, data: Bytes, offsets: Offsets, bad: Offsets) -> list[str]:
        groups: dict[str, list[int]] = {}
        owners = self._owners(data, offsets, bad)
        for index, owner in zip(bad.tolist(), owners, strict=True):
            groups.setdefault(owner, []).append(int(offsets[index]))
        lines = []
        for owner, places in groups.items():
            missing = self._missing(places[0])
            lines.append(
                f"{self.history.name}: {len(places)} bytes from {places[0]} to {places[-1]} {owner}"
                f"{f' in place of {missing}' if missing else ''}"
            )
        return lines

    def _missing(self, offset: int) -> str:
        newest = max(
            (write for write in self.promised if write.covers(np.array([offset]))[0]),
            key=lambda write: (write.epoch, write.operation),
            default=None,
        )
        return f"operation {newest.operation} of rank {newest.rank}" if newest else ""

    def _owners(self, data: Bytes, offsets: Offsets, bad: Offsets) -> list[str]:
        """What each wrong byte is: zero, old, of another file, or foreign."""
        owners = ["are foreign"] * len(bad)
        for k, index in enumerate(bad.tolist()):
            if data[index] == 0:
                owners[k] = "are zero"
        for write in self.history.writes:
            mine = write.covers(offsets[bad])
            same = data[bad] == encode(write.slot, write.rank, write.operation, offsets[bad])
            for k in np.flatnonzero(mine & same).tolist():
                owners[k] = f"are old, of operation {write.operation} of rank {write.rank}"
        first = -self.begin % 8
        words = data[first : first + (len(data) - first) // 8 * 8].copy().view(np.uint64)
        tags = decode(words)
        for k, index in enumerate(bad.tolist()):
            word = (index - first) // 8
            if not 0 <= word < len(words) or index < first or not tags.valid[word]:
                continue
            slot, rank, operation = (int(tag[word]) for tag in (tags.slot, tags.rank, tags.operation))
            if slot == self.history.slot and (operation, rank) in self.by_operation:
                if tags.index[word] != (index + self.begin) // 8:
                    owners[k] = f"are of operation {operation} of rank {rank} at another offset"
            else:
                owners[k] = f"are of another file: slot {slot}, operation {operation} of rank {rank}"
        return owners
