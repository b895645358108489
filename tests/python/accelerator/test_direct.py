"""Direct writes: on a local file system at level file, the accelerator writes into the file and not into a store. The
semantics of MPI-IO must be the same."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from durability import FAULTY_FS, TESTED, error_classes, fault_settings, has_blocks, later, run_case
from mpi_programs import PROGRAMS, ROOT, STANDARD, VISIBILITY, accelerated, mpi_command, run

pytestmark = pytest.mark.programs

BLOCK, TRANSFERS, RANKS = 65536, 16, 2


def ior(
    mpi: str, data: Path, shm: Path, *options: str, rules: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Writes and reads 16 transfers of 64 KiB on each rank; data/log has the calls of the ranks and the drain."""
    env = accelerated(mpi, shm, **{"ASSAY_IO_DIRECT": "1"} | settings)
    env |= fault_settings(data, rules, LOG=str(data / "log"), name="file*")
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


def writes_by_size(data: Path) -> Counter[int]:
    """The number of writes by their size in bytes."""
    lines = (line.split() for line in (data / "log").read_text().splitlines())
    return Counter(int(line[2]) for line in lines if line[1] == "wrote")


def reports_wrong_data(result: subprocess.CompletedProcess[str]) -> bool:
    return '"metric":"wrong"' in result.stdout and '"corruption"' in result.stdout


@pytest.mark.parametrize("layout", [[], ["--file-per-process"]], ids=["shared", "own"])
@pytest.mark.parametrize("mpi", TESTED)
def test_each_transfer_is_one_write(mpi: str, layout: list[str], data: Path, shm: Path) -> None:
    result = ior(mpi, data, shm, *layout, "--reorder", "--write", "--read", "--check-read")
    assert result.returncode == 0 and not reports_wrong_data(result), result.stdout + result.stderr
    assert writes_by_size(data) == {BLOCK: RANKS * TRANSFERS}


@pytest.mark.parametrize(
    "settings",
    [{"ASSAY_IO_DIRECT": "0"}, {"ASSAY_IO_RANKS_PER_NODE": "1"}],
    ids=["switched off", "several nodes"],
)
def test_without_direct_writes_the_drain_merges_transfers(
    settings: dict[str, str], data: Path, shm: Path
) -> None:
    """The drain merges neighbouring transfers, so it needs fewer writes."""
    result = ior(
        "mpich", data, shm, "--write", "--read", "--check-read", ASSAY_IO_DRAIN_LAG="100000", **settings
    )
    assert result.returncode == 0 and not reports_wrong_data(result), result.stdout + result.stderr
    sizes = writes_by_size(data)
    assert sum(size * count for size, count in sizes.items()) == RANKS * TRANSFERS * BLOCK
    assert sum(sizes.values()) < RANKS * TRANSFERS


@pytest.mark.parametrize("mpi", TESTED)
def test_a_refused_write_fails_at_once(mpi: str, data: Path, shm: Path) -> None:
    result = ior(mpi, data, shm, "--write", rules="write:ENOSPC")
    assert result.returncode == 2 and "cannot write" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("mpi", TESTED)
def test_a_failed_fsync_fails_close(mpi: str, data: Path, shm: Path) -> None:
    result = ior(mpi, data, shm, "--write", rules="sync:EIO")
    assert result.returncode == 2 and "cannot close" in result.stdout, result.stdout + result.stderr
    assert "could not be written to the file system: Input/output error; what was written" in result.stderr


def after_a_failed_fsync(mpi: str, name: str, data: Path, shm: Path) -> subprocess.CompletedProcess[str]:
    faults = fault_settings(data, "sync:EDQUOT", WHILE=str(data / "fault"))
    result = run_case(mpi, name, data, shm, faults=faults, ASSAY_IO_DIRECT="1")
    assert f"ok {name}" in result.stdout and set(error_classes(result, "failing")) == {"quota"}, result.stdout
    assert list(shm.iterdir()) == []
    return result


@pytest.mark.parametrize("mpi", TESTED)
def test_after_a_failed_fsync_the_data_must_be_written_again(mpi: str, data: Path, shm: Path) -> None:
    """After a failed fsync the kernel counts the pages as clean, and no store has the data: a later fsync that succeeds
    proves nothing."""
    result = after_a_failed_fsync(mpi, "written-again", data, shm)
    for step in ("idle", "other", "half"):
        assert set(error_classes(result, step)) == {"io"}, result.stdout
    for step in ("all", "close"):
        assert set(error_classes(result, step)) == {"success"}, result.stdout
    assert result.returncode == 0
    assert all(has_blocks(data / "data", version, row) for version, row in ((2, 0), (2, 1), (1, 2)))


def test_truncated_data_need_not_be_written_again(data: Path, shm: Path) -> None:
    result = after_a_failed_fsync("mpich", "cut-off", data, shm)
    assert set(error_classes(result, "half")) == {"io"}, result.stdout
    assert set(error_classes(result, "cut")) == set(error_classes(result, "close")) == {"success"}, (
        result.stdout
    )
    assert result.returncode == 0


@pytest.mark.parametrize("mpi", TESTED)
def test_data_that_the_store_has_need_not_be_written_again(mpi: str, data: Path, shm: Path) -> None:
    """The blocks were written directly, then through the store. The store repeats its writes by itself."""
    result = after_a_failed_fsync(mpi, "overwritten-in-pieces", data, shm)
    for step in ("again", "close"):
        assert set(error_classes(result, step)) == {"success"}, result.stdout + result.stderr
    assert result.returncode == 0 and has_blocks(data / "data", 2)


@pytest.mark.parametrize(("name", "status"), [("reopened-for-more", 2), ("reopened-for-the-same", 0)])
@pytest.mark.parametrize("mpi", TESTED)
def test_lost_data_are_reported_by_close_and_the_exit_status(
    mpi: str, name: str, status: int, data: Path, shm: Path
) -> None:
    """A handle that is opened later reports no error. A program that ignores the error does not exit with 0."""
    result = after_a_failed_fsync(mpi, name, data, shm)
    assert set(error_classes(result, "sync")) == set(error_classes(result, "close")) == {"success"}, (
        result.stdout
    )
    assert result.returncode == status, result.stderr
    assert (f"{data}/data may lack bytes" in result.stderr) == bool(status), result.stderr


@pytest.mark.parametrize("mpi", TESTED)
def test_direct_writes_pass_all_mpiio_cases(mpi: str, data: Path, shm: Path) -> None:
    """Cases with small pieces or atomic mode switch to the store."""
    env = accelerated(mpi, shm, ASSAY_IO_DIRECT="1")
    result = run(mpi_command(mpi, 3, [str(PROGRAMS / f"mpiio-{mpi}"), str(data)], env))
    outcomes = [line.split(" ", 1) for line in result.stdout.splitlines() if line.startswith(("ok ", "bad "))]
    assert result.returncode == 0 and len(outcomes) == STANDARD + VISIBILITY, result.stdout + result.stderr
    assert not [name for state, name in outcomes if state == "bad"]
    assert list(shm.iterdir()) == []


@pytest.mark.parametrize("case", ["largest-offsets", "little-memory"])
@pytest.mark.parametrize("mpi", TESTED)
def test_direct_writes_pass_what_the_mpis_do_not(mpi: str, case: str, data: Path, shm: Path) -> None:
    env = accelerated(mpi, shm, ASSAY_IO_DIRECT="1")
    result = run(mpi_command(mpi, 2, [str(PROGRAMS / f"mpiio-{mpi}"), str(data), case], env))
    assert result.stdout == f"ok {case}\n", result.stdout + result.stderr


@pytest.mark.parametrize("seed", ["1", *later("2", "3", "4")])
def test_random_histories_with_direct_writes(seed: str, data: Path, shm: Path) -> None:
    env = accelerated("mpich", shm, ASSAY_IO_DIRECT="1", ASSAY_IO_SIZE=str(43_000_000))
    command = [str(PROGRAMS / "mpiio-mpich"), str(data), "random-histories"]
    result = run(mpi_command("mpich", 4, command, env), ASSAY_TEST_SEED=seed)
    assert result.stdout == "ok random-histories\n", result.stdout + result.stderr
