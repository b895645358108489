"""Runs the cases of tests/engines/durability, plants faults in their file system, and reads their output.

``faulty_fs`` is the library in tests/engines/faulty_fs; its environment is described there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mpi_programs import AS_ROOT, LIMIT_S, MPIRUN, PROGRAMS, ROOT, accelerated, mpi_command, patient, run

FAULTY_FS = ROOT / "build/tests/faulty_fs/libfaulty-fs.so"
# One MPI in the gate. Under the other the same cases belong to acceptance; test_mpiio.py tests in the gate that it is
# accelerated.
in_acceptance = pytest.mark.acceptance("storage")
TESTED = ["mpich", pytest.param("openmpi", marks=in_acceptance)]


def later(*values: object) -> list[Any]:
    """Values of a parameter that belong to acceptance."""
    return [pytest.param(value, marks=in_acceptance) for value in values]


BLOCK_INTS = 1 << 18
BLOCK_BYTES = 4 * BLOCK_INTS
RANKS = 2
NEVER_DRAIN = {"ASSAY_IO_DRAIN_LAG": "100000"}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting and changing owners needs root")


def program(mpi: str) -> str:
    return str(PROGRAMS / f"durability-{mpi}")


def run_case(
    mpi: str,
    name: str,
    folder: Path,
    store: Path | None,
    descriptors: int = 0,
    faults: dict[str, str] | None = None,
    ranks: int = RANKS,
    **extra: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a case, on two ranks by default. ``store``: the folder of stores, None: the MPI's own I/O. ``descriptors``:
    the limit of open descriptors of a rank, 0: the machine's. ``extra``: environment variables."""
    env = accelerated(mpi, store, **extra) if store else patient(mpi) | extra
    env |= faults or {}
    if faults:
        env["LD_PRELOAD"] = ":".join(filter(None, [str(FAULTY_FS), env.get("LD_PRELOAD", "")]))
    command = [program(mpi), str(folder), name]
    if descriptors:
        command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"', *command]
    return run(mpi_command(mpi, ranks, command, env))


def check_passed(result: subprocess.CompletedProcess[str], name: str) -> None:
    """Asserts that the case passed."""
    output = result.stdout + result.stderr
    assert f"ok {name}" in result.stdout.splitlines(), output
    assert result.returncode == 0, output


def fault_settings(folder: Path, rules: str, *, name: str = "data", **settings: str) -> dict[str, str]:
    """The environment of faulty_fs: ``rules`` for the file ``name`` ("": only the log). ``settings`` are its other
    variables, without FAULTY_FS_."""
    variables = {"FAULTY_FS_FILES": str(folder / name)} | ({"FAULTY_FS": rules} if rules else {})
    return variables | {f"FAULTY_FS_{key}": value for key, value in settings.items()}


def error_classes(result: subprocess.CompletedProcess[str], step: str) -> list[str]:
    """The error classes that the ranks have printed for a step, by rank; several if it was repeated."""
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith(f"code {step} ")]
    assert lines, result.stdout + result.stderr
    return [error_class for _, _, _, error_class in sorted(lines, key=lambda line: int(line[2]))]


def expected_block(version: int, rank: int) -> bytes:
    """The block of a rank, as durability.cpp writes it."""
    first = (version * 8 + rank + 1) * BLOCK_INTS
    return array("i", range(first, first + BLOCK_INTS)).tobytes()


def has_blocks(file: Path, version: int, row: int = 0) -> bool:
    """Whether a row of the file has the blocks of all ranks in this version."""
    if not file.exists():
        return False
    with file.open("rb") as data:
        data.seek(row * RANKS * BLOCK_BYTES)
        return all(data.read(BLOCK_BYTES) == expected_block(version, rank) for rank in range(RANKS))


def assay(*args: str, **extra: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **AS_ROOT, "PYTHONPATH": str(ROOT / "python"), **extra}
    return subprocess.run(
        [sys.executable, "-m", "assay", *args], capture_output=True, text=True, timeout=LIMIT_S, env=env
    )


def assay_io_run(
    mpi: str, store: Path, command: list[str], faults: dict[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    """``assay io run`` with faults for the ranks and for the recovery after them."""
    preload = ":".join([str(FAULTY_FS), "$LD_PRELOAD", patient(mpi).get("LD_PRELOAD", "")])
    ranks = ["sh", "-c", f'LD_PRELOAD={preload} exec "$0" "$@"', *command]
    options = ("--store", str(store), "--store-size", "128MiB", *options)
    return assay(
        "io", "run", *options, "--", *MPIRUN[mpi], "-n", str(RANKS), *ranks,
        LD_PRELOAD=str(FAULTY_FS), **faults,
    )  # fmt: skip


def single_store(folder: Path) -> Path:
    """The only store that a job has left."""
    stores = list(folder.iterdir())
    assert len(stores) == 1, stores
    return stores[0]


def kept_store(result: subprocess.CompletedProcess[str], folder: Path) -> Path:
    """The only store that a job has left. The job's output must name it."""
    store = single_store(folder)
    assert str(store) in result.stdout + result.stderr, result.stdout + result.stderr
    return store


@contextmanager
def mounted(kind: str, folder: Path, *options: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", kind, *options, kind, folder], check=True, timeout=LIMIT_S)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True, timeout=LIMIT_S)
