"""``assay io run`` does the program no harm: on a full file system of the store, with limits on files, beside files of
strangers, with the user's own libraries, and with programs that the accelerator cannot be loaded into."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from durability import TESTED, assay, needs_root
from mpi_programs import AS_ROOT, LIMIT_S, MPIRUN, ROOT, accelerated, mpi_command, run
from mpich_ranks import lingering
from unloadable_programs import KINDS, unloadable_program

pytestmark = pytest.mark.programs

# Rank 0 fills the space of the store with data, then rank 1 writes so many small records that new pages of its ring of
# records are touched.
FILLER = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void check(int code, const char* call) {
    if (!code) return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s: %s\n", call, text);
    MPI_Abort(MPI_COMM_WORLD, 4);
}
static void write_at(MPI_File file, MPI_Offset at, const char* data, int bytes) {
    check(MPI_File_write_at(file, at, data, bytes, MPI_BYTE, MPI_STATUS_IGNORE), "write");
}
int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t block = 1 << 20;
    char* data = malloc(block);
    memset(data, 'A', block);
    MPI_File file;
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    for (int k = 0; rank == 0 && k < 60; ++k) write_at(file, (MPI_Offset)k * block, data, block);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; rank == 1 && k < 3000; ++k) write_at(file, 100000000 + k * 512, data, 512);
    check(MPI_File_close(&file), "close");
    MPI_Finalize();
    return 0;
}
"""
ABORT = """
#include <mpi.h>
int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Abort(MPI_COMM_WORLD, 3);
}
"""
NOTHING = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    puts("done");
    MPI_Finalize();
    return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


def compiled(folder: Path, name: str, source: str, compiler: str = "gcc", *options: str) -> Path:
    program = folder / name
    if not program.exists():
        program.with_suffix(".c").write_text(source)
        command = [compiler, *options, "-o", program, program.with_suffix(".c")]
        subprocess.run(command, check=True, timeout=LIMIT_S)
    return program


def mpi_program(folder: Path, name: str, source: str) -> Path:
    return compiled(folder, f"{name}-mpich", source, "mpicc.mpich")


def in_shell(script: str, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a script, in which "$@" is ``assay``."""
    return subprocess.run(
        ["bash", "-c", script, "bash", sys.executable, "-m", "assay", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **AS_ROOT, "PYTHONPATH": str(ROOT / "python"), **env},
    )


# ---- space and limits


@needs_root
def test_a_full_tmpfs_does_not_end_the_program(folder: Path, tmp_path: Path, shm: Path) -> None:
    program, file = mpi_program(folder, "filler", FILLER), tmp_path / "out"
    mount = f'mount -t tmpfs -o size=60m tmpfs {shm} && exec "$@"'
    result = in_shell(
        f"exec unshare -m bash -c '{mount}' bash \"$@\"",
        "io", "run", "--store", shm, "--store-size", "128MiB", "--", *MPIRUN["mpich"], "-n", "2", program, file,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    expected = b"A" * (60 << 20) + bytes(100000000 - (60 << 20)) + b"A" * (3000 * 512)
    found = file.read_bytes()
    wrong = np.flatnonzero(np.frombuffer(found, np.uint8) != np.frombuffer(expected, np.uint8)[: len(found)])
    assert (len(found), wrong[:3].tolist()) == (len(expected), []), f"{len(wrong)} bytes; {result.stderr}"


@pytest.mark.parametrize(("limit_kib", "told"), [(20000, "ulimit -f"), (50000, "by the limit on the size")])
def test_a_limit_on_the_size_of_files_does_not_end_the_program(
    limit_kib: int, told: str, folder: Path, shm: Path
) -> None:
    program = mpi_program(folder, "nothing", NOTHING)
    result = in_shell(
        f'ulimit -f {limit_kib}; exec "$@"',
        "io", "run", "--store", shm, "--store-size", "64MiB", "--", *MPIRUN["mpich"], "-n", "1", program,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    assert told in result.stderr and len(result.stderr.splitlines()) == 1
    assert list(shm.iterdir()) == []


# ---- programs that end early


def lock_store(shm: Path) -> str:
    """The lines of a shell that locks the only store of a folder as its processes do, until all that it starts have
    ended."""
    return f"exec 9<$(echo {shm}/assay-io-*) && flock --shared 9"


def test_an_aborted_program_leaves_no_empty_store(folder: Path, shm: Path) -> None:
    """A process of the job ends after the launcher: it holds the store's lock a while."""
    abort = f"{' '.join(MPIRUN['mpich'])} -n 2 {mpi_program(folder, 'abort', ABORT)}"
    script = f"{abort}; status=$?; {lock_store(shm)}; sleep 1 & exit $status"
    result = assay("io", "run", "--mpi", "mpich", "--store", str(shm), "--store-size", "64MiB", "--",
                   "bash", "-c", script)  # fmt: skip
    assert result.returncode == 3, result.stdout + result.stderr
    assert list(shm.iterdir()) == []
    assert "assay io:" not in result.stderr, result.stderr


def test_a_program_that_ends_while_its_store_is_made_leaves_none(shm: Path) -> None:
    script = f"touch {shm}/assay-io-$ASSAY_IO_JOB-0 {shm}/assay-io-another-0; exit 3"
    result = assay("io", "run", "--mpi", "mpich", "--store", str(shm), "--", "sh", "-c", script)
    assert result.returncode == 3, result.stderr
    assert [path.name for path in shm.iterdir()] == ["assay-io-another-0"]


def test_the_next_job_removes_the_empty_store_of_an_aborted_one(folder: Path, shm: Path) -> None:
    """On most nodes of a job no ``assay io run`` waits for it."""
    env = accelerated("mpich", shm)
    aborted = run(mpi_command("mpich", 2, [str(mpi_program(folder, "abort", ABORT))], env))
    (store,) = shm.iterdir()
    assert aborted.returncode == 3, aborted.stderr
    subprocess.run(
        ["flock", "--wait", str(LIMIT_S), store, "true"], check=True
    )  # until its processes have ended
    after = run(mpi_command("mpich", 2, [str(mpi_program(folder, "nothing", NOTHING))], env))
    assert after.returncode == 0, after.stderr
    assert list(shm.iterdir()) == []


@pytest.mark.acceptance("storage")  # waits for its limit of 10 s
def test_a_store_that_stays_in_use_is_named(folder: Path, shm: Path) -> None:
    abort = f"{' '.join(MPIRUN['mpich'])} -n 2 {mpi_program(folder, 'abort', ABORT)}"
    script = f"{abort}; {lock_store(shm)}; sleep 60 >/dev/null 2>&1 & exit 3"
    result = assay("io", "run", "--mpi", "mpich", "--store", str(shm), "--store-size", "64MiB", "--",
                   "bash", "-c", script)  # fmt: skip
    (store,) = shm.iterdir()
    assert result.returncode == 3
    assert f"{store}: a process of the program still uses it; 0 B are not in the file system" in result.stderr
    assert f"assay io recover {store}" in result.stderr
    subprocess.run(["fuser", "-k", store], capture_output=True, timeout=LIMIT_S)


# ---- libraries


@pytest.mark.parametrize("mpi", TESTED)
def test_the_users_own_library_stays(mpi: str, folder: Path, shm: Path) -> None:
    own = compiled(folder, "own.so", "int own_library;", "gcc", "-shared", "-fPIC")
    command = [*MPIRUN[mpi], "-n", "1", *lingering("sh", "-c", 'echo "$LD_PRELOAD"')]
    result = assay("io", "run", "--store", str(shm), "--", *command, LD_PRELOAD=str(own))
    first, second = result.stdout.strip().split(":")
    assert Path(first).name == f"libassay-io-{mpi}.so" and second == str(own), result.stderr


@pytest.fixture(params=KINDS)
def unloadable(request: pytest.FixtureRequest, folder: Path) -> tuple[Path, str]:
    return unloadable_program(request.param, folder)


@pytest.mark.parametrize("place", ["command", "rank", "child of a shell", "child of a rank"])
@pytest.mark.parametrize("mpi", TESTED)
def test_programs_that_cannot_be_accelerated_run_unchanged(
    mpi: str, place: str, unloadable: tuple[Path, str], shm: Path
) -> None:
    program, reason = unloadable
    command = {
        "command": [str(program)],
        "rank": [*MPIRUN[mpi], "-n", "1", str(program)],
        "child of a shell": ["sh", "-c", f"{program}; {program}; exit 7"],
        # One rank: a launcher may end the others when the first one has failed.
        "child of a rank": [*MPIRUN[mpi], "-n", "1", "sh", "-c", f"{program}; {program}; exit 7"],
    }[place]
    runs = 1 if place in ("command", "rank") else 2
    result = assay("io", "run", "--mpi", mpi, "--store", str(shm), "--", *command, LD_PRELOAD="")
    assert result.returncode == 7, result.stdout + result.stderr
    assert result.stdout.count("ran with ''\n") == runs
    told = [line for line in result.stderr.splitlines() if line.startswith("assay io:")]
    assert len(told) == 1 and reason in told[0] and str(program) in told[0], result.stderr


def test_one_rank_names_the_program_for_all(unloadable: tuple[Path, str], shm: Path) -> None:
    program, reason = unloadable
    ranks = [*MPIRUN["mpich"], "-n", "2", "sh", "-c", f"{program}; exit 0"]
    result = assay("io", "run", "--mpi", "mpich", "--store", str(shm), "--", *ranks, LD_PRELOAD="")
    assert result.returncode == 0 and result.stdout.count("ran with ''\n") == 2, result.stderr
    assert result.stderr.count("assay io:") == 1 and reason in result.stderr


def test_require_refuses_a_program_that_cannot_be_accelerated(
    unloadable: tuple[Path, str], shm: Path
) -> None:
    program, reason = unloadable
    result = assay("io", "run", "--require", "--store", str(shm), "--", "mpirun", "-n", "1", str(program))
    assert result.returncode == 2 and "ran" not in result.stdout
    assert reason in result.stderr and len(result.stderr.splitlines()) == 1
