"""``assay io run``, recovery after it, and errors: aborted programs, leftover stores, impossible settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from background import held_drain, wait_until
from durability import in_acceptance
from mpi_programs import (
    AS_ROOT,
    LIMIT_S,
    MPIRUN,
    PROGRAMS,
    ROOT,
    accelerated,
    mpi_command,
    run,
)

pytestmark = pytest.mark.programs

WRITER = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Writes blocks that identify rank and number, until killed; each rank logs the blocks that it has written. */
int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, blocks = atoi(argv[2]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File f;
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f);
    long block[512];
    char name[4096];
    snprintf(name, sizeof name, "%s.log.%d", argv[1], rank);
    FILE* log = fopen(name, "w");
    for (long k = 0; blocks < 0 || k < blocks; ++k) {
        for (int w = 0; w < 512; ++w) block[w] = k * 1000 + rank + 1;
        MPI_Offset offset = (k * 2 + rank) * (MPI_Offset)sizeof block;
        MPI_File_write_at(f, offset, block, sizeof block, MPI_BYTE, MPI_STATUS_IGNORE);
        fprintf(log, "%ld\n", k);
        fflush(log);
        if (k % 100 == 99) usleep(1000);
    }
    if (argc > 3) {
        MPI_Barrier(MPI_COMM_WORLD); /* the launcher kills the other rank: it has written all */
        abort();
    }
    MPI_File_close(&f);
    MPI_Finalize();
    return 0;
}
"""


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writer")
    (folder / "writer.c").write_text(WRITER)
    subprocess.run(["mpicc.mpich", "-o", folder / "writer", folder / "writer.c"], check=True, timeout=120)
    return folder / "writer"


def assay(*args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **AS_ROOT, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run(
        [sys.executable, "-m", "assay", *args], capture_output=True, text=True, timeout=LIMIT_S, env=env
    )


def check_blocks(file: Path, rank: int, blocks: int) -> None:
    """The first ``blocks`` blocks of a rank are in the file and complete."""
    with file.open("rb") as data:
        for k in range(blocks):
            data.seek((k * 2 + rank) * 4096)
            assert data.read(4096) == (k * 1000 + rank + 1).to_bytes(8, "little") * 512, (rank, k)


def test_a_program_runs_and_its_file_is_complete(writer: Path, tmp_path: Path, shm: Path) -> None:
    file = tmp_path / "out"
    result = assay("io", "run", "--store", str(shm), "--store-size", "64MiB", "--require", "--",
                 *MPIRUN["mpich"], "-n", "2", str(writer), str(file), "500")  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    check_blocks(file, 0, 500)
    check_blocks(file, 1, 500)
    assert file.stat().st_size == 1000 * 4096 and list(shm.iterdir()) == []


def test_an_aborted_program_loses_no_acknowledged_write(writer: Path, tmp_path: Path, shm: Path) -> None:
    file = tmp_path / "out"
    result = assay("io", "run", "--store", str(shm), "--store-size", "64MiB", "--",
                 *MPIRUN["mpich"], "-n", "2", str(writer), str(file), "300", "abort")  # fmt: skip
    assert result.returncode != 0
    check_blocks(file, 0, 300)
    check_blocks(file, 1, 300)
    assert list(shm.iterdir()) == []


@in_acceptance  # killed at any moment; test_recovery.py kills ranks at known ones
@pytest.mark.parametrize("after_s", [0.05, 0.2, 0.5])
def test_acknowledged_writes_of_killed_ranks_are_recovered(
    writer: Path, tmp_path: Path, shm: Path, after_s: float
) -> None:
    """kill -9 of a rank; its launcher ends the other. Then ``assay io recover``."""
    file = tmp_path / "out"
    command = mpi_command("mpich", 2, [str(writer), str(file), "-1"], accelerated("mpich", shm))
    job = subprocess.Popen(command, env={**os.environ, **AS_ROOT}, stderr=subprocess.DEVNULL)
    logs = [tmp_path / f"out.log.{rank}" for rank in (0, 1)]
    deadline = time.monotonic() + LIMIT_S
    while not all(path.exists() and path.stat().st_size for path in logs) and time.monotonic() < deadline:
        time.sleep(0.01)  # until both have begun
    time.sleep(after_s)
    pgrep = subprocess.run(
        ["pgrep", "-f", f"{writer} {file} -1"], capture_output=True, text=True, timeout=LIMIT_S
    )
    ranks = [int(pid) for pid in pgrep.stdout.split() if int(pid) != job.pid]
    for pid in ranks[-1:]:
        os.kill(pid, signal.SIGKILL)
    job.wait(timeout=LIMIT_S)
    (store,) = shm.iterdir()
    result = assay("io", "recover", str(store), "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["torn"] == 0
    for rank in (0, 1):
        lines = logs[rank].read_text().split("\n")
        check_blocks(file, rank, len(lines) - 1)
    assert list(shm.iterdir()) == []


def store_listed(shm: Path) -> dict[str, Any]:
    """What ``assay io stores`` says of the only store of a folder."""
    listed: dict[str, Any] = json.loads(assay("io", "stores", "--json", str(shm)).stdout)
    return listed


def test_io_run_until_memory_leaves_the_file_to_the_drain(writer: Path, tmp_path: Path, shm: Path) -> None:
    file = tmp_path / "out"
    settings = {"ASSAY_IO_DRAIN_LAG": "100000"} | held_drain(tmp_path, "out")
    options = [word for name, value in settings.items() for word in ("-genv", name, value)]
    command = [*MPIRUN["mpich"], *options, "-n", "2", str(writer), str(file), "200"]
    result = assay(
        "io", "run", "--store", str(shm), "--store-size", "64MiB", "--until", "memory", "--", *command
    )
    # The last message of the job may wake the drain, whose first error the job may see.
    assert result.returncode == (2 if "No space left" in result.stderr else 0), result.stderr
    assert "assay io drain" in result.stderr and file.stat().st_size == 0
    listed = store_listed(shm)
    assert (listed["state"], listed["bytes"]) == ("draining", 400 * 4096)
    wait_until(lambda: any(file["error"] for file in store_listed(shm)["files"]))
    late = assay("io", "drain", "--timeout", "0.1s", str(shm))
    assert late.returncode == 2 and "No space left" in late.stderr, late.stderr
    (tmp_path / "fault").unlink()
    assert assay("io", "drain", str(shm)).returncode == 0
    check_blocks(file, 0, 200)
    check_blocks(file, 1, 200)
    assert list(shm.iterdir()) == []


def test_files_outside_the_patterns_are_not_accelerated(writer: Path, tmp_path: Path, shm: Path) -> None:
    file = tmp_path / "other.bin"
    command = [
        *MPIRUN["mpich"],
        "-genv",
        "ASSAY_IO_DRAIN_LAG",
        "100000",
        "-n",
        "2",
        str(writer),
        str(file),
        "100",
    ]
    result = assay("io", "run", "--store", str(shm), "--until", "memory", "--files", "*.h5", "--", *command)
    assert result.returncode == 0
    assert file.stat().st_size == 200 * 4096  # written by the MPI itself, not by a drain
    assert list(shm.iterdir()) == []


# ---- impossible settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ASSAY_IO_SIZE": "4M"}, "is too small for 2 ranks"),
        ({"ASSAY_IO_STORE": "/no/such/place"}, "there is no folder"),
        ({"ASSAY_IO_STORE": "/proc/version"}, "cannot be"),
        ({"ASSAY_IO_SIZE": "much"}, "a size such as 512M or 64G is expected"),
        ({"ASSAY_IO_UNTIL": "tape"}, "memory or file is expected"),
        ({"ASSAY_IO_DETACH": "1"}, "is not used any more"),
        ({"ASSAY_IO_CONSISTENCY": "soon"}, "immediate, collective or commit is expected"),
    ],
)
def test_impossible_settings_fall_back_to_the_mpis_own_io(
    writer: Path, tmp_path: Path, shm: Path, options: dict[str, str], message: str
) -> None:
    file = tmp_path / "out"
    env = accelerated("mpich", shm) | {"ASSAY_IO_REQUIRE": "0"} | options
    result = run(mpi_command("mpich", 2, [str(writer), str(file), "50"], env))
    assert result.returncode == 0
    assert result.stderr.count("assay io:") == 1 and message in result.stderr
    assert "the MPI's own I/O is used" in result.stderr
    check_blocks(file, 1, 50)
    # With ASSAY_IO_REQUIRE the program is aborted.
    required = run(
        mpi_command("mpich", 2, [str(writer), str(tmp_path / "none"), "50"], env | {"ASSAY_IO_REQUIRE": "1"})
    )
    assert required.returncode != 0 and not (tmp_path / "none").exists()


def test_ranks_with_different_settings_use_the_mpis_own_io(writer: Path, tmp_path: Path, shm: Path) -> None:
    env = accelerated("mpich", shm) | {"ASSAY_IO_REQUIRE": "0"}
    file = str(tmp_path / "out")
    first, second = (
        ["-n", "1", "env", f"ASSAY_IO_SIZE={size}", str(writer), file, "50"] for size in ("64M", "32M")
    )
    passed = [word for name, value in env.items() for word in ("-genv", name, value)]
    result = run([*MPIRUN["mpich"], *passed, *first, ":", *second])
    assert result.returncode == 0 and "different settings (ASSAY_IO_*)" in result.stderr
    check_blocks(Path(file), 1, 50)


def test_the_library_of_another_mpi_is_refused(writer: Path, tmp_path: Path, shm: Path) -> None:
    env = accelerated("openmpi", shm)
    result = run(mpi_command("mpich", 2, [str(writer), str(tmp_path / "out"), "50"], env))
    assert result.returncode != 0 and not (tmp_path / "out").exists()
    assert "this library is for Open MPI" in result.stderr and "MPICH" in result.stderr


def test_a_process_without_mpi_is_unaffected(shm: Path) -> None:
    for mpi in ("openmpi", "mpich"):
        result = run(
            ["env", *(f"{k}={v}" for k, v in accelerated(mpi, shm).items()), "sh", "-c", "echo hello"]
        )
        assert (result.returncode, result.stdout, result.stderr) == (0, "hello\n", "")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["io", "run"], "no program given"),
        (["io", "run", "--", "/no/such/program"], "cannot run /no/such/program"),
        (["io", "run", "--", "true"], "cannot tell which MPI"),
        (["io", "run", "--mpi", "mvapich", "--", "true"], "the accelerator for mvapich is not built"),
        (["io", "recover", "/etc/hostname"], "/etc/hostname is not a store of Assay"),
        (["io", "recover", "/no/such/store"], "cannot be opened"),
    ],
)
def test_bad_input_is_one_line(command: list[str], message: str) -> None:
    result = assay(*command)
    assert result.returncode == 2 and message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_doctor_lists_memory_mpis_and_stores(shm: Path) -> None:
    result = assay("io", "doctor", "--json")
    doctor = json.loads(result.stdout)
    assert result.returncode == 0 and {"openmpi", "mpich", "mpich-wheel"} <= set(doctor["mpis"])
    (memory,) = [backend for backend in doctor["backends"] if backend["path"] == "/dev/shm"]
    assert (memory["kind"], memory["persistent"], memory["hindrance"]) == ("memory", False, "")
    assert PROGRAMS.is_dir()
