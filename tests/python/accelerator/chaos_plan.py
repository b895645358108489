"""Plans a chaos run from a seed: the job, its operations, and one fault at a random moment.

The plan is text, one operation a line: its kind, its number, then its arguments. tests/engines/chaos_io executes it,
and the checker reads it. Operations name a file by its slot; a slot has one file at a time.

    open N SLOT NAME                        all ranks; the file is created if it is missing
    write N RANK SLOT OFFSET BYTES
    write_all N SLOT OFFSET BYTES ...       a pair for each rank
    strided N SLOT COLLECTIVE BEGIN BLOCK COUNT GAP
                                            COUNT blocks of each rank; GAP bytes after the blocks of all ranks
    read N RANK SLOT OFFSET BYTES
    sync N SLOT, close N SLOT, size N SLOT BYTES
    rename N FROM TO, delete N NAME         rank 0, between barriers
    barrier N
    fault N RANK, mend N RANK               the file system's faults begin, end
    kill N RANK US, kill_all N RANK US      after US microseconds
    stop N RANK US                          the rank is stopped for US microseconds
    pause N US                              every rank
    leave N RANK                            all ranks end without MPI_Finalize; RANK waits for its death
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

MIB = 1 << 20
FILE_BYTES = MIB
STORE_TABLES_BYTES, MIN_BYTES_PER_RANK = 16 * MIB, 21 * MIB // 4  # the minimum of a store, rounded up
STORE_SIZE_MULTIPLE = 2 * MIB
DATA_KINDS = {"write": 40, "write_all": 8, "strided": 6, "read": 16}
OTHER_KINDS = {
    "sync": 5,
    "barrier": 8,
    "pause": 2,
    "reopen": 4,
    "close": 2,
    "size": 2,
    "rename": 3,
    "replace": 1,
    "delete": 2,
}
FAULTS = {
    "none": 14,
    "kill": 14,
    "kill_all": 12,
    "dead_rank": 8,
    "EIO": 10,
    "ENOSPC": 10,
    "EDQUOT": 6,
    "EMFILE": 8,
    "fsync": 9,
    "stall": 6,
    "stop": 4,
}
KILLS = ("kill", "kill_all", "dead_rank")
SLOW = ("stall", "stop")
# Faults with which files may be opened without the store. The order of collective transfers is then that of the
# MPI's own I/O.
BYPASSES_STORE = ("EMFILE",)


@dataclass(frozen=True)
class Operation:
    kind: str
    number: int
    arguments: tuple[int | str, ...] = ()

    def line(self) -> str:
        return " ".join(str(word) for word in (self.kind, self.number, *self.arguments))

    def slot(self) -> int:
        return int(self.arguments[1 if self.kind in ("write", "read") else 0])


@dataclass(frozen=True)
class Blocks:
    """``count`` blocks of ``length`` bytes, at ``begin``, ``begin + stride``, ..."""

    begin: int
    length: int
    count: int = 1
    stride: int = 0

    @property
    def bytes(self) -> int:
        return self.length * self.count

    @property
    def end(self) -> int:
        return self.begin + (self.count - 1) * self.stride + self.length if self.bytes else 0


@dataclass
class Plan:
    seed: int
    mpi: str
    ranks: int
    ranks_per_node: int  # 0: all are on one node
    store_size: int
    level: str  # when sync and close return: file, memory
    consistency: str  # posix: the MPI's own I/O on a local file system
    fault: str
    rule: str  # the file system's fault, in the syntax of faulty_fs.cpp
    fault_once: bool  # only one call fails
    fault_ends: bool
    through_io_run: bool
    direct: bool = False  # files may be written without the store
    kill_drain_s: float = 0  # when background drains are killed, after the start; 0: never
    operations: list[Operation] = field(default_factory=list)

    @property
    def name_prefix(self) -> str:
        """What the names of the files begin with. A name is no other plan's: Open MPI names locks by it."""
        return f"n{self.seed}-"

    def text(self) -> str:
        return "".join(operation.line() + "\n" for operation in self.operations)

    def node(self, rank: int) -> int:
        return rank // self.ranks_per_node if self.ranks_per_node else 0

    def _duration(self) -> str:
        if not self.rule:
            return ""
        return f" ({self.rule}) {'once' if self.fault_once else 'for a while' if self.fault_ends else 'for ever'}"

    def summary(self) -> str:
        nodes = self.node(self.ranks - 1) + 1
        start = "assay io run" if self.through_io_run else "preloaded"
        return (
            f"{self.fault}{self._duration()}, {self.mpi}, {self.ranks} ranks on {nodes} node{'s' * (nodes > 1)}, "
            f"{self.store_size >> 20} MiB, level {self.level}"
            f"{f' (drain killed after {self.kill_drain_s:.1f} s)' if self.kill_drain_s else ''}, "
            f"{self.consistency}, {'direct' if self.direct else 'store'}, {start}"
        )


def written_blocks(operation: Operation, ranks: int) -> dict[int, Blocks]:
    """The blocks that an operation writes, by rank. Empty if it is not a write."""
    numbers = [argument for argument in operation.arguments if isinstance(argument, int)]
    if operation.kind == "write":
        return {numbers[0]: Blocks(*numbers[2:])}
    if operation.kind == "write_all":
        return {rank: Blocks(*numbers[1 + 2 * rank : 3 + 2 * rank]) for rank in range(ranks)}
    if operation.kind == "strided":
        begin, block, count, gap = numbers[2:]
        return {
            rank: Blocks(begin + rank * block, block, count, ranks * block + gap) for rank in range(ranks)
        }
    return {}


def make_plan(
    seed: int,
    mpis: list[str],
    operations: int = 120,
    fault: str | None = None,
    without: Sequence[str] = (),
    direct: bool | None = None,
) -> Plan:
    """``fault``, ``direct``: in place of random ones; ``without``: kinds of operations to leave out."""
    random = Random(f"chaos {seed}")
    direct_random = Random(f"route {seed}")
    direct = seed % 2 == 1 if direct is None else direct
    chosen = random.choices(list(FAULTS), list(FAULTS.values()))[0]
    chosen = fault or chosen
    ranks = random.choice((2, 2, 3, 4))
    per_node = random.choice((0, 0, (ranks + 1) // 2))
    # An allowed direct route is used only by jobs of one node at level file.
    uses_direct = direct and direct_random.random() < 0.8
    per_node = 0 if uses_direct else per_node
    # Some stores are so small that the rings wrap.
    ranks_on_node = per_node or ranks
    smallest = (
        -(-(STORE_TABLES_BYTES + ranks_on_node * MIN_BYTES_PER_RANK) // STORE_SIZE_MULTIPLE)
        * STORE_SIZE_MULTIPLE
    )
    extra_bytes = random.choice((0, 0, 16 * MIB))
    mpi = random.choice(mpis)
    # Open MPI's launcher ends the other ranks; its own I/O writes late what a collective transfer has acknowledged.
    if chosen in ("dead_rank", *BYPASSES_STORE) and mpi == "openmpi":
        mpi = next((name for name in mpis if name != "openmpi"), mpi)
    ends, once = random.random() < 0.6, random.random() < 0.25
    plan = Plan(
        seed=seed,
        mpi=mpi,
        ranks=ranks,
        ranks_per_node=per_node,
        store_size=smallest + extra_bytes,
        level=random.choices(("file", "memory"), (7, 3))[0],
        consistency=random.choices(("immediate", "collective", "commit"), (7, 1, 1))[0],
        fault=chosen,
        rule=_rule(chosen, random),
        fault_once=once or chosen == "stall",
        fault_ends=ends or once or chosen in SLOW,
        through_io_run=chosen != "dead_rank" and random.random() < 0.4,
    )
    plan.direct = direct
    plan.level = "file" if uses_direct else plan.level
    _Planner(plan, random, without).fill(operations)
    if plan.level == "memory" and random.random() < 0.3:
        plan.kill_drain_s = random.uniform(0.1, 2)
    return plan


def _rule(fault: str, random: Random) -> str:
    if fault in ("EIO", "ENOSPC", "EDQUOT"):
        also = random.choice(("", "", f",sync:{fault}", ",read:EIO" if fault == "EIO" else ""))
        return f"write:{fault}{also}"
    return {
        "EMFILE": "open:EMFILE",
        "fsync": "sync:EIO",
        "stall": f"write:SLEEP{random.randint(1000, 2000)}",
    }.get(fault, "")


class _Planner:
    """Adds random operations to a plan. Keeps the state after them, so that the next operation is possible."""

    def __init__(self, plan: Plan, random: Random, without: Sequence[str]) -> None:
        self.plan = plan
        self.without = set(without)
        self.random = random
        self.slots = random.randint(2, 4)
        self.names: dict[int, str] = {}  # by slot, of files that exist
        self.open: list[int] = []
        self.largest = random.choice((4 << 10, 64 << 10, 384 << 10, 384 << 10))
        self.lost: int | None = None  # the rank that died

    def fill(self, operations: int) -> None:
        for slot in range(self.slots):
            self._open(slot)
        begin = self.random.randint(operations // 10, operations * 8 // 10)
        end = begin + self.random.randint(3, operations // 3)
        while len(self.plan.operations) < operations:
            if self.plan.fault != "none" and len(self.plan.operations) >= begin:
                begin = self._begin_fault(operations)
            if self.plan.rule and self.plan.fault_ends and len(self.plan.operations) >= end:
                self._add("mend", 0)
                end = operations
            self._operation()
        if self.lost is not None:
            self._add("leave", self.lost)
            return
        if self.plan.rule and self.plan.fault_ends and end < operations:
            self._add("mend", 0)
        for slot in list(self.open):
            self._close(slot)

    def _add(self, kind: str, *arguments: int | str) -> None:
        self.plan.operations.append(Operation(kind, len(self.plan.operations) + 1, arguments))

    def _begin_fault(self, operations: int) -> int:
        """Adds the fault. Returns the index of the operation before which the next fault begins; it is never
        reached."""
        plan, random = self.plan, self.random
        leaders = [rank for rank in range(plan.ranks) if rank == 0 or plan.node(rank) != plan.node(rank - 1)]
        if plan.fault == "kill":
            self._add("kill", random.randrange(plan.ranks), random.randint(0, 3000))
        elif plan.fault == "kill_all":
            self._add("kill_all", random.randrange(plan.ranks), random.randint(0, 3000))
        elif plan.fault == "dead_rank":
            if not self.open:
                self._open(0)
            self.lost = leaders[-1]
            self._add("barrier")
            self._add("kill", self.lost, random.randint(3000, 20000))
        elif plan.fault == "stop":
            self._add("stop", random.randrange(plan.ranks), random.randint(500_000, 2_000_000))
        else:
            self._add("fault", 0)
        return operations + 1

    def _operation(self) -> None:
        random = self.random
        # A lost rank cannot take part in collective operations.
        kinds = DATA_KINDS | (OTHER_KINDS if self.lost is None else {"pause": 6})
        kinds = {kind: weight for kind, weight in kinds.items() if kind not in self.without}
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        if self.lost is not None and kind in ("write_all", "strided"):
            kind = "write"
        closed = [slot for slot in range(self.slots) if slot not in self.open]
        if closed and self.lost is None and random.random() < 0.3:
            return self._open(random.choice(closed))
        if kind in ("rename", "replace", "delete"):
            return self._change_name(kind)
        if kind == "barrier":
            return self._add("barrier")
        if kind == "pause":
            return self._add("pause", random.randint(100, 20000))
        if not self.open:
            return self._open(random.choice(closed))
        slot = random.choice(self.open)
        if kind in ("close", "reopen"):
            self._close(slot)
            return self._open(slot) if kind == "reopen" else None
        if kind == "sync":
            return self._add("sync", slot)
        if kind == "size":
            return self._add("size", slot, random.randrange(FILE_BYTES))
        self._transfer(kind, slot)

    def _transfer(self, kind: str, slot: int) -> None:
        random = self.random
        ranks = [rank for rank in range(self.plan.ranks) if rank != self.lost]
        rank = random.choice(ranks)
        if kind in ("write", "read"):
            self._add(kind, rank, slot, *self._range(rank))
        elif kind == "write_all":
            self._add("write_all", slot, *(number for rank in ranks for number in self._range(rank)))
        else:
            block = random.choice((8, 64, 512, 520, 4096, 37))
            count = random.randint(1, 24)
            gap = random.choice((0, 0, 8, 64, 4096, 5))
            self._add(
                "strided",
                slot,
                random.randint(0, 1),
                8 * random.randrange(FILE_BYTES // 16),
                block,
                count,
                gap,
            )

    def _range(self, rank: int) -> tuple[int, int]:
        """A random offset and length: mostly in the rank's own part of the file, mostly of whole words."""
        random = self.random
        length = random.choice(
            (random.randint(1, 64), random.randint(1, 4096), random.randint(1, self.largest))
        )
        part = FILE_BYTES // self.plan.ranks
        in_own_part = random.random() < 0.7
        offset = random.randrange(part) + rank * part if in_own_part else random.randrange(FILE_BYTES)
        if random.random() < 0.7:
            offset, length = offset & ~7, (length + 7) & ~7
        return offset, min(length, (rank + 1) * part - offset) if in_own_part else length

    def _unused_names(self) -> list[str]:
        names = (f"{self.plan.name_prefix}{k}" for k in range(12))
        return [name for name in names if name not in self.names.values()]

    def _open(self, slot: int) -> None:
        if slot not in self.names:
            self.names[slot] = self.random.choice(self._unused_names())
        self.open.append(slot)
        self._add("open", slot, self.names[slot])

    def _close(self, slot: int) -> None:
        self.open.remove(slot)
        self._add("close", slot)

    def _change_name(self, kind: str) -> None:
        random = self.random
        if not self.names:
            return
        slot = random.choice(list(self.names))
        if kind == "delete":
            self._add("delete", self.names.pop(slot))
            return
        others = [other for other in self.names if other != slot and other not in self.open]
        if kind == "replace" and others:
            new_name = self.names.pop(random.choice(others))
        else:
            new_name = random.choice(self._unused_names())
        self._add("rename", self.names[slot], new_name)
        self.names[slot] = new_name
