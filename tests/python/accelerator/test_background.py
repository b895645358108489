"""Level memory: close returns when the stores have the data. A background drain that outlives the job writes the
files."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from background import (
    MEMORY,
    STORE_TOOL,
    drains_of,
    faulty_drain,
    held_drain,
    kill_drains,
    wait_for_end,
    wait_until,
)
from durability import (
    NEVER_DRAIN,
    RANKS,
    TESTED,
    assay,
    check_passed,
    error_classes,
    fault_settings,
    has_blocks,
    mounted,
    needs_root,
    run_case,
    single_store,
)
from mpi_programs import LIMIT_S, PROGRAMS

pytestmark = pytest.mark.programs

mpis = pytest.mark.parametrize("mpi", TESTED)


@pytest.fixture
def held(tmp_path: Path) -> dict[str, str]:
    return held_drain(tmp_path)


@mpis
def test_the_background_drain_completes_the_file(mpi: str, tmp_path: Path, shm: Path) -> None:
    result = run_case(mpi, "closed", tmp_path, shm, **MEMORY, **NEVER_DRAIN)
    check_passed(result, "closed")
    wait_for_end(shm)
    assert has_blocks(tmp_path / "data", 1)


def run_held(mpi: str, held: dict[str, str], tmp_path: Path, shm: Path) -> str:
    """Runs a job that closes its file while drains cannot write it. Returns its standard error. The job exits with 2 if
    it has seen the drain's error."""
    result = run_case(mpi, "closed", tmp_path, shm, **MEMORY, **NEVER_DRAIN, **held)
    assert set(error_classes(result, "close")) == {"success"}, result.stdout + result.stderr
    assert result.returncode == 0 or "No space left" in result.stderr, result.stderr
    assert (tmp_path / "data").stat().st_size == 0
    return result.stderr


@mpis
def test_close_does_not_wait_for_the_file_system(
    mpi: str, held: dict[str, str], tmp_path: Path, shm: Path
) -> None:
    assert "assay io drain" in run_held(mpi, held, tmp_path, shm)
    (tmp_path / "fault").unlink()
    assert assay("io", "drain", str(single_store(shm))).returncode == 0
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


def test_close_waits_for_the_file_by_default(held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    check_passed(run_case("mpich", "closed", tmp_path, shm, **NEVER_DRAIN, **held), "closed")
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


# ---- names change after close


@mpis
def test_a_file_renamed_after_close_receives_its_data(
    mpi: str, held: dict[str, str], tmp_path: Path, shm: Path
) -> None:
    """The data reach the file that was closed, and not the one that has its name now."""
    run_held(mpi, held, tmp_path, shm)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").rename(tmp_path / "elsewhere/moved")
    (tmp_path / "data").write_bytes(b"another file")
    (tmp_path / "fault").unlink()
    wait_for_end(shm)
    assert has_blocks(tmp_path / "elsewhere/moved", 1)
    assert (tmp_path / "data").read_bytes() == b"another file"


def test_data_of_a_file_unlinked_after_close_are_dropped(
    held: dict[str, str], tmp_path: Path, shm: Path
) -> None:
    """Nobody can read an unlinked file, so no data are left to write."""
    run_held("mpich", held, tmp_path, shm)
    (tmp_path / "data").unlink()
    wait_for_end(shm)
    assert not (tmp_path / "data").exists()


# ---- drains that fail, or are killed


@mpis
def test_data_of_a_killed_drain_are_recovered(
    mpi: str, held: dict[str, str], tmp_path: Path, shm: Path
) -> None:
    run_held(mpi, held, tmp_path, shm)
    kill_drains(shm)
    store = single_store(shm)
    listed = json.loads(assay("io", "stores", "--json", str(store)).stdout)
    assert listed["state"] == "left" and listed["bytes"] == 2 << 20
    assert assay("io", "recover", str(store)).returncode == 0
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


def test_the_job_writes_the_file_if_its_drain_is_killed(tmp_path: Path, shm: Path) -> None:
    """The next close waits for the file system, as the job's end does."""
    kill = f"kill -9 $(pgrep -f 'assay-store background {shm}')"
    script = tmp_path / "drain.sh"
    script.write_text(f'#!/bin/sh\n{STORE_TOOL} "$@" && {kill}\n')
    script.chmod(0o755)
    settings = MEMORY | NEVER_DRAIN | {"ASSAY_IO_DRAIN_PROGRAM": str(script)}
    check_passed(run_case("mpich", "closed", tmp_path, shm, **settings), "closed")
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


@mpis
def test_the_background_drain_starts_with_the_job(mpi: str, tmp_path: Path, shm: Path) -> None:
    """No open waits for it. This job opens no file for writing, and its drain ends with it."""
    script = tmp_path / "drain.sh"
    script.write_text(f'#!/bin/sh\ntouch {tmp_path}/started\nexec {STORE_TOOL} "$@"\n')
    script.chmod(0o755)
    settings = MEMORY | {"ASSAY_IO_REQUIRE": "0", "ASSAY_IO_DRAIN_PROGRAM": str(script)}
    check_passed(run_case(mpi, "read-proc", tmp_path, shm, **settings), "read-proc")
    assert (tmp_path / "started").exists()
    wait_for_end(shm)


def test_the_job_writes_the_file_if_its_drain_cannot_start(tmp_path: Path, shm: Path) -> None:
    settings = MEMORY | NEVER_DRAIN | {"ASSAY_IO_DRAIN_PROGRAM": "/bin/false"}
    result = run_case("mpich", "closed", tmp_path, shm, **settings)
    check_passed(result, "closed")
    assert "no background drain" in result.stderr
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


@needs_root
@mpis
def test_a_drain_into_a_full_file_system_keeps_the_data(mpi: str, tmp_path: Path, shm: Path) -> None:
    """The drain tries again for a second, then gives up. The store keeps the data, and the reason is reported."""
    with mounted("tmpfs", tmp_path / "small", "-o", "size=1m") as small:
        result = run_case(mpi, "closed", small, shm, **MEMORY, **NEVER_DRAIN, ASSAY_IO_RETRY="1")
        assert set(error_classes(result, "close")) == {"success"}
        wait_until(lambda: not drains_of(shm))
        store = single_store(shm)
        assert "No space left" in assay("io", "stores", str(store)).stdout
        refused = assay("io", "drain", str(store))
        assert refused.returncode == 2 and store.exists(), refused.stdout + refused.stderr
        assert "No space left" in refused.stderr
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True, timeout=LIMIT_S)
        assert assay("io", "drain", str(store)).returncode == 0
        assert has_blocks(small / "data", 1) and list(shm.iterdir()) == []


@mpis
def test_the_drain_goes_on_after_all_ranks_are_killed(mpi: str, tmp_path: Path, shm: Path) -> None:
    """The drain is a process of its own."""
    result = run_case(mpi, "abandoned", tmp_path, shm, **MEMORY, **NEVER_DRAIN)
    assert result.returncode != 0
    wait_for_end(shm)
    assert has_blocks(tmp_path / "data", 1)


# ---- several nodes


def run_superseded(mpi: str, tmp_path: Path, shm: Path) -> None:
    """Runs a job of two nodes, each of which has older data of the other's block. No fsync succeeds."""
    faults = fault_settings(tmp_path, "sync:EIO", WHILE=str(tmp_path / "fault"))
    settings = MEMORY | NEVER_DRAIN | {"ASSAY_IO_RANKS_PER_NODE": "1"} | faulty_drain(tmp_path, faults)
    result = run_case(mpi, "superseded", tmp_path, shm, faults=faults, **settings)
    assert set(error_classes(result, "first")) == {"success"}, result.stdout + result.stderr
    assert set(error_classes(result, "second")) == {"io"}, result.stdout + result.stderr
    assert "may be old" not in result.stderr, result.stderr


@pytest.mark.parametrize("reverse", [False, True], ids=["first-node-first", "first-node-last"])
@mpis
def test_nodes_are_recovered_in_any_order(mpi: str, reverse: bool, tmp_path: Path, shm: Path) -> None:
    """Both nodes write all their data again. The newer bytes stay."""
    run_superseded(mpi, tmp_path, shm)
    kill_drains(shm)
    (tmp_path / "fault").unlink()
    stores = sorted(shm.iterdir(), reverse=reverse)
    assert len(stores) == 2
    for store in stores:
        assert assay("io", "recover", str(store)).returncode == 0
    assert has_blocks(tmp_path / "data", 2) and list(shm.iterdir()) == []


@mpis
def test_drains_of_nodes_have_no_order(mpi: str, tmp_path: Path, shm: Path) -> None:
    run_superseded(mpi, tmp_path, shm)
    (tmp_path / "fault").unlink()
    wait_for_end(shm)
    assert has_blocks(tmp_path / "data", 2)


# ---- other jobs


@pytest.mark.parametrize("same_store_folder", [True, False], ids=["same-store-folder", "another-one"])
@mpis
def test_another_job_sees_the_data(mpi: str, same_store_folder: bool, tmp_path: Path, shm: Path) -> None:
    """The second job waits for the drain of the file that it opens. The drain writes when both ranks have the file
    open."""
    (tmp_path / "fault").touch()
    held = faulty_drain(tmp_path, fault_settings(tmp_path, "write:HOLD", WHILE=str(tmp_path / "fault")))
    check_passed(run_case(mpi, "closed", tmp_path, shm, **MEMORY, **NEVER_DRAIN, **held), "closed")
    assert (tmp_path / "data").stat().st_size == 0
    with ThreadPoolExecutor(1) as pool:
        store = shm if same_store_folder else tmp_path
        second = pool.submit(run_case, mpi, "reread", tmp_path, store)
        try:
            wait_until(lambda: second.done() or ranks_with(tmp_path / "data") == RANKS)
            assert not second.done(), second.result()
        finally:
            (tmp_path / "fault").unlink()
        check_passed(second.result(), "reread")
    wait_for_end(shm)


def ranks_with(file: Path) -> int:
    """The number of ranks that have the file open."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            is_rank = (process / "cmdline").read_bytes().startswith(bytes(PROGRAMS))
            count += is_rank and str(file) in [os.readlink(entry) for entry in (process / "fd").iterdir()]
    return count


def test_another_job_gets_an_error_if_nobody_drains(held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    run_held("mpich", held, tmp_path, shm)
    kill_drains(shm)
    store = single_store(shm)
    result = run_case("mpich", "reread", tmp_path, shm)
    assert "bad reread" in result.stdout and f"assay io drain {store}" in result.stderr, result.stderr
    assert assay("io", "drain", str(store)).returncode == 0
    check_passed(run_case("mpich", "reread", tmp_path, shm), "reread")


@needs_root
def test_a_store_of_another_user_is_not_waited_for(held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    """The store's statements about the file are not trusted. The job reads the file as it is in the file system."""
    run_held("mpich", held, tmp_path, shm)
    kill_drains(shm)
    os.chown(single_store(shm), 65534, 65534)
    result = run_case("mpich", "reread", tmp_path, shm)
    assert "bad reread" in result.stdout and "cannot be opened" not in result.stderr, result.stderr


# ---- the info key


@mpis
@pytest.mark.parametrize(
    ("job", "key", "level"),
    [("file", "memory", "memory"), ("memory", "file", "file")],
    ids=["memory", "file"],
)
def test_the_info_key_overrides_the_jobs_setting(
    mpi: str, job: str, key: str, level: str, held: dict[str, str], tmp_path: Path, shm: Path
) -> None:
    """At level file, close returns the error of the file system. At level memory, close does not wait for it."""
    result = run_with_info(mpi, f"assay_io_until={key}", held, tmp_path, shm, ASSAY_IO_UNTIL=job)
    assert set(error_classes(result, "level")) == {level}, result.stdout + result.stderr
    assert set(error_classes(result, "close")) == {"success" if level == "memory" else "no-space"}, (
        result.stderr
    )
    assert "info key" not in result.stderr


@mpis
def test_an_unknown_level_means_file(mpi: str, held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    """One rank passes an unknown level. One line reports it, and the file is opened."""
    result = run_with_info(mpi, "assay_io_until=memoyr", held, tmp_path, shm, **MEMORY, INFO_RANKS="1")
    assert set(error_classes(result, "level")) == {"file"}, result.stdout + result.stderr
    assert set(error_classes(result, "close")) == {"no-space"}, result.stderr
    messages = [line for line in result.stderr.splitlines() if "info key assay_io_until=memoyr" in line]
    assert len(messages) == 1 and "memory or file is expected; file is used" in messages[0], result.stderr


def test_ranks_with_different_info_keys_use_the_mpis_own_io(tmp_path: Path, shm: Path) -> None:
    """The rank without the key does not wait for the other one."""
    result = run_with_info("mpich", "assay_io=disable", {}, tmp_path, shm, INFO_RANKS="1")
    check_passed(result, "closed-with-info")
    assert set(error_classes(result, "level")) == {"none"} and has_blocks(tmp_path / "data", 1)


@pytest.mark.parametrize("ranks_per_node", ["0", "1"], ids=["one-node", "a-node-each"])
@mpis
def test_the_mpis_own_io_has_what_was_closed_at_level_memory(
    mpi: str, ranks_per_node: str, tmp_path: Path, shm: Path
) -> None:
    """And what it writes is what the job reads afterwards."""
    settings = {**NEVER_DRAIN, "ASSAY_IO_RANKS_PER_NODE": ranks_per_node}
    check_passed(run_case(mpi, "opened-without-store", tmp_path, shm, **settings), "opened-without-store")


def run_with_info(
    mpi: str, keys: str, held: dict[str, str], tmp_path: Path, shm: Path, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Runs a job with MPI info keys. With ``held`` the same fault is planted for the ranks, which write the file
    themselves at level file."""
    faults = fault_settings(tmp_path, "write:ENOSPC", WHILE=str(tmp_path / "fault")) if held else None
    settings = {"INFO_KEYS": keys, **NEVER_DRAIN, **held, **extra}
    return run_case(mpi, "closed-with-info", tmp_path, shm, faults=faults, **settings)
