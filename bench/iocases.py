"""The cases of io_accelerated.py, and the function that runs a case once and returns its rates from open to close."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay.launch.accelerator import environment
from assay.launch.engines import probe, storage_bench
from assay.launch.launchers import Launcher
from assay.launch.placement import HERE, Segment
from assay.records.units import format_size

RANKS = 2
LIMIT_S = 60
PHASES = ("open_time", "transfer_time", "close_time")  # metrics of IOR, s
OPEN_TO_CLOSE = ("bandwidth", "observed_rate")  # metrics: of IOR and of the solver; of HDF5
MEMORY, FILE = "memory", "file"


@dataclass(frozen=True)
class Case:
    """A benchmark's command line. ``limits``: the least ratio to stock by (level, operation)."""

    title: str
    command: tuple[str, ...]
    limits: Mapping[tuple[str, str], float]
    on_disk: bool = False

    @property
    def is_ior(self) -> bool:
        return self.command[0] == "storage.ior"


def ior(*options: str) -> tuple[str, ...]:
    """Both transfer sizes in one start, one after the other."""
    return "storage.ior", "--transfer", "32k,1m", "--block", "48m", "--reorder", *options


TMPFS = {(MEMORY, "write"): 4.0, (MEMORY, "read"): 2.0, (FILE, "write"): 0.95, (FILE, "read"): 0.95}
DISK = {(FILE, "write"): 1.0}
PROGRAM = {(MEMORY, "write"): 3.0, (FILE, "write"): 0.95}
STRIDED = ("storage.ior", "--transfer", "32k", "--block", "32k", "--segments", "1536", "--reorder")

CASES = (
    Case("shared file", ior(), TMPFS),
    Case("file per process", ior("--file-per-process"), TMPFS),
    Case("strided shared file", STRIDED, {(MEMORY, "write"): 4.0, (FILE, "write"): 2.0}),
    Case("shared file on disk with fsync", ior("--fsync"), DISK, on_disk=True),
    Case("file per process on disk with fsync", ior("--fsync", "--file-per-process"), DISK, on_disk=True),
    Case("solver", ("storage.reaction_diffusion", "--length", "1024", "--steps", "8", "--interval", "1"), PROGRAM),
    Case("HDF5", ("storage.hdf5", "--dim-1", "524288", "--timesteps", "3"), PROGRAM),
)  # fmt: skip


@dataclass(frozen=True)
class Operation:
    op: str  # write or read
    transfer: int = 0  # bytes; 0: the program's own

    @property
    def title(self) -> str:
        return f"{format_size(self.transfer)} {self.op}" if self.transfer else self.op


def records(command: list[str], env: Mapping[str, str]) -> Iterator[dict]:
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env={**os.environ, **env}
    )
    if result.returncode:
        raise SystemExit(f"bench: exit {result.returncode} of {' '.join(command)}: {result.stderr[-500:]}")
    for line in result.stdout.splitlines():
        record = json.loads(line)
        if record["kind"] == "measurement" and "summary" in record:
            yield record


@dataclass
class Rate:
    """``value``: B/s from open to close. ``phases``: of IOR, the time in s of each of PHASES."""

    value: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)


def rates(
    launcher: Launcher, case: Case, folder: str, settings: Mapping[str, str] | None
) -> dict[Operation, Rate]:
    """``settings``: the accelerator's environment; None: stock."""
    env = {} if settings is None else {**environment(launcher.flavour, required=True), **settings}
    argv = [str(storage_bench(launcher.flavour)), "run", *case.command, "--file", f"{folder}/file"]
    argv += [] if settings is None else ["--accelerated"]
    command = launcher.command(HERE, [Segment([socket.gethostname()] * RANKS, env)], argv)
    by_operation: dict[Operation, Rate] = defaultdict(Rate)
    for record in records(command, launcher.environment(HERE)):
        if record["metric"] == "wrong" and record["summary"]["median"]:
            raise SystemExit(f"bench: wrong data, {case.title}, {launcher.name}")
        if record["metric"] in OPEN_TO_CLOSE + PHASES:
            params = record["params"]
            rate = by_operation[Operation(params["op"], params.get("transfer", 0) if case.is_ior else 0)]
            median = record["summary"]["median"]
            if record["metric"] in PHASES:
                rate.phases[record["metric"]] = median
            else:
                rate.value = median
    return by_operation


def copy_rate(transfer: int) -> float:
    """B/s of memcpy into shared memory by RANKS threads."""
    command = [str(probe()), "run", "storage.device", "--path", "/dev/shm", "--threads", str(RANKS)]
    command += ["--sizes", str(transfer), "--op", "write", "--pattern", "sequential", "--method", "mmap"]
    command += ["--budget", "0.2", "--repeats", "3"]
    (rate,) = (r["summary"]["median"] for r in records(command, {}) if r["metric"] == "bandwidth")
    return float(rate)


def disk_folder() -> Path | None:
    """A folder on a disk: $ASSAY_BENCH_DISK, else the build folder. None if its file system is in memory."""
    folder = Path(os.environ.get("ASSAY_BENCH_DISK") or Path(__file__).resolve().parents[1] / "build")
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True)
    return None if kind.stdout.strip() in ("tmpfs", "ramfs") else folder
