#!/usr/bin/env python3
"""The speedup of the accelerator over the same MPI without it, alternately, 2 ranks on tmpfs, Open MPI and MPICH.

IOR-style transfers of 32 KiB: write and read of the other rank's data, timed without opening and closing, with the
drain held back and with the drain running; the ratio to a plain copy into the same memory; and, without a limit, the
write from opening to closing, when every byte is in the file. Also the solver's snapshots, with a close that does not
wait for the drain and with one that does, and HDF5 writes.

The fastest repetition of each start counts, since it is disturbed least by other work; over the rounds the median of
the ratios within a round."""

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
DETACHED = {"ASSAY_IO_UNTIL": "memory"}  # close does not wait for the drain
HELD_BACK = {"ASSAY_IO_DRAIN_LAG": "60000"}  # ms: the drain begins when the file is closed
IOR = ["storage.ior", "--transfer", "32k", "--block", "96m", "--reorder", "--repetitions", "3"]
SOLVER = ["storage.reaction_diffusion", "--length", "2048", "--steps", "10", "--interval", "1"]
HDF5 = ["storage.hdf5", "--dim-1", "1048576", "--timesteps", "3"]


def records(command: list[str], env: Mapping[str, str]) -> Iterator[dict]:
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=True, env={**os.environ, **env}
    )
    for line in result.stdout.splitlines():
        record = json.loads(line)
        if record["kind"] == "measurement" and "summary" in record:
            yield record


def measure(launcher: Launcher, command: list[str], settings: Mapping[str, str] | None) -> dict[str, float]:
    """The best repetition by metric and operation. ``settings``: the accelerator's environment besides; None: stock."""
    with tempfile.TemporaryDirectory(prefix="assay-bench-io-", dir="/dev/shm") as folder:
        env = {} if settings is None else {**environment(launcher.flavour, store=folder), **settings}
        argv = [str(storage_bench(launcher.flavour)), "run", *command, "--file", f"{folder}/file"]
        argv += ["--accelerated"] if settings is not None else []
        command = launcher.command(HERE, [Segment([socket.gethostname()] * RANKS, env)], argv)
        best_values = {}
        for r in records(command, launcher.environment(HERE)):
            if r["metric"] == "wrong" and r["summary"]["median"]:
                raise SystemExit(f"bench: wrong data with {launcher.name}")
            best = "min" if r["better"] == "lower" else "max"
            best_values[f"{r['params']['op']} {r['metric']}"] = r["summary"][best]
        return best_values


def copy_rate() -> float:
    """B/s of plain copies of 32 KiB into the same memory, by as many threads."""
    command = [
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
    command += [
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
    (rate,) = (r["summary"]["median"] for r in records(command, {}) if r["metric"] == "bandwidth")
    return float(rate)


def bench_transfers(launcher: Launcher) -> None:
    ratios: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        stock = measure(launcher, IOR, None)
        held_back, drained = measure(launcher, IOR, HELD_BACK), measure(launcher, IOR, {})
        ratios["held"].append(held_back["write rate"] / stock["write rate"])
        ratios["drained"].append(drained["write rate"] / stock["write rate"])
        ratios["closed"].append(drained["write bandwidth"] / stock["write bandwidth"])
        ratios["read"].append(held_back["read rate"] / stock["read rate"])
        ratios["copy"].append(held_back["write rate"] * 32768 / copy_rate())
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


def bench_programs(launcher: Launcher) -> None:
    detached, solver, hdf5 = [], [], []
    with_hdf5 = describe(storage_bench(launcher.flavour)).find("storage.hdf5").waived is None
    for _ in range(ROUNDS):
        stock, detached_run, closed = (
            measure(launcher, SOLVER, settings) for settings in (None, DETACHED, {})
        )
        detached.append(stock["write snapshot_time"] / detached_run["write snapshot_time"])
        solver.append(stock["write snapshot_time"] / closed["write snapshot_time"])
        if with_hdf5:
            stock, accelerated = (measure(launcher, HDF5, settings) for settings in (None, HELD_BACK))
            hdf5.append(accelerated["write raw_rate"] / stock["write raw_rate"])
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
        bench_transfers(launcher)
        bench_programs(launcher)


if __name__ == "__main__":
    main()
