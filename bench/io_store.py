#!/usr/bin/env python3
"""The overhead of the accelerator's store: starting a program with a store of 64 GiB, and recovering a million extents.

The start is the time of a program that opens, writes and closes a file of 64 KiB, minus that of the same program
without the accelerator. The recovery writes extents of 512 B in a scattered order from the store of a dead job into a
file on the same tmpfs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure, waived  # noqa: E402 - the path comes first

from assay.errors import UserError  # noqa: E402 - the path comes first
from assay.launch.accelerator import environment  # noqa: E402
from assay.launch.engines import storage_bench  # noqa: E402
from assay.launch.launchers import Launcher, find_launcher  # noqa: E402
from assay.launch.placement import HERE, Segment  # noqa: E402

BIN = ROOT / "build/bin"
ROUNDS = 5
RANKS = 2
LIMIT_S = 120
ROOT_NEEDED = "a tmpfs of its own needs root"
STORE_BYTES = 64 << 30
EXTENTS, EXTENT_BYTES = 1_000_000, 512
TINY = ["storage.ior", "--transfer", "32k", "--block", "32k", "--repetitions", "1"]


def run(command: list[str], env: Mapping[str, str] | None = None) -> tuple[str, float]:
    """The program's output and its time in seconds."""
    start_time = time.monotonic()
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={**os.environ, **(env or {})},
    )
    return result.stdout, time.monotonic() - start_time


def repeat(seconds: Callable[[], float]) -> list[float]:
    return [seconds() for _ in range(ROUNDS)]


def start_cost(launcher: Launcher, folder: str) -> float:
    """The additional time of a program with the accelerator, in seconds."""
    argv = [str(storage_bench(launcher.flavour)), "run", *TINY, "--file", f"{folder}/file"]
    seconds = []
    for env in ({}, environment(launcher.flavour, store=folder, size=STORE_BYTES, required=True)):
        command = launcher.command(HERE, [Segment([socket.gethostname()] * RANKS, env)], argv)
        seconds.append(run(command, launcher.environment(HERE))[1])
    return seconds[1] - seconds[0]


def recovery_seconds(folder: str) -> float:
    """The time of ``assay-store recover`` on a store that a killed job has left."""
    target = Path(folder, "file")
    store, _ = run([str(BIN / "bench-leftover"), folder, str(target), str(EXTENTS), str(EXTENT_BYTES)])
    result, seconds = run([str(BIN / "assay-store"), "recover", store.strip()])
    assert json.loads(result)["records"] == EXTENTS and target.stat().st_size == EXTENTS * EXTENT_BYTES
    assert b"\0" not in target.read_bytes()  # every extent has arrived
    target.unlink()
    return seconds


def main() -> None:
    if os.geteuid() != 0:
        waived("io.openmpi start", ROOT_NEEDED)
        waived("io.mpich start", ROOT_NEEDED)
        waived("io recovery", ROOT_NEEDED)
        return
    with tempfile.TemporaryDirectory(prefix="assay-bench-io-", dir="/dev/shm") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100g", "assay-bench", folder], check=True)
        try:
            for mpi in ("openmpi", "mpich"):
                try:
                    launcher = find_launcher(mpi)
                    environment(mpi)
                except UserError as error:
                    waived(f"io.{mpi} start", str(error))
                    continue
                starts = repeat(partial(start_cost, launcher, folder))
                figure(
                    f"io.{mpi} start with a store of 64 GiB",
                    starts,
                    0.5,
                    "lower",
                    "s",
                    "the same program without it",
                )
            figure(
                "io recovery of a million extents",
                repeat(partial(recovery_seconds, folder)),
                1.0,
                "lower",
                "s",
            )
        finally:
            subprocess.run(["umount", folder], check=True)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
