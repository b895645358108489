#!/usr/bin/env python3
"""The accelerator against the same MPI without it, from open to close as IOR times it, with two ranks.

A file counts as written when close has returned; the drain that close waits for is included. Stock and accelerated
alternate, and a figure is the median of the ratios within a round, over seven rounds. Levels: close returns when the
data are in the node's memory ("memory"), or when the file system has all of them ("file"). Reads are of the data that
the other rank has written. The share of plain copies is taken in each round, too.

Lines on standard error show every round's rates: what was measured, and how much it scatters."""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import figure  # noqa: E402 - the path comes first
from iocases import CASES, FILE, MEMORY, Case, Operation, copy_rate, disk_folder, rates  # noqa: E402

from assay.errors import UserError  # noqa: E402 - the path comes first
from assay.launch.accelerator import environment  # noqa: E402
from assay.launch.engines import describe, storage_bench  # noqa: E402
from assay.launch.launchers import Launcher, find_launcher  # noqa: E402
from assay.launch.stores import DEFAULT_STORE  # noqa: E402

ROUNDS = 7
BUDGET_S = 240.0  # of all cases; what does not fit is said
MIN_ROUNDS = 3
DRAIN_LIMIT_S = 60.0
OF_COPY = 0.75  # the least share of memcpy, of writes at the level "memory"
LEVELS = {level: {"ASSAY_IO_UNTIL": level} for level in (MEMORY, FILE)}


def wait_for_drain(job: str) -> None:
    """What a run has left in memory is not written while the next one is measured."""
    end = time.monotonic() + DRAIN_LIMIT_S
    while stores := list(Path(DEFAULT_STORE).glob(f"assay-io-{job}-*")):
        if time.monotonic() > end:
            raise SystemExit(f"bench: {stores[0]} is still there after {DRAIN_LIMIT_S:.0f} s")
        time.sleep(0.02)


class Clock:
    """Divides the budget among the cases that are left."""

    def __init__(self, cases: int) -> None:
        self.end, self.cases = time.monotonic() + BUDGET_S, cases

    def next_case(self) -> float:
        """When the next case should end, in monotonic seconds."""
        share = (self.end - time.monotonic()) / max(1, self.cases)
        self.cases -= 1
        return time.monotonic() + share


def show(case: Case, launcher: Launcher, variant: str, measured: Mapping[Operation, float]) -> None:
    text = ", ".join(f"{op.title} {rate / 2**20:.0f} MiB/s" for op, rate in measured.items())
    print(f"bench: {launcher.name}, {case.title}, {variant}: {text}", file=sys.stderr)


def bench(launcher: Launcher, case: Case, folder: Path, clock: Clock) -> None:
    ratios: dict[tuple[str, Operation], list[float]] = defaultdict(list)
    of_copy: dict[Operation, list[float]] = defaultdict(list)
    end, rounds = clock.next_case(), 0
    while rounds < MIN_ROUNDS or (rounds < ROUNDS and time.monotonic() < end):
        with tempfile.TemporaryDirectory(prefix="assay-bench-io-", dir=folder) as scratch:
            stock = rates(launcher, case, scratch, None)
            show(case, launcher, "stock", stock)
            for level, settings in LEVELS.items():
                job = secrets.token_hex(6)
                measured = rates(launcher, case, scratch, {**settings, "ASSAY_IO_JOB": job})
                wait_for_drain(job)
                show(case, launcher, f"level {level}", measured)
                for op, rate in measured.items():
                    ratios[level, op].append(rate / stock[op])
                    if level == MEMORY and op.transfer and op.op == "write":
                        of_copy[op].append(rate / copy_rate(op.transfer))
        rounds += 1
    if rounds < ROUNDS:
        print(f"bench: {case.title}: {rounds} rounds instead of {ROUNDS}, for lack of time", file=sys.stderr)
    name = f"io.{launcher.name} {case.title}:"
    for (level, op), values in ratios.items():
        if (level, op.op) in case.limits:
            limit, peer = case.limits[level, op.op], f"{launcher.name} without it"
            figure(f"{name} {op.title} over stock, level {level}", values, limit, "higher", peer=peer)
    for op, values in of_copy.items():
        if not case.on_disk:
            peer = "memcpy into the same memory"
            figure(f"{name} {op.title} over copies, level {MEMORY}", values, OF_COPY, "higher", peer=peer)


def launchers() -> list[Launcher]:
    found = []
    for name in ("openmpi", "mpich"):
        try:
            launcher = find_launcher(name)
            environment(name)
            found.append(launcher)
        except UserError as error:
            print(f"bench: {error}", file=sys.stderr)
    return found


def folder_of(case: Case) -> Path | None:
    return disk_folder() if case.on_disk else Path("/dev/shm")


def main() -> None:
    work = [(launcher, case) for launcher in launchers() for case in CASES]
    clock = Clock(len(work))
    for launcher, case in work:
        folder = folder_of(case)
        if folder is None:
            print(
                f"bench: {case.title}: not measured: no disk; set ASSAY_BENCH_DISK to a folder on one",
                file=sys.stderr,
            )
        elif describe(storage_bench(launcher.flavour)).find(case.command[0]).waived is None:
            bench(launcher, case, folder, clock)
            continue
        clock.next_case()


if __name__ == "__main__":
    main()
