"""Turns the plan of a chaos run and the logs of its ranks into histories of files, reads and errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from chaos_log import Outcome, RankLog
from chaos_model import History, Resize, Write
from chaos_plan import BYPASSES_STORE, Operation, Plan, written_blocks


@dataclass
class File:
    """A file of the run. ``created``: the operation that created it; ``name``: its last name, None: it was deleted or
    replaced."""

    created: int
    slot: int
    name: str | None
    history: History
    exists: bool = False  # its creation is acknowledged
    ordered: int = 0  # number of collective operations that order its writes
    saved: dict[int, set[int]] = field(
        default_factory=dict
    )  # by sync or close: the ranks on which it succeeded
    settled: int = 0  # the last sync or close that succeeded on all ranks


@dataclass(frozen=True)
class Read:
    file: File
    operation: int
    rank: int
    offset: int
    wanted: int
    epoch: int
    data: bytes


class Replay:
    """Follows the plan's operations as far as the logs of the ranks go."""

    def __init__(self, plan: Plan, logs: list[RankLog]) -> None:
        self.plan = plan
        self.logs = logs
        self.files: list[File] = []
        self.names: dict[str, File] = {}
        self.open: dict[int, File] = {}
        self.reads: list[Read] = []
        self.flaws: list[str] = []  # writes that succeeded with a wrong number of bytes
        self.expected_failures: set[int] = set()  # renames and deletions of files that are not there
        self.in_flight: Operation | None = None  # a rename or deletion that has not returned
        self.acknowledged_saves: list[int] = []  # syncs and closes that promise the file system's medium
        self._job_epoch = 0
        self._read_bytes = [0] * plan.ranks
        for operation in plan.operations:
            self._follow(operation)
        for file in self.files:
            file.history.writes = [
                replace(write, settled=write.operation < file.settled) for write in file.history.writes
            ]

    def settle_names(self, present: set[str]) -> None:
        """Decides by the names in the folder whether a rename or deletion that did not return took place."""
        operation = self.in_flight
        if operation and str(operation.arguments[0]) not in present:
            self._change_name(operation)
        self.in_flight = None

    def errors(self) -> Iterable[tuple[Operation, int, Outcome]]:
        """Operations that have failed, with the rank."""
        for operation in self.plan.operations:
            for rank, outcome in self._outcomes(operation).items():
                if outcome.error:
                    yield operation, rank, outcome

    def _outcomes(self, operation: Operation) -> dict[int, Outcome]:
        return {
            rank: log.outcomes[operation.number]
            for rank, log in enumerate(self.logs)
            if operation.number in log.outcomes
        }

    def _follow(self, operation: Operation) -> None:
        outcomes = self._outcomes(operation)
        if operation.kind == "barrier":
            self._job_epoch += self._immediate()
        if not outcomes:
            return
        if operation.kind == "open":
            self._open(operation, outcomes)
        elif operation.kind in ("rename", "delete"):
            self._job_epoch += self._immediate()
            if outcomes[0].error is None:
                self.in_flight = operation
            elif outcomes[0].error == 0:
                self._change_name(operation)
            elif not (file := self.names.get(str(operation.arguments[0]))) or not file.exists:
                self.expected_failures.add(operation.number)
        elif file := self.open.get(operation.slot()):
            self._use(operation, file, outcomes)

    def _open(self, operation: Operation, outcomes: dict[int, Outcome]) -> None:
        slot, name = operation.slot(), str(operation.arguments[1])
        file = self.names.get(name)
        if (
            file and not file.exists and file.slot != slot
        ):  # its opens have failed, and another file has the name now
            self.files.remove(file)
            file = None
        if file is None:
            file = File(operation.number, slot, name, History(name, slot))
            self.names[name] = file
            self.files.append(file)
        succeeded = [outcome.error == 0 for outcome in outcomes.values()]
        file.exists |= any(succeeded)
        self._order(file, outcomes, always=True)
        if len(succeeded) == self.plan.ranks and all(succeeded):
            self.open[slot] = file

    def operation(self, number: int) -> Operation:
        return next(operation for operation in self.plan.operations if operation.number == number)

    def _use(self, operation: Operation, file: File, outcomes: dict[int, Outcome]) -> None:
        if operation.kind == "read":
            self._read(operation, file, outcomes)
        elif operation.kind == "size":
            self._resize(operation, file, outcomes)
        elif operation.kind in ("sync", "close"):
            self._save(operation, file, outcomes)
        else:
            self._write(operation, file, outcomes)

    def _write(self, operation: Operation, file: File, outcomes: dict[int, Outcome]) -> None:
        collective = operation.kind == "write_all" or (
            operation.kind == "strided" and operation.arguments[1] == 1
        )
        collective &= self.plan.fault not in BYPASSES_STORE
        if collective and self.plan.consistency == "immediate":
            self._job_epoch += 1
        for rank, blocks in written_blocks(operation, self.plan.ranks).items():
            outcome = outcomes.get(rank)
            if outcome is None:
                continue
            if outcome.error == 0 and outcome.bytes != blocks.bytes:
                self.flaws.append(
                    f"operation {operation.line()}: rank {rank} wrote {outcome.bytes} of {blocks.bytes}"
                )
            file.history.writes.append(
                Write(operation.number, rank, file.slot, blocks, self._epoch(file), outcome.error == 0)
            )
        if collective and self.plan.consistency == "collective":
            self._order(file, outcomes)

    def _read(self, operation: Operation, file: File, outcomes: dict[int, Outcome]) -> None:
        for rank, outcome in outcomes.items():
            if outcome.error != 0:
                continue
            begin = self._read_bytes[rank]
            self._read_bytes[rank] += outcome.bytes
            data = self.logs[rank].reads[begin : begin + outcome.bytes]
            offset, wanted = (int(value) for value in operation.arguments[2:])
            self.reads.append(Read(file, operation.number, rank, offset, wanted, self._epoch(file), data))

    def _resize(self, operation: Operation, file: File, outcomes: dict[int, Outcome]) -> None:
        self._order(file, outcomes, always=True)
        file.ordered += 1
        acknowledged = any(outcome.error == 0 for outcome in outcomes.values())
        size = int(operation.arguments[1])
        file.history.resizes.append(Resize(operation.number, size, self._epoch(file), acknowledged))
        file.ordered += 1

    def _save(self, operation: Operation, file: File, outcomes: dict[int, Outcome]) -> None:
        self._order(file, outcomes)
        succeeded = {rank for rank, outcome in outcomes.items() if outcome.error == 0}
        closes = operation.kind == "close"
        if succeeded and self.plan.level == "file":
            on_all_ranks = all(not outcome.error for outcome in outcomes.values())
            file.saved[operation.number] = set(range(self.plan.ranks)) if on_all_ranks else succeeded
            is_stock_close = (
                closes and self.plan.fault in BYPASSES_STORE
            )  # the close of the MPI's own I/O, which does not synchronise
            if file.name and on_all_ranks and not is_stock_close:
                self.acknowledged_saves.append(operation.number)
        if len(succeeded) == self.plan.ranks and (closes or self.plan.level == "file"):
            file.settled = operation.number
        if closes:
            del self.open[operation.slot()]

    def _change_name(self, operation: Operation) -> None:
        file = self.names.pop(str(operation.arguments[0]), None)
        if operation.kind == "delete":
            if file:
                file.name = None
            return
        new_name = str(operation.arguments[1])
        if replaced := self.names.pop(new_name, None):
            replaced.name = None
        if file:
            file.name = file.history.name = new_name
            self.names[new_name] = file

    # ---- order

    def _immediate(self) -> int:
        """1 if all communication orders the writes of all files."""
        return int(self.plan.consistency in ("immediate", "posix"))

    def _epoch(self, file: File) -> int:
        return self._job_epoch + file.ordered

    def _order(self, file: File, outcomes: dict[int, Outcome], always: bool = False) -> None:
        """A collective operation orders the file's writes if it succeeds."""
        if always or all(outcome.error == 0 for outcome in outcomes.values()):
            file.ordered += 1
            self._job_epoch += self._immediate()
