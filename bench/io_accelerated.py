#!/usr/bin/env python3
"""What the accelerator gains over the same MPI without it, in turns, 2 ranks on tmpfs, for Open MPI and MPICH.

IOR-style transfers of 32 KiB: write and read of the other rank's data, timed without opening and closing, with the
drain held back and with it running beside; the share of a plain copy into the same memory; and, without a limit, the
write from opening to closing, when every byte is in the file. The solver's snapshots, with a close that leaves the
drain for later and with one that waits for it, and HDF5's writes besides.

Of each start the fastest repetition counts, which is the one that other work has disturbed least; of the rounds the
median ratio of what was measured close together."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import figure  # noqa: E402 - the path comes first

from assay.errors import UserError  # noqa: E402 - the path comes first
from assay.launch.accelerator import environment  # noqa: E402
from assay.launch.engines import describe, probe, storage_bench  # noqa: E402
from assay.launch.launchers import Launcher, find_launcher  # noqa: E402
from assay.launch.placement import HERE, Segment  # noqa: E402

ROUNDS = 5
RANKS = 2
LIMIT_S = 180
DETACHED = {"ASSAY_IO_DETACH": "1"}  # closing does not wait for the drain
HELD_BACK = {"ASSAY_IO_DRAIN_LAG": "60000"}  # ms: it begins when the file is closed
IOR = ["storage.ior", "--transfer", "32k", "--block", "96m", "--reorder", "--repetitions", "3"]
SOLVER = ["storage.reaction_diffusion", "--length", "2048", "--steps", "10", "--interval", "1"]
HDF5 = ["storage.hdf5", "--dim-1", "1048576", "--timesteps", "3"]


def records(words: list[str], env: Mapping[str, str]) -> Iterator[dict]:
    said = subprocess.run(
        words, capture_output=True, text=True, timeout=LIMIT_S, check=True, env={**os.environ, **env}
    )
    for line in said.stdout.splitlines():
        record = json.loads(line)
        if record["kind"] == "measurement" and "summary" in record:
            yield record


def measured(launcher: Launcher, words: list[str], extra: Mapping[str, str] | None) -> dict[str, float]:
    """The best repetition by metric and operation. ``extra``: the accelerator's environment besides; None: stock."""
    with tempfile.TemporaryDirectory(prefix="assay-bench-io-", dir="/dev/shm") as folder:
        env = {} if extra is None else {**environment(launcher.flavour, store=folder), **extra}
        argv = [str(storage_bench(launcher.flavour)), "run", *words, "--file", f"{folder}/file"]
        argv += ["--accelerated"] if extra is not None else []
        command = launcher.command(HERE, [Segment([socket.gethostname()] * RANKS, env)], argv)
        found = {}
        for r in records(command, launcher.environment(HERE)):
            if r["metric"] == "wrong" and r["summary"]["median"]:
                raise SystemExit(f"bench: wrong data with {launcher.name}")
            best = "min" if r["better"] == "lower" else "max"
            found[f"{r['params']['op']} {r['metric']}"] = r["summary"][best]
        return found


def copied() -> float:
    """B/s of plain copies of 32 KiB into the same memory, by as many threads."""
    words = [
        str(probe()),
        "run",
        "storage.device",
        "--path",
        "/dev/shm",
        "--threads",
        str(RANKS),
        "--sizes",
        "32KiB",
    ]
    words += [
        "--op",
        "write",
        "--pattern",
        "sequential",
        "--method",
        "mmap",
        "--budget",
        "0.2",
        "--repeats",
        "3",
    ]
    (rate,) = (r["summary"]["median"] for r in records(words, {}) if r["metric"] == "bandwidth")
    return float(rate)


def of_transfers(launcher: Launcher) -> None:
    ratios: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        stock = measured(launcher, IOR, None)
        held, drained = measured(launcher, IOR, HELD_BACK), measured(launcher, IOR, {})
        ratios["held"].append(held["write rate"] / stock["write rate"])
        ratios["drained"].append(drained["write rate"] / stock["write rate"])
        ratios["closed"].append(drained["write bandwidth"] / stock["write bandwidth"])
        ratios["read"].append(held["read rate"] / stock["read rate"])
        ratios["copy"].append(held["write rate"] * 32768 / copied())
    peer = f"{launcher.name} without it"
    name = f"io.{launcher.name}"
    figure(f"{name} 32 KiB write over stock", ratios["held"], 6.0, "higher", peer=peer)
    figure(f"{name} 32 KiB write over stock, drain running", ratios["drained"], 4.0, "higher", peer=peer)
    figure(
        f"{name} 32 KiB write over stock, until all is in the file",
        ratios["closed"],
        None,
        "higher",
        peer=peer,
    )
    figure(
        f"{name} 32 KiB read of the other rank's data over stock", ratios["read"], 2.5, "higher", peer=peer
    )
    figure(
        f"{name} 32 KiB write over plain copies",
        ratios["copy"],
        0.7,
        "higher",
        peer="memcpy into the same memory",
    )


def of_programs(launcher: Launcher) -> None:
    detached, solver, hdf5 = [], [], []
    with_hdf5 = describe(storage_bench(launcher.flavour)).find("storage.hdf5").waived is None
    for _ in range(ROUNDS):
        stock, later, closed = (measured(launcher, SOLVER, extra) for extra in (None, DETACHED, {}))
        detached.append(stock["write snapshot_time"] / later["write snapshot_time"])
        solver.append(stock["write snapshot_time"] / closed["write snapshot_time"])
        if with_hdf5:
            stock, fast = (measured(launcher, HDF5, extra) for extra in (None, HELD_BACK))
            hdf5.append(fast["write raw_rate"] / stock["write raw_rate"])
    peer = f"{launcher.name} without it"
    figure(f"io.{launcher.name} solver's snapshots over stock", detached, 4.0, "higher", peer=peer)
    figure(
        f"io.{launcher.name} solver's snapshots over stock, until all is in the file",
        solver,
        None,
        "higher",
        peer=peer,
    )
    if hdf5:
        figure(f"io.{launcher.name} HDF5 write over stock", hdf5, 4.0, "higher", peer=peer)


def main() -> None:
    for name in ("openmpi", "mpich"):
        try:
            launcher = find_launcher(name)
            environment(name)
        except UserError as error:
            print(f"bench: {error}", file=sys.stderr)
            continue
        of_transfers(launcher)
        of_programs(launcher)


if __name__ == "__main__":
    main()
