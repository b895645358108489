"""File systems that fail under the accelerator: each fault is an MPI error, and no data are lost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from durability import (
    BLOCK_BYTES,
    FAULTY_FS,
    NEVER_DRAIN,
    RANKS,
    TESTED,
    assay,
    assay_io_run,
    check,
    codes,
    has_blocks,
    kept,
    mounted,
    needs_root,
    planted,
    program,
    run_case,
)
from mpi_programs import MPIRUN, memory_folder

pytestmark = pytest.mark.programs

CLASSES = {"EIO": "io", "ENOSPC": "no-space", "EDQUOT": "quota", "EROFS": "read-only"}
SHARED_BYTES = RANKS * BLOCK_BYTES

mpis = pytest.mark.parametrize("mpi", TESTED)
nodes = pytest.mark.parametrize("ranks_per_node", ["0", "1"], ids=["one-node", "a-node-each"])


@pytest.fixture
def shm() -> Iterator[Path]:
    yield from memory_folder()


def recovered(store: Path) -> subprocess.CompletedProcess[str]:
    """The fault is gone: the store's data are brought, and the store is removed."""
    result = assay("io", "recover", str(store), "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert not store.exists()
    return result


# ---- writes that fail


@pytest.mark.parametrize("errno", CLASSES)
@mpis
def test_a_failed_write_is_an_error_of_close(mpi: str, errno: str, tmp_path: Path, shm: Path) -> None:
    result = run_case(mpi, "closed", tmp_path, shm, faults=planted(tmp_path, f"write:{errno}"))
    assert CLASSES[errno] in codes(result, "close"), result.stdout
    recovered(kept(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@pytest.mark.parametrize("errno", ["EIO", "ENOSPC", "EDQUOT"])
@mpis
def test_a_failed_write_is_an_error_of_sync(mpi: str, errno: str, tmp_path: Path, shm: Path) -> None:
    result = run_case(mpi, "synced", tmp_path, shm, faults=planted(tmp_path, f"write:{errno}"))
    assert CLASSES[errno] in codes(result, "sync"), result.stdout
    recovered(kept(result, shm))
    assert all(has_blocks(tmp_path / "data", row, row) for row in range(3))


@mpis
def test_a_fault_of_one_node_is_an_error(mpi: str, tmp_path: Path, shm: Path) -> None:
    faults = planted(tmp_path, "write:EIO", RANK="1")
    result = run_case(mpi, "closed", tmp_path, shm, faults=faults, ASSAY_IO_RANKS_PER_NODE="1")
    assert "io" in codes(result, "close"), result.stdout
    recovered(kept(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@pytest.mark.parametrize("errno", ["EIO", "ENOSPC", "EDQUOT"])
@mpis
def test_io_run_fails_with_the_file_system(mpi: str, errno: str, tmp_path: Path, shm: Path) -> None:
    """The program ignores the errors and ends with 0; its data are not in the file, so ``assay io run`` does not."""
    faults = planted(tmp_path, f"write:{errno}")
    result = assay_io_run(mpi, shm, [program(mpi), str(tmp_path), "closed"], faults)
    assert result.returncode != 0, result.stdout + result.stderr
    recovered(kept(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@needs_root
def test_io_run_fails_with_the_file_system_of_another_node(tmp_path: Path, shm: Path) -> None:
    """The second rank has memory that this machine does not see, as on another host, and a file system that fails."""
    start = f'LD_PRELOAD={FAULTY_FS}:$LD_PRELOAD exec "$0" "$@"'
    ranks = ["sh", "-c", start, program("mpich"), str(tmp_path), "closed"]
    elsewhere = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs other {shm} && {start}", *ranks[3:]]
    result = assay(
        "io", "run", "--store", str(shm), "--store-size", "128MiB", "--require", "--",
        *MPIRUN["mpich"], "-n", "1", *ranks, ":", "-n", "1", *elsewhere,
        ASSAY_IO_RANKS_PER_NODE="1", **planted(tmp_path, "write:EIO", RANK="1"),
    )  # fmt: skip
    assert "io" in codes(result, "close"), result.stdout + result.stderr
    assert f"{shm}/assay-io-" in result.stderr
    assert result.returncode != 0, result.stderr


@needs_root
@mpis
def test_a_full_file_system(mpi: str, tmp_path: Path, shm: Path) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", "size=1m") as small:
        result = run_case(mpi, "closed", small, shm)
        assert "no-space" in codes(result, "close"), result.stdout
        store = kept(result, shm)
        refused = assay("io", "recover", str(store))
        assert refused.returncode == 2 and store.exists(), refused.stdout + refused.stderr
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True, timeout=60)
        recovered(store)
        assert has_blocks(small / "data", 1)


@mpis
def test_a_fault_concerns_its_file_alone(mpi: str, tmp_path: Path, shm: Path) -> None:
    faults = planted(tmp_path, "write:EIO", WHILE=str(tmp_path / "fault"))
    result = run_case(mpi, "two-files", tmp_path, shm, faults=faults, **NEVER_DRAIN)
    assert "ok two-files" in result.stdout and result.returncode == 2, result.stdout  # data are kept
    assert "io" in codes(result, "bad"), result.stdout
    assert set(codes(result, "good")) == set(codes(result, "later")) == {"success"}, result.stdout
    recovered(kept(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@pytest.mark.parametrize("rule", ["write:EIO", "open:EMFILE", "sync:EIO"])
@mpis
def test_one_fault_does_not_poison_later_files(mpi: str, rule: str, tmp_path: Path, shm: Path) -> None:
    faults = planted(tmp_path, rule, WHILE=str(tmp_path / "fault"), ONCE="1")
    result = run_case(mpi, "transient", tmp_path, shm, faults=faults, **NEVER_DRAIN)
    check(result, "transient")
    assert set(codes(result, "later")) == {"success"}, result.stdout
    if not has_blocks(tmp_path / "data", 1):
        assert set(codes(result, "first")) != {"success"}, result.stdout
        recovered(kept(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@pytest.mark.parametrize("rule", ["write:EIO", "write:ENOSPC", "sync:EIO"])
@mpis
def test_the_next_sync_writes_again(mpi: str, rule: str, tmp_path: Path, shm: Path) -> None:
    """After a failed fsync the kernel calls the data clean although they are not on the disk: they must be written
    again, not only synced."""
    log = tmp_path / "log"
    faults = planted(tmp_path, rule, WHILE=str(tmp_path / "fault"), LOG=str(log))
    result = run_case(mpi, "healed", tmp_path, shm, faults=faults, **NEVER_DRAIN)
    check(result, "healed")
    assert set(codes(result, "failing")) != {"success"}, result.stdout
    assert set(codes(result, "healed")) == set(codes(result, "close")) == {"success"}, result.stdout
    assert list(shm.iterdir()) == []
    calls = read_log(log)
    healed, synced = (find_marks(calls, text)[0] for text in ("healed", "synced"))
    assert sum(size for _, what, size in calls[healed:synced] if what == "wrote") >= SHARED_BYTES, calls
    assert_synced(calls, synced)


@mpis
def test_the_end_of_the_program_writes_again(mpi: str, tmp_path: Path, shm: Path) -> None:
    faults = planted(tmp_path, "write:EIO", WHILE=str(tmp_path / "fault"))
    result = run_case(mpi, "healed-at-the-end", tmp_path, shm, faults=faults, **NEVER_DRAIN)
    assert "io" in codes(result, "failing"), result.stdout
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == [], result.stderr


@mpis
def test_a_full_store_above_a_failing_file_system(mpi: str, tmp_path: Path, shm: Path) -> None:
    result = run_case(mpi, "ring-full", tmp_path, shm, faults=planted(tmp_path, "write:EIO"))
    assert codes(result, "write") == ["io", "io"] and "io" in codes(result, "close"), result.stdout
    kept(result, shm)


@pytest.mark.parametrize("name", ["contested", "contested-and-renamed"])
@mpis
def test_contested_bytes_are_put_right(mpi: str, name: str, tmp_path: Path, shm: Path) -> None:
    """The case fails if close succeeds and older bytes are in the file."""
    faults = planted(tmp_path, "open:EACCES", WHILE=str(tmp_path / "fault"))
    env = {"ASSAY_IO_RANKS_PER_NODE": "1", **NEVER_DRAIN}
    check(run_case(mpi, name, tmp_path, shm, faults=faults, **env), name)


# ---- reads that fail


@pytest.mark.parametrize("errno", ["EIO", "ESTALE"])
@mpis
def test_a_failed_read_is_an_error(mpi: str, errno: str, tmp_path: Path, shm: Path) -> None:
    faults = planted(tmp_path, f"read:{errno}", WHILE=str(tmp_path / "fault"))
    result = run_case(mpi, "read-error", tmp_path, shm, faults=faults)
    check(result, "read-error")
    assert "success" not in codes(result, "read"), result.stdout


# ---- fsync


def read_log(log: Path) -> list[tuple[str, str, int]]:
    """The lines of faulty_fs's log: process, call, result (bytes of a write). A mark has its text as the process."""
    calls = []
    for line in log.read_text().splitlines():
        process, what, number, _, rest = line.split(maxsplit=4)
        calls.append((rest if what == "mark" else process, what, int(number)))
    return calls


def find_marks(calls: list[tuple[str, str, int]], text: str) -> list[int]:
    return [k for k, (name, what, _) in enumerate(calls) if what == "mark" and name == text]


def assert_synced(calls: list[tuple[str, str, int]], upto: int, by_process: bool = False) -> None:
    """Before ``upto``, a sync that succeeded began after the last write. ``by_process``: each process has synced its
    own writes, as it must when each is on a node of its own."""
    for process in {name for name, what, _ in calls if what == "wrote"} if by_process else {""}:
        mine = [(what, number) for name, what, number in calls[:upto] if process in ("", name)]
        wrote = [k for k, (what, number) in enumerate(mine) if what == "wrote" and number > 0]
        began = [k for k, (what, _) in enumerate(mine) if what == "syncing" and k > max(wrote, default=-1)]
        assert began and any(what == "synced" for what, _ in mine[began[0] :]), mine[-20:]


@nodes
@mpis
def test_close_returns_after_fsync(mpi: str, ranks_per_node: str, tmp_path: Path, shm: Path) -> None:
    log = tmp_path / "log"
    faults = planted(tmp_path, "", LOG=str(log))
    run_case(mpi, "closed", tmp_path, shm, faults=faults, ASSAY_IO_RANKS_PER_NODE=ranks_per_node)
    calls = read_log(log)
    assert sum(size for _, what, size in calls if what == "wrote") >= SHARED_BYTES
    assert_synced(calls, find_marks(calls, "closed")[0], ranks_per_node == "1")


def check_syncs(log: Path, by_process: bool) -> None:
    """Three times: a write of each rank, a sync of the file, and a mark of each rank."""
    calls = read_log(log)
    marks = find_marks(calls, "synced")[::RANKS]
    assert len(marks) == 3
    for turn, mark in enumerate(marks):
        assert sum(size for _, what, size in calls[:mark] if what == "wrote") >= (turn + 1) * SHARED_BYTES
        assert_synced(calls, mark, by_process)


def test_stock_sync_returns_after_fsync(tmp_path: Path) -> None:
    """Validates the log and how it is read."""
    log = tmp_path / "log"
    run_case("mpich", "synced", tmp_path, None, faults=planted(tmp_path, "", LOG=str(log)))
    check_syncs(log, by_process=True)


@nodes
@mpis
def test_sync_returns_after_fsync(mpi: str, ranks_per_node: str, tmp_path: Path, shm: Path) -> None:
    log = tmp_path / "log"
    faults = planted(tmp_path, "", LOG=str(log))
    run_case(mpi, "synced", tmp_path, shm, faults=faults, ASSAY_IO_RANKS_PER_NODE=ranks_per_node)
    check_syncs(log, ranks_per_node == "1")


@nodes
@mpis
def test_a_failed_fsync_is_an_error(mpi: str, ranks_per_node: str, tmp_path: Path, shm: Path) -> None:
    faults = planted(tmp_path, "sync:EIO")
    result = run_case(mpi, "synced", tmp_path, shm, faults=faults, ASSAY_IO_RANKS_PER_NODE=ranks_per_node)
    assert "io" in codes(result, "sync") and "io" in codes(result, "close"), result.stdout
    for store in shm.iterdir():
        assert str(store) in result.stderr and str(tmp_path / "data") in result.stderr
    assert len(list(shm.iterdir())) == (2 if ranks_per_node == "1" else 1)


# ---- a disk that is full, below a file system that is not


@contextmanager
def loop_mounted(image: Path, folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "loop", image, folder], check=True, timeout=60)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True, timeout=60)


@needs_root
@mpis
def test_sync_finds_a_disk_that_does_not_take_the_data(mpi: str, tmp_path: Path, shm: Path) -> None:
    """ext4 on a sparse image whose tmpfs is full: writes succeed, their write-back does not. If sync and close
    succeed, the data are there after the file system was mounted anew."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted("tmpfs", tmp_path / "below", "-o", "size=16m") as below:
        image = below / "image"
        with image.open("wb") as sparse:
            sparse.truncate(256 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, timeout=60)
        with loop_mounted(image, disk):
            result = run_case(mpi, "synced-large", disk, shm)
        outcome = set(codes(result, "sync") + codes(result, "close"))
        with loop_mounted(image, disk):
            there = all(has_blocks(disk / "data", row, row) for row in range(12))
    assert there or outcome != {"success"}, "sync and close succeed, and the data are lost"
    assert not there, "24 MiB fit on 16 MiB"
    assert "success" not in codes(result, "sync"), result.stdout
    store = kept(result, shm)
    listed = json.loads(assay("io", "stores", "--json", str(store)).stdout)
    assert listed["bytes"] >= 12 * SHARED_BYTES
