#!/usr/bin/env python3
"""The rate of MPI-IO with Assay's I/O accelerator, relative to the same MPI without it ("stock"), with two ranks.

Rates are from open to close, as IOR times them. Stock and accelerated alternate, and a figure is the median of the
ratios over seven rounds. With the level "memory" close returns when the data are in the node's memory, with "file"
when the file system has all of them. Each rank reads what the other rank has written. Writes at the level "memory"
are also compared with memcpy, in the same rounds.

Standard error shows the rates of every round, and of IOR what open, transfers and close took.
"""

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

from figures import exit_code_of, figure, waived  # noqa: E402 - the path comes first
from iocases import CASES, FILE, MEMORY, Case, Operation, Rate, copy_rate, disk_folder, rates  # noqa: E402

from assay.errors import UserError  # noqa: E402 - the path comes first
from assay.launch.accelerator import environment  # noqa: E402
from assay.launch.engines import describe, storage_bench  # noqa: E402
from assay.launch.launchers import Launcher, find_launcher  # noqa: E402
from assay.launch.stores import DEFAULT_STORE  # noqa: E402

ROUNDS = 7
BUDGET_S = 240.0  # of all cases together; a case that runs out of time has fewer rounds, and says so
MIN_ROUNDS = 3
DRAIN_LIMIT_S = 60.0
# The least ratio to memcpy of writes at the level "memory", from open to close, by their bytes.
MIN_COPY_RATIO = {32 << 10: 0.6, 1 << 20: 0.9}
LEVELS = {level: {"ASSAY_IO_UNTIL": level} for level in (MEMORY, FILE)}


def wait_for_drain(job: str) -> None:
    """Waits until the file system has all data of a job, so that its writes do not disturb the next measurement."""
    deadline = time.monotonic() + DRAIN_LIMIT_S
    while stores := list(Path(DEFAULT_STORE).glob(f"assay-io-{job}-*")):
        if time.monotonic() > deadline:
            raise SystemExit(f"bench: {stores[0]} is still there after {DRAIN_LIMIT_S:.0f} s")
        time.sleep(0.02)


class Budget:
    """Divides the remaining time evenly among the remaining cases."""

    def __init__(self, cases: int) -> None:
        self.end, self.cases = time.monotonic() + BUDGET_S, cases

    def next_case(self) -> float:
        """Begins the next case; returns when it should end, in monotonic seconds."""
        share = (self.end - time.monotonic()) / max(1, self.cases)
        self.cases -= 1
        return time.monotonic() + share


def show(case: Case, launcher: Launcher, variant: str, measured: Mapping[Operation, Rate]) -> None:
    texts = []
    for op, rate in measured.items():
        times = [f"{phase.removesuffix('_time')} {s * 1e3:.1f} ms" for phase, s in rate.phases.items()]
        texts.append(
            f"{op.title} {rate.value / 2**20:.0f} MiB/s" + (f" ({', '.join(times)})" if times else "")
        )
    print(f"bench: {launcher.name}, {case.title}, {variant}: {', '.join(texts)}", file=sys.stderr)


def measure_case(launcher: Launcher, case: Case, folder: Path, budget: Budget) -> None:
    ratios: dict[tuple[str, Operation], list[float]] = defaultdict(list)
    copy_ratios: dict[Operation, list[float]] = defaultdict(list)
    deadline, rounds = budget.next_case(), 0
    while rounds < MIN_ROUNDS or (rounds < ROUNDS and time.monotonic() < deadline):
        with tempfile.TemporaryDirectory(prefix="assay-bench-io-", dir=folder) as scratch:
            stock = rates(launcher, case, scratch, None)
            show(case, launcher, "stock", stock)
            for level, settings in LEVELS.items():
                job = secrets.token_hex(6)
                measured = rates(launcher, case, scratch, {**settings, "ASSAY_IO_JOB": job})
                wait_for_drain(job)
                show(case, launcher, f"level {level}", measured)
                for op, rate in measured.items():
                    ratios[level, op].append(rate.value / stock[op].value)
                    if level == MEMORY and op.transfer and op.op == "write":
                        copy_ratios[op].append(rate.value / copy_rate(op.transfer))
        rounds += 1
    if rounds < ROUNDS:
        print(f"bench: {case.title}: out of time after {rounds} of {ROUNDS} rounds", file=sys.stderr)
    name = f"io.{launcher.name} {case.title}:"
    for (level, op), values in ratios.items():
        if (level, op.op) in case.limits:
            limit, peer = case.limits[level, op.op], f"{launcher.name} without the accelerator"
            figure(f"{name} {op.title} over stock, level {level}", values, limit, "higher", peer=peer)
    for op, values in copy_ratios.items():
        if not case.on_disk:
            peer = "memcpy into the same memory"
            limit = MIN_COPY_RATIO[op.transfer]
            figure(f"{name} {op.title} over copies, level {MEMORY}", values, limit, "higher", peer=peer)


def launchers() -> list[Launcher]:
    """The MPIs with which the accelerator can be measured here; standard error says why others cannot."""
    available = []
    for name in ("openmpi", "mpich"):
        try:
            launcher = find_launcher(name)
            environment(name)
            available.append(launcher)
        except UserError as error:
            waived(f"io.{name} ", str(error))
    return available


def folder_of(case: Case) -> Path | None:
    return disk_folder() if case.on_disk else Path("/dev/shm")


def main() -> None:
    work = [(launcher, case) for launcher in launchers() for case in CASES]
    budget = Budget(len(work))
    for launcher, case in work:
        folder = folder_of(case)
        if folder is None:
            waived(f"io.{launcher.name} {case.title}:", "no disk; set ASSAY_BENCH_DISK to a folder on one")
        elif reason := describe(storage_bench(launcher.flavour)).find(case.command[0]).waived:
            waived(f"io.{launcher.name} {case.title}:", reason)
        else:
            measure_case(launcher, case, folder, budget)
            continue
        budget.next_case()  # its time goes to the other cases


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
