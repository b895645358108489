"""Level memory: close returns when the stores have the data; a background drain that outlives the job does the rest."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from background import (
    MEMORY,
    STORE_TOOL,
    drains_of,
    faulty_drain,
    held_drain,
    kill_drains,
    store_folder,
    wait_for_end,
    wait_until,
)
from durability import (
    NEVER_DRAIN,
    TESTED,
    assay,
    check,
    codes,
    has_blocks,
    mounted,
    needs_root,
    planted,
    run_case,
    the_store,
)

pytestmark = pytest.mark.programs

mpis = pytest.mark.parametrize("mpi", TESTED)


@pytest.fixture
def shm() -> Iterator[Path]:
    yield from store_folder()


@pytest.fixture
def held(tmp_path: Path) -> dict[str, str]:
    return held_drain(tmp_path)


@mpis
def test_the_file_is_complete_after_the_program(mpi: str, tmp_path: Path, shm: Path) -> None:
    result = run_case(mpi, "closed", tmp_path, shm, **MEMORY, **NEVER_DRAIN)
    check(result, "closed")
    wait_for_end(shm)
    assert has_blocks(tmp_path / "data", 1)


def run_held(mpi: str, held: dict[str, str], tmp_path: Path, shm: Path) -> str:
    """What a job says that closes its file while drains cannot write it. It exits with 2 if it has seen their error."""
    result = run_case(mpi, "closed", tmp_path, shm, **MEMORY, **NEVER_DRAIN, **held)
    assert set(codes(result, "close")) == {"success"}, result.stdout + result.stderr
    assert result.returncode == 0 or "No space left" in result.stderr, result.stderr
    assert (tmp_path / "data").stat().st_size == 0
    return result.stderr


@mpis
def test_close_does_not_wait_for_the_file_system(
    mpi: str, held: dict[str, str], tmp_path: Path, shm: Path
) -> None:
    assert "assay io drain" in run_held(mpi, held, tmp_path, shm)
    (tmp_path / "fault").unlink()
    assert assay("io", "drain", str(the_store(shm))).returncode == 0
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


def test_the_default_is_the_file(held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    check(run_case("mpich", "closed", tmp_path, shm, **NEVER_DRAIN, **held), "closed")
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


# ---- names change after close


@mpis
def test_a_file_is_renamed_after_close(mpi: str, held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    """The data reach the file that was closed, and not the one that has its name now."""
    run_held(mpi, held, tmp_path, shm)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").rename(tmp_path / "elsewhere/moved")
    (tmp_path / "data").write_bytes(b"another file")
    (tmp_path / "fault").unlink()
    wait_for_end(shm)
    assert has_blocks(tmp_path / "elsewhere/moved", 1)
    assert (tmp_path / "data").read_bytes() == b"another file"


def test_a_file_is_unlinked_after_close(held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    """Nobody can read it, so nothing is left to write."""
    run_held("mpich", held, tmp_path, shm)
    (tmp_path / "data").unlink()
    wait_for_end(shm)
    assert not (tmp_path / "data").exists()


# ---- drains that fail, or are killed


@mpis
def test_the_drain_is_killed(mpi: str, held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    run_held(mpi, held, tmp_path, shm)
    kill_drains(shm)
    store = the_store(shm)
    listed = json.loads(assay("io", "stores", "--json", str(store)).stdout)
    assert listed["state"] == "left" and listed["bytes"] == 2 << 20
    assert assay("io", "recover", str(store)).returncode == 0
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


def test_the_drain_is_killed_while_the_job_runs(tmp_path: Path, shm: Path) -> None:
    """The next close waits for the file system, as the job's end does."""
    kill = f"kill -9 $(pgrep -f 'background {shm}')"
    script = tmp_path / "drain.sh"
    script.write_text(f'#!/bin/sh\n{STORE_TOOL} "$@" && {kill}\n')
    script.chmod(0o755)
    settings = MEMORY | NEVER_DRAIN | {"ASSAY_IO_DRAIN_PROGRAM": str(script)}
    check(run_case("mpich", "closed", tmp_path, shm, **settings), "closed")
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


def test_a_drain_that_cannot_start(tmp_path: Path, shm: Path) -> None:
    settings = MEMORY | NEVER_DRAIN | {"ASSAY_IO_DRAIN_PROGRAM": "/bin/false"}
    result = run_case("mpich", "closed", tmp_path, shm, **settings)
    check(result, "closed")
    assert "no background drain" in result.stderr
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == []


@needs_root
@mpis
def test_the_file_system_is_full(mpi: str, tmp_path: Path, shm: Path) -> None:
    """The drain tries again for a second, then gives up. Nothing is lost, and the reason is said."""
    with mounted("tmpfs", tmp_path / "small", "-o", "size=1m") as small:
        result = run_case(mpi, "closed", small, shm, **MEMORY, **NEVER_DRAIN, ASSAY_IO_RETRY="1")
        assert set(codes(result, "close")) == {"success"}
        wait_until(lambda: not drains_of(shm))
        store = the_store(shm)
        assert "No space left" in assay("io", "stores", str(store)).stdout
        refused = assay("io", "drain", str(store))
        assert refused.returncode == 2 and store.exists(), refused.stdout + refused.stderr
        assert "No space left" in refused.stderr
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True, timeout=60)
        assert assay("io", "drain", str(store)).returncode == 0
        assert has_blocks(small / "data", 1) and list(shm.iterdir()) == []


@mpis
def test_all_ranks_are_killed(mpi: str, tmp_path: Path, shm: Path) -> None:
    """The drain goes on by itself."""
    result = run_case(mpi, "abandoned", tmp_path, shm, **MEMORY, **NEVER_DRAIN)
    assert result.returncode != 0
    wait_for_end(shm)
    assert has_blocks(tmp_path / "data", 1)


# ---- other jobs


@pytest.mark.parametrize("same_place", [True, False], ids=["same-store-folder", "another-one"])
@mpis
def test_another_job_sees_the_data(mpi: str, same_place: bool, tmp_path: Path, shm: Path) -> None:
    """It waits for the drain of the file that it opens, which takes 3 s."""
    slow = faulty_drain(tmp_path, planted(tmp_path, "write:SLEEP3000"))
    check(run_case(mpi, "closed", tmp_path, shm, **MEMORY, **NEVER_DRAIN, **slow), "closed")
    assert (tmp_path / "data").stat().st_size == 0
    check(run_case(mpi, "reread", tmp_path, shm if same_place else tmp_path), "reread")
    wait_for_end(shm)


def test_another_job_gets_an_error_if_nobody_drains(held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    run_held("mpich", held, tmp_path, shm)
    kill_drains(shm)
    store = the_store(shm)
    result = run_case("mpich", "reread", tmp_path, shm)
    assert "bad reread" in result.stdout and f"assay io drain {store}" in result.stderr, result.stderr
    assert assay("io", "drain", str(store)).returncode == 0
    check(run_case("mpich", "reread", tmp_path, shm), "reread")


@needs_root
def test_a_store_of_another_user_is_not_waited_for(held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    """What it says of the file is not believed. The file is as the file system has it."""
    run_held("mpich", held, tmp_path, shm)
    kill_drains(shm)
    os.chown(the_store(shm), 65534, 65534)
    result = run_case("mpich", "reread", tmp_path, shm)
    assert "bad reread" in result.stdout and "cannot be opened" not in result.stderr, result.stderr


# ---- the info key


@mpis
@pytest.mark.parametrize(
    ("job", "key", "level"),
    [("file", "memory", "memory"), ("memory", "file", "file")],
    ids=["memory", "file"],
)
def test_the_info_key_is_stronger_than_the_job(
    mpi: str, job: str, key: str, level: str, held: dict[str, str], tmp_path: Path, shm: Path
) -> None:
    """At level file close tells the error of the file system; at level memory it does not wait for it."""
    result = run_with_info(mpi, f"assay_io_until={key}", held, tmp_path, shm, ASSAY_IO_UNTIL=job)
    assert set(codes(result, "level")) == {level}, result.stdout + result.stderr
    assert set(codes(result, "close")) == {"success" if level == "memory" else "no-space"}, result.stderr
    assert "info key" not in result.stderr


@mpis
def test_an_unknown_level_means_file(mpi: str, held: dict[str, str], tmp_path: Path, shm: Path) -> None:
    """One rank gives it. It is said in one line, and the file is opened."""
    result = run_with_info(mpi, "assay_io_until=memoyr", held, tmp_path, shm, **MEMORY, INFO_RANKS="1")
    assert set(codes(result, "level")) == {"file"}, result.stdout + result.stderr
    assert set(codes(result, "close")) == {"no-space"}, result.stderr
    words = [line for line in result.stderr.splitlines() if "info key assay_io_until=memoyr" in line]
    assert len(words) == 1 and "memory or file is expected; file is used" in words[0], result.stderr


def test_ranks_that_disagree_use_the_mpis_own_io(tmp_path: Path, shm: Path) -> None:
    """The rank without the key does not wait for the other one."""
    result = run_with_info("mpich", "assay_io=disable", {}, tmp_path, shm, INFO_RANKS="1")
    check(result, "closed-with-info")
    assert set(codes(result, "level")) == {"none"} and has_blocks(tmp_path / "data", 1)


def run_with_info(
    mpi: str, keys: str, held: dict[str, str], tmp_path: Path, shm: Path, **extra: str
) -> subprocess.CompletedProcess[str]:
    """``held`` plants the same fault for the ranks, which write the file themselves at level file."""
    faults = planted(tmp_path, "write:ENOSPC", WHILE=str(tmp_path / "fault")) if held else None
    settings = {"INFO_KEYS": keys, **NEVER_DRAIN, **held, **extra}
    return run_case(mpi, "closed-with-info", tmp_path, shm, faults=faults, **settings)
