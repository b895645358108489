"""On a local file system, writes go straight into the file where close waits for it anyway; semantics are the same."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from durability import FAULTY_FS, codes, has_blocks, planted, run_case
from mpi_programs import MPIS, PROGRAMS, ROOT, accelerated, memory_folder, mpi_command, run

pytestmark = pytest.mark.programs

BLOCK, TRANSFERS, RANKS = 65536, 16, 2
STANDARD, VISIBILITY = 16, 7  # cases of tests/engines/mpiio
CASES = [mpi for mpi in MPIS if mpi != "mpich-wheel"]


@pytest.fixture
def shm() -> Iterator[Path]:
    yield from memory_folder()


@pytest.fixture
def data(shm: Path) -> Iterator[Path]:
    yield from memory_folder()


def ior(
    mpi: str, data: Path, shm: Path, *options: str, rules: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Writes and reads 16 transfers of 64 KiB on each rank; data/log has the calls of the ranks and the drain."""
    env = accelerated(mpi, shm, **{"ASSAY_IO_DIRECT": "1"} | settings)
    env |= planted(data, rules, LOG=str(data / "log"), name="file*")
    env["LD_PRELOAD"] = f"{FAULTY_FS}:{env['LD_PRELOAD']}"
    program = [
        str(ROOT / f"build/bin/assay-io-bench-{mpi}"),
        "run",
        "storage.ior",
        "--file",
        str(data / "file"),
    ]
    program += [
        "--transfer",
        str(BLOCK),
        "--block",
        str(TRANSFERS * BLOCK),
        "--accelerated",
        "--keep",
        *options,
    ]
    return run(mpi_command(mpi, RANKS, program, env))


def written(data: Path) -> Counter[int]:
    """How many writes there were, by their size."""
    lines = (line.split() for line in (data / "log").read_text().splitlines())
    return Counter(int(line[2]) for line in lines if line[1] == "wrote")


def wrong(result: subprocess.CompletedProcess[str]) -> bool:
    return '"metric":"wrong"' in result.stdout and '"corruption"' in result.stdout


@pytest.mark.parametrize("layout", [[], ["--file-per-process"]], ids=["shared", "own"])
@pytest.mark.parametrize("mpi", CASES)
def test_each_transfer_is_one_write(mpi: str, layout: list[str], data: Path, shm: Path) -> None:
    result = ior(mpi, data, shm, *layout, "--reorder", "--write", "--read", "--check-read")
    assert result.returncode == 0 and not wrong(result), result.stdout + result.stderr
    assert written(data) == {BLOCK: RANKS * TRANSFERS}


@pytest.mark.parametrize(
    "settings",
    [{"ASSAY_IO_DIRECT": "0"}, {"ASSAY_IO_RANKS_PER_NODE": "1"}],
    ids=["switched off", "several nodes"],
)
def test_otherwise_the_drain_writes(settings: dict[str, str], data: Path, shm: Path) -> None:
    """It brings neighbouring transfers together."""
    result = ior(
        "mpich", data, shm, "--write", "--read", "--check-read", ASSAY_IO_DRAIN_LAG="100000", **settings
    )
    assert result.returncode == 0 and not wrong(result), result.stdout + result.stderr
    sizes = written(data)
    assert sum(size * count for size, count in sizes.items()) == RANKS * TRANSFERS * BLOCK
    assert sum(sizes.values()) < RANKS * TRANSFERS


@pytest.mark.parametrize("mpi", CASES)
def test_a_refused_write_fails_at_once(mpi: str, data: Path, shm: Path) -> None:
    result = ior(mpi, data, shm, "--write", rules="write:ENOSPC")
    assert result.returncode == 2 and "cannot write" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("mpi", CASES)
def test_a_failed_fsync_fails_close(mpi: str, data: Path, shm: Path) -> None:
    result = ior(mpi, data, shm, "--write", rules="sync:EIO")
    assert result.returncode == 2 and "cannot close" in result.stdout, result.stdout + result.stderr
    assert "could not be written to the file system: Input/output error; what was written" in result.stderr


def after_a_failed_fsync(mpi: str, name: str, data: Path, shm: Path) -> subprocess.CompletedProcess[str]:
    faults = planted(data, "sync:EDQUOT", WHILE=str(data / "fault"))
    result = run_case(mpi, name, data, shm, faults=faults, ASSAY_IO_DIRECT="1")
    assert f"ok {name}" in result.stdout and set(codes(result, "failing")) == {"quota"}, result.stdout
    assert list(shm.iterdir()) == []
    return result


@pytest.mark.parametrize("mpi", CASES)
def test_after_a_failed_fsync_the_data_must_be_written_again(mpi: str, data: Path, shm: Path) -> None:
    """The kernel calls the data clean, and they are in no store: another fsync proves nothing."""
    result = after_a_failed_fsync(mpi, "written-again", data, shm)
    for step in ("idle", "other", "half"):
        assert set(codes(result, step)) == {"io"}, result.stdout
    for step in ("all", "close"):
        assert set(codes(result, step)) == {"success"}, result.stdout
    assert result.returncode == 0
    assert all(has_blocks(data / "data", version, row) for version, row in ((2, 0), (2, 1), (1, 2)))


def test_what_is_cut_off_need_not_be_written_again(data: Path, shm: Path) -> None:
    result = after_a_failed_fsync("mpich", "cut-off", data, shm)
    assert set(codes(result, "half")) == {"io"}, result.stdout
    assert set(codes(result, "cut")) == set(codes(result, "close")) == {"success"}, result.stdout
    assert result.returncode == 0


@pytest.mark.parametrize(("name", "status"), [("reopened-for-more", 2), ("reopened-for-the-same", 0)])
@pytest.mark.parametrize("mpi", CASES)
def test_close_tells_of_lost_data_and_so_does_the_exit_status(
    mpi: str, name: str, status: int, data: Path, shm: Path
) -> None:
    """A handle that is opened later is not concerned; a program that ignores the error does not end with 0."""
    result = after_a_failed_fsync(mpi, name, data, shm)
    assert set(codes(result, "sync")) == set(codes(result, "close")) == {"success"}, result.stdout
    assert result.returncode == status, result.stderr
    assert (f"{data}/data may lack bytes" in result.stderr) == bool(status), result.stderr


@pytest.mark.parametrize("mpi", CASES)
def test_all_cases_pass(mpi: str, data: Path, shm: Path) -> None:
    """Views with small pieces and atomic mode among them change to the store."""
    env = accelerated(mpi, shm, ASSAY_IO_DIRECT="1")
    result = run(mpi_command(mpi, 3, [str(PROGRAMS / f"mpiio-{mpi}"), str(data)], env))
    outcomes = [line.split(" ", 1) for line in result.stdout.splitlines() if line.startswith(("ok ", "bad "))]
    assert result.returncode == 0 and len(outcomes) == STANDARD + VISIBILITY, result.stdout + result.stderr
    assert not [name for state, name in outcomes if state == "bad"]
    assert list(shm.iterdir()) == []


@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
def test_random_histories(seed: str, data: Path, shm: Path) -> None:
    env = accelerated("mpich", shm, ASSAY_IO_DIRECT="1", ASSAY_IO_SIZE=str(43_000_000))
    command = [str(PROGRAMS / "mpiio-mpich"), str(data), "random-histories"]
    result = run(mpi_command("mpich", 4, command, env), ASSAY_TEST_SEED=seed)
    assert result.stdout == "ok random-histories\n", result.stdout + result.stderr
