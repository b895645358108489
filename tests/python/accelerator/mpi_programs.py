"""Starts MPI programs with and without the accelerator, on one host."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from assay.launch.accelerator import environment
from assay.launch.preload import with_environment

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "build/tests/mpiio"
STANDARD, VISIBILITY = 25, 10  # cases in the two sets of mpiio
PATIENT = ROOT / "build/tests/patient_mpi/libpatient-mpi.so"  # see tests/engines/patient_mpi
LIMIT_S = 240
MPIRUN = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe"],
    "mpich": ["mpirun.mpich"],
    "mpich-wheel": [str(ROOT / ".venv/bin/mpiexec")],
}
MPIS = list(MPIRUN)
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def mpi_command(mpi: str, ranks: int, program: list[str], env: dict[str, str] | None = None) -> list[str]:
    command = [*MPIRUN[mpi], "-n", str(ranks), *program]
    env = {**patient(mpi), **(env or {})}
    return with_environment(command, env)[0] if env else command


def patient(mpi: str, in_front: str = "") -> dict[str, str]:
    """The environment in which ranks wait without spinning, so that tests with more ranks than cores are fast. MPICH
    needs a preloaded library, which follows the library ``in_front``; Open MPI has a setting (AS_ROOT)."""
    libraries = [library for library in (in_front, "" if mpi == "openmpi" else str(PATIENT)) if library]
    return {"LD_PRELOAD": ":".join(libraries)} if libraries else {}


def accelerated(mpi: str, store: Path, **extra: str) -> dict[str, str]:
    """The accelerator's environment; if it cannot accelerate, the program is aborted. It starts with few pages: most
    programs write little."""
    env = environment(mpi, store=str(store), size=128 << 20)
    return env | patient(mpi, env["LD_PRELOAD"]) | {"ASSAY_IO_REQUIRE": "1", "ASSAY_IO_WARM": "0.01"} | extra


def run(command: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **AS_ROOT, **extra}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=env)


def memory_folder() -> Iterator[Path]:
    """A temporary folder in memory, for fixtures."""
    folder = Path(tempfile.mkdtemp(prefix="assay-test-io-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)
