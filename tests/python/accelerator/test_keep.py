"""Kept stores: a later job reads an earlier job's data from memory, but never data that are outdated."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from background import MEMORY, held_drain, kill_drains, wait_until
from durability import (
    BLOCK_BYTES,
    NEVER_DRAIN,
    TESTED,
    assay,
    assay_io_run,
    check_passed,
    expected_block,
    fault_settings,
    has_blocks,
    needs_root,
    program,
    run_case,
    single_store,
)

pytestmark = pytest.mark.programs

KEEP = {"ASSAY_IO_KEEP": "state", "ASSAY_IO_DIRECT": "1"}
mpis = pytest.mark.parametrize("mpi", TESTED)
nodes = pytest.mark.parametrize("ranks_per_node", ["0", "1"], ids=["one-node", "a-node-each"])


def read_faults(folder: Path) -> dict[str, str]:
    """Faults that make reads of the file fail, so that data which are read come from memory."""
    return fault_settings(folder, "read:EIO")


def states(folder: Path) -> list[str]:
    listed = assay("io", "stores", "--json", str(folder)).stdout
    return [json.loads(line)["state"] for line in listed.splitlines()]


@nodes
@mpis
def test_a_later_job_reads_from_memory(mpi: str, ranks_per_node: str, tmp_path: Path, shm: Path) -> None:
    settings = KEEP | {"ASSAY_IO_RANKS_PER_NODE": ranks_per_node}
    check_passed(run_case(mpi, "closed", tmp_path, shm, **settings), "closed")
    assert has_blocks(tmp_path / "data", 1)  # the file system has them as well
    assert set(states(shm)) == {"kept"}
    for _ in range(2):
        check_passed(
            run_case(mpi, "reread", tmp_path, shm, faults=read_faults(tmp_path), **settings), "reread"
        )
    assert set(states(shm)) == {"kept"}


def test_a_file_that_changed_is_read_from_the_file_system(tmp_path: Path, shm: Path) -> None:
    check_passed(run_case("mpich", "closed", tmp_path, shm, **KEEP), "closed")
    with (tmp_path / "data").open("r+b") as data:
        data.write(expected_block(7, 0))
    check_passed(run_case("mpich", "reread-changed", tmp_path, shm, **KEEP), "reread-changed")


def test_another_file_of_that_name_is_read_from_the_file_system(tmp_path: Path, shm: Path) -> None:
    check_passed(run_case("mpich", "closed", tmp_path, shm, **KEEP), "closed")
    status = (tmp_path / "data").stat()
    (tmp_path / "data").rename(tmp_path / "older")
    (tmp_path / "data").write_bytes(expected_block(7, 0) + bytes(BLOCK_BYTES))
    os.utime(tmp_path / "data", ns=(status.st_atime_ns, status.st_mtime_ns))
    check_passed(run_case("mpich", "reread-changed", tmp_path, shm, **KEEP), "reread-changed")


@nodes
@mpis
def test_a_later_job_overwrites_kept_data(mpi: str, ranks_per_node: str, tmp_path: Path, shm: Path) -> None:
    settings = KEEP | {"ASSAY_IO_RANKS_PER_NODE": ranks_per_node}
    check_passed(run_case(mpi, "closed", tmp_path, shm, **settings), "closed")
    check_passed(run_case(mpi, "rewritten", tmp_path, shm, **settings), "rewritten")
    assert has_blocks(tmp_path / "data", 2)


def test_data_of_a_node_that_is_missing_are_not_served(tmp_path: Path, shm: Path) -> None:
    """One of two nodes' stores is dropped. The other may be outdated, so its data are not used."""
    settings = KEEP | {"ASSAY_IO_RANKS_PER_NODE": "1"}
    check_passed(run_case("mpich", "closed", tmp_path, shm, **settings), "closed")
    first, second = sorted(shm.iterdir())
    assert assay("io", "drop", str(second)).returncode == 0 and not second.exists()
    result = run_case("mpich", "reread", tmp_path, shm, faults=read_faults(tmp_path), **settings)
    assert "bad reread" in result.stdout, result.stdout
    check_passed(run_case("mpich", "reread", tmp_path, shm, **settings), "reread")
    assert first.exists()


def test_a_store_is_kept_after_the_background_drain(tmp_path: Path, shm: Path) -> None:
    check_passed(run_case("mpich", "closed", tmp_path, shm, **KEEP, **MEMORY), "closed")
    wait_until(lambda: states(shm) == ["kept"])
    assert has_blocks(tmp_path / "data", 1)
    check_passed(run_case("mpich", "reread", tmp_path, shm, faults=read_faults(tmp_path), **KEEP), "reread")


def test_a_store_of_another_number_of_nodes_is_not_used(tmp_path: Path, shm: Path) -> None:
    """A line reports that the store does not fit the job, and the MPI's own I/O is used."""
    check_passed(run_case("mpich", "closed", tmp_path, shm, **KEEP), "closed")
    fewer = KEEP | {"ASSAY_IO_RANKS_PER_NODE": "1", "ASSAY_IO_REQUIRE": "0"}
    result = run_case("mpich", "reread", tmp_path, shm, **fewer)
    check_passed(result, "reread")
    assert "assay io drop state" in result.stderr and single_store(shm).exists()


# ---- the command line


def test_io_run_keeps_stores_and_io_drop_drops_them(tmp_path: Path, shm: Path) -> None:
    for case, faults in (("closed", {}), ("reread", read_faults(tmp_path))):
        command = [program("mpich"), str(tmp_path), case]
        result = assay_io_run("mpich", shm, command, faults, "--keep", "state")
        check_passed(result, case)
        assert result.stderr == ""
    listed = assay("io", "stores", str(shm)).stdout
    assert "kept as state" in listed and "2 MiB of 1 files" in listed, listed
    recovered = assay("io", "recover", str(shm))
    assert recovered.returncode == 0 and single_store(shm).exists(), recovered.stderr
    wrong = assay("io", "drop", "no-such-name", ASSAY_IO_STORE=str(shm))
    assert wrong.returncode == 2 and len(wrong.stderr.splitlines()) == 1, wrong.stderr
    dropped = assay("io", "drop", "state", ASSAY_IO_STORE=str(shm))
    assert dropped.returncode == 0 and list(shm.iterdir()) == [], dropped.stdout + dropped.stderr


def test_drop_refuses_data_that_are_not_in_the_file_system(tmp_path: Path, shm: Path) -> None:
    run_case("mpich", "closed", tmp_path, shm, **KEEP, **MEMORY, **NEVER_DRAIN, **held_drain(tmp_path))
    in_use = assay("io", "drop", str(single_store(shm)), "--discard")
    assert in_use.returncode == 2 and "in use" in in_use.stderr, in_use.stderr
    kill_drains(shm)
    store = single_store(shm)
    refused = assay("io", "drop", str(store))
    assert refused.returncode == 2 and store.exists() and "--discard" in refused.stderr, refused.stderr
    assert assay("io", "drop", "--discard", str(store)).returncode == 0 and not store.exists()


@needs_root
def test_a_kept_store_of_another_user_is_refused(tmp_path: Path, shm: Path) -> None:
    check_passed(run_case("mpich", "closed", tmp_path, shm, **KEEP), "closed")
    nobody = 65534
    os.chown(single_store(shm), nobody, nobody)
    result = run_case("mpich", "reread", tmp_path, shm, **KEEP, ASSAY_IO_REQUIRE="0")
    check_passed(result, "reread")
    assert "another user" in result.stderr
    assert assay("io", "drop", str(single_store(shm))).returncode == 2 and single_store(shm).exists()
