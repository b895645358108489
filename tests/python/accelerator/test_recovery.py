"""``assay io recover`` writes the data that a job left in its stores. It overwrites no later change of a file, and
discards data only with ``--discard``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from background import MEMORY, await_release, held_drain, kill_drains
from durability import (
    FAULTY_FS,
    NEVER_DRAIN,
    TESTED,
    assay,
    check_passed,
    fault_settings,
    has_blocks,
    kept_store,
    later,
    needs_root,
    program,
    run_case,
    single_store,
)
from mpi_programs import MPIRUN
from test_io_faults import assert_synced, read_log

pytestmark = pytest.mark.programs

OTHERS = b"written by another run" * 1000


def abandon(tmp_path: Path, shm: Path, case: str = "abandoned", mpi: str = "mpich") -> Path:
    """The store of a job whose ranks were killed before anything was drained. Its file is tmp_path/data."""
    result = run_case(mpi, case, tmp_path, shm, **NEVER_DRAIN)
    assert result.returncode != 0
    assert (tmp_path / "data").stat().st_size == 0
    await_release(shm)
    return single_store(shm)


def overwrite(file: Path) -> None:
    """Another run writes into the same file."""
    with file.open("r+b") as data:
        data.write(OTHERS)


@pytest.mark.parametrize("mpi", TESTED)
def test_recovery_writes_the_data_of_killed_ranks(mpi: str, tmp_path: Path, shm: Path) -> None:
    store = abandon(tmp_path, shm, mpi=mpi)
    result = assay("io", "recover", str(store))
    assert result.returncode == 0 and has_blocks(tmp_path / "data", 1), result.stderr
    assert not store.exists()


# ---- files that were changed, moved or deleted


def test_a_file_that_changed_is_not_overwritten(tmp_path: Path, shm: Path) -> None:
    file = tmp_path / "data"
    store = abandon(tmp_path, shm)
    overwrite(file)
    result = assay("io", "recover", str(store))
    assert file.read_bytes() == OTHERS
    assert result.returncode == 2 and store.exists(), result.stdout + result.stderr
    assert str(file) in result.stderr and "changed" in result.stderr and "--force" in result.stderr
    again = assay("io", "recover", str(store))
    assert again.returncode == 2 and file.read_bytes() == OTHERS


def test_force_overwrites_a_file_that_changed(tmp_path: Path, shm: Path) -> None:
    file = tmp_path / "data"
    store = abandon(tmp_path, shm)
    overwrite(file)
    result = assay("io", "recover", "--force", str(store))
    assert result.returncode == 0 and has_blocks(file, 1), result.stderr
    assert not store.exists()


@pytest.mark.parametrize("replaced", [False, True], ids=["gone", "replaced"])
def test_data_of_a_moved_file_are_kept(replaced: bool, tmp_path: Path, shm: Path) -> None:
    """The file is moved to another folder. Another file may have its name."""
    file = tmp_path / "data"
    store = abandon(tmp_path, shm)
    (tmp_path / "elsewhere").mkdir()
    file.rename(tmp_path / "elsewhere/data")
    if replaced:
        file.write_bytes(OTHERS)
    result = assay("io", "recover", str(store))
    assert result.returncode == 2 and store.exists(), result.stdout + result.stderr
    assert str(file) in result.stderr and "--discard" in result.stderr
    assert file.exists() == replaced and (not replaced or file.read_bytes() == OTHERS)
    (tmp_path / "elsewhere/data").replace(file)
    result = assay("io", "recover", str(store))
    assert result.returncode == 0 and has_blocks(file, 1), result.stderr


@pytest.mark.parametrize("replaced", [False, True], ids=["alone", "replaced"])
def test_a_renamed_file_is_found_in_its_folder(replaced: bool, tmp_path: Path, shm: Path) -> None:
    file = tmp_path / "data"
    store = abandon(tmp_path, shm)
    file.rename(tmp_path / "renamed")
    if replaced:
        file.write_bytes(OTHERS)
    result = assay("io", "recover", str(store))
    assert result.returncode == 0 and has_blocks(tmp_path / "renamed", 1), result.stderr
    assert not store.exists() and (not replaced or file.read_bytes() == OTHERS)


def test_discard_drops_data_of_a_deleted_file(tmp_path: Path, shm: Path) -> None:
    store = abandon(tmp_path, shm)
    (tmp_path / "data").unlink()
    result = assay("io", "recover", "--discard", str(store))
    assert result.returncode == 0 and not store.exists(), result.stderr
    assert list(tmp_path.iterdir()) == []


def test_recovery_writes_one_file_if_the_other_was_deleted(tmp_path: Path, shm: Path) -> None:
    """One of two files is deleted. The other is written, and only data of the deleted file remain in the store."""
    store = abandon(tmp_path, shm, "two-abandoned")
    (tmp_path / "other").unlink()
    result = assay("io", "recover", str(store))
    assert result.returncode == 2 and has_blocks(tmp_path / "data", 1), result.stderr
    overwrite(tmp_path / "data")
    assay("io", "recover", str(store))
    assert (tmp_path / "data").read_bytes().startswith(OTHERS)  # data are recovered only once
    listed = json.loads(assay("io", "stores", "--json", str(store)).stdout)
    assert [file["path"] for file in listed["files"]] == [str(tmp_path / "other")]


def leave_closed(mpi: str, tmp_path: Path, shm: Path) -> Path:
    """The store of a job that has closed its file at level memory. Its background drain was killed."""
    run_case(mpi, "closed", tmp_path, shm, **MEMORY, **NEVER_DRAIN, **held_drain(tmp_path))
    kill_drains(shm)
    return single_store(shm)


@pytest.mark.parametrize("mpi", TESTED)
def test_a_file_renamed_after_its_drain_was_killed_is_recovered(mpi: str, tmp_path: Path, shm: Path) -> None:
    store = leave_closed(mpi, tmp_path, shm)
    (tmp_path / "data").rename(tmp_path / "renamed")
    result = assay("io", "recover", str(store))
    assert result.returncode == 0 and not store.exists(), result.stdout + result.stderr
    assert has_blocks(tmp_path / "renamed", 1) and str(tmp_path / "renamed") in result.stdout


@pytest.mark.parametrize("mpi", TESTED)
def test_a_file_moved_after_its_drain_was_killed_is_named(mpi: str, tmp_path: Path, shm: Path) -> None:
    file = tmp_path / "data"
    store = leave_closed(mpi, tmp_path, shm)
    (tmp_path / "elsewhere").mkdir()
    file.rename(tmp_path / "elsewhere/data")
    result = assay("io", "drain", str(store))
    assert result.returncode == 2 and store.exists(), result.stdout + result.stderr
    assert str(file) in result.stderr
    (tmp_path / "elsewhere/data").rename(file)
    assert assay("io", "drain", str(store)).returncode == 0
    assert has_blocks(file, 1)


@pytest.mark.parametrize(("place", "status"), [("renamed", 0), ("elsewhere/data", 2)])
def test_io_run_recovers_a_renamed_file_and_names_a_moved_one(
    place: str, status: int, tmp_path: Path, shm: Path
) -> None:
    """A file that was renamed in its folder is recovered. A file that was moved is not, and ``assay io run`` exits with
    2."""
    (tmp_path / "elsewhere").mkdir()
    ranks = " ".join([*MPIRUN["mpich"], "-genv", "ASSAY_IO_DRAIN_LAG", "100000", "-n", "2", program("mpich")])
    script = f"{ranks} {tmp_path} abandoned >{tmp_path}/log 2>&1; mv {tmp_path}/data {tmp_path}/{place}"
    result = assay(
        "io", "run", "--mpi", "mpich", "--store", str(shm), "--store-size", "128MiB", "--", "sh", "-c", script
    )
    assert result.returncode == status, result.stdout + result.stderr
    if status:
        kept_store(result, shm)
    else:
        assert has_blocks(tmp_path / place, 1) and list(shm.iterdir()) == []


def test_a_program_without_faults_leaves_nothing_to_recover(tmp_path: Path, shm: Path) -> None:
    check_passed(run_case("mpich", "closed", tmp_path, shm), "closed")
    assert list(shm.iterdir()) == []
    result = assay("io", "recover", str(shm))
    assert (result.returncode, result.stderr) == (0, "no stores found\n")


# ---- stores of other users


@needs_root
@pytest.mark.parametrize("verb", ["recover", *later("drain")])
def test_a_store_of_another_user_is_refused(verb: str, tmp_path: Path, shm: Path) -> None:
    """A store names the files that recovery writes, so root must not trust another user's store."""
    nobody = 65534
    store = abandon(tmp_path, shm)
    os.chown(store, nobody, nobody)
    result = assay("io", verb, str(store))
    assert result.returncode == 2 and store.exists(), result.stdout + result.stderr
    assert (tmp_path / "data").stat().st_size == 0
    assert len(result.stderr.splitlines()) == 1 and str(store) in result.stderr and "own" in result.stderr
    os.chown(store, 0, 0)
    assert assay("io", verb, str(store)).returncode == 0 and has_blocks(tmp_path / "data", 1)


# ---- file systems that fail


def test_the_store_is_removed_after_fsync(tmp_path: Path, shm: Path) -> None:
    store, log = abandon(tmp_path, shm), tmp_path / "log"
    faults = fault_settings(tmp_path, "", LOG=str(log))
    assert assay("io", "recover", str(store), LD_PRELOAD=str(FAULTY_FS), **faults).returncode == 0
    calls = read_log(log)
    assert sum(size for _, call, size in calls if call == "wrote") >= 2 << 20
    assert_synced(calls, len(calls))


@pytest.mark.parametrize("rule", ["write:EIO", "sync:EIO", *later("write:EDQUOT", "open:EACCES")])
def test_a_recovery_that_fails_keeps_the_store(rule: str, tmp_path: Path, shm: Path) -> None:
    store = abandon(tmp_path, shm)
    result = assay("io", "recover", str(store), LD_PRELOAD=str(FAULTY_FS), **fault_settings(tmp_path, rule))
    assert result.returncode == 2 and store.exists(), result.stdout + result.stderr
    assert str(tmp_path / "data") in result.stderr or str(store) in result.stderr
    again = assay("io", "recover", str(store))  # what the failed recovery itself wrote is no change by others
    assert again.returncode == 0 and has_blocks(tmp_path / "data", 1), again.stderr
