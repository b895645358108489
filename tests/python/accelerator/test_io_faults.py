"""Faults of the file system below the accelerator: each must be an MPI error, and no data may be lost."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from background import faulty_drain, wait_for_end
from durability import (
    BLOCK_BYTES,
    FAULTY_FS,
    NEVER_DRAIN,
    RANKS,
    TESTED,
    assay,
    assay_io_run,
    check_passed,
    error_classes,
    expected_block,
    fault_settings,
    has_blocks,
    kept_store,
    later,
    mounted,
    needs_root,
    program,
    run_case,
)
from mpi_programs import LIMIT_S, MPIRUN

pytestmark = pytest.mark.programs

CLASSES = {"EIO": "io", "ENOSPC": "no-space", "EDQUOT": "quota", "EROFS": "read-only"}
SHARED_BYTES = RANKS * BLOCK_BYTES

mpis = pytest.mark.parametrize("mpi", TESTED)
nodes = pytest.mark.parametrize("ranks_per_node", ["0", "1"], ids=["one-node", "a-node-each"])


def recover_store(store: Path) -> subprocess.CompletedProcess[str]:
    """Recovers a store after the fault has ended. The store must be removed."""
    result = assay("io", "recover", str(store), "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert not store.exists()
    return result


# ---- writes that fail


@pytest.mark.parametrize("errno", ["EIO", "ENOSPC", "EROFS", *later("EDQUOT")])
@mpis
def test_a_failed_write_is_an_error_of_close(mpi: str, errno: str, tmp_path: Path, shm: Path) -> None:
    result = run_case(mpi, "closed", tmp_path, shm, faults=fault_settings(tmp_path, f"write:{errno}"))
    assert CLASSES[errno] in error_classes(result, "close"), result.stdout
    recover_store(kept_store(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@pytest.mark.parametrize("errno", ["EIO", *later("ENOSPC", "EDQUOT")])
@mpis
def test_a_failed_write_is_an_error_of_sync(mpi: str, errno: str, tmp_path: Path, shm: Path) -> None:
    result = run_case(mpi, "synced", tmp_path, shm, faults=fault_settings(tmp_path, f"write:{errno}"))
    assert CLASSES[errno] in error_classes(result, "sync"), result.stdout
    recover_store(kept_store(result, shm))
    assert all(has_blocks(tmp_path / "data", row, row) for row in range(3))


@mpis
def test_a_fault_of_one_node_is_an_error(mpi: str, tmp_path: Path, shm: Path) -> None:
    faults = fault_settings(tmp_path, "write:EIO", RANK="1")
    result = run_case(mpi, "closed", tmp_path, shm, faults=faults, ASSAY_IO_RANKS_PER_NODE="1")
    assert "io" in error_classes(result, "close"), result.stdout
    recover_store(kept_store(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@pytest.mark.parametrize("errno", ["EIO", *later("ENOSPC", "EDQUOT")])
@mpis
def test_io_run_fails_with_the_file_system(mpi: str, errno: str, tmp_path: Path, shm: Path) -> None:
    """The program ignores the errors and exits with 0. Its data are not in the file, so ``assay io run`` must not exit
    with 0."""
    faults = fault_settings(tmp_path, f"write:{errno}")
    result = assay_io_run(mpi, shm, [program(mpi), str(tmp_path), "closed"], faults)
    assert result.returncode != 0, result.stdout + result.stderr
    recover_store(kept_store(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@needs_root
def test_io_run_fails_with_the_file_system_of_another_node(tmp_path: Path, shm: Path) -> None:
    """The second rank runs in a mount namespace with its own /dev/shm, as on another host, and its file system
    fails."""
    start = f'LD_PRELOAD={FAULTY_FS}:$LD_PRELOAD exec "$0" "$@"'
    ranks = ["sh", "-c", start, program("mpich"), str(tmp_path), "closed"]
    other_node = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs other {shm} && {start}", *ranks[3:]]
    result = assay(
        "io", "run", "--store", str(shm), "--store-size", "128MiB", "--require", "--",
        *MPIRUN["mpich"], "-n", "1", *ranks, ":", "-n", "1", *other_node,
        ASSAY_IO_RANKS_PER_NODE="1", **fault_settings(tmp_path, "write:EIO", RANK="1"),
    )  # fmt: skip
    assert "io" in error_classes(result, "close"), result.stdout + result.stderr
    assert f"{shm}/assay-io-" in result.stderr
    assert result.returncode != 0, result.stderr


@needs_root
@mpis
def test_a_full_file_system_is_an_error_of_close(mpi: str, tmp_path: Path, shm: Path) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", "size=1m") as small:
        result = run_case(mpi, "closed", small, shm)
        assert "no-space" in error_classes(result, "close"), result.stdout
        store = kept_store(result, shm)
        refused = assay("io", "recover", str(store))
        assert refused.returncode == 2 and store.exists(), refused.stdout + refused.stderr
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True, timeout=LIMIT_S)
        recover_store(store)
        assert has_blocks(small / "data", 1)


@mpis
def test_a_fault_of_a_file_does_not_affect_others(mpi: str, tmp_path: Path, shm: Path) -> None:
    faults = fault_settings(tmp_path, "write:EIO", WHILE=str(tmp_path / "fault"))
    result = run_case(mpi, "two-files", tmp_path, shm, faults=faults, **NEVER_DRAIN)
    assert "ok two-files" in result.stdout and result.returncode == 2, result.stdout  # data are kept
    assert "io" in error_classes(result, "bad"), result.stdout
    assert set(error_classes(result, "good")) == set(error_classes(result, "later")) == {"success"}, (
        result.stdout
    )
    recover_store(kept_store(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@pytest.mark.parametrize("rule", ["write:EIO", *later("open:EMFILE", "sync:EIO")])
@mpis
def test_a_transient_fault_does_not_affect_later_files(
    mpi: str, rule: str, tmp_path: Path, shm: Path
) -> None:
    faults = fault_settings(tmp_path, rule, WHILE=str(tmp_path / "fault"), ONCE="1")
    result = run_case(mpi, "transient", tmp_path, shm, faults=faults, **NEVER_DRAIN)
    check_passed(result, "transient")
    assert set(error_classes(result, "later")) == {"success"}, result.stdout
    if not has_blocks(tmp_path / "data", 1):
        assert set(error_classes(result, "first")) != {"success"}, result.stdout
        recover_store(kept_store(result, shm))
    assert has_blocks(tmp_path / "data", 1)


@pytest.mark.parametrize("rule", ["write:EIO", "sync:EIO", *later("write:ENOSPC")])
@mpis
def test_the_next_sync_writes_again(mpi: str, rule: str, tmp_path: Path, shm: Path) -> None:
    """After a failed fsync the kernel counts the pages as clean although they are not on the disk, so the data must be
    written again, not only synced."""
    log = tmp_path / "log"
    faults = fault_settings(tmp_path, rule, WHILE=str(tmp_path / "fault"), LOG=str(log))
    result = run_case(mpi, "healed", tmp_path, shm, faults=faults, **NEVER_DRAIN)
    check_passed(result, "healed")
    assert set(error_classes(result, "failing")) != {"success"}, result.stdout
    assert set(error_classes(result, "healed")) == set(error_classes(result, "close")) == {"success"}, (
        result.stdout
    )
    assert list(shm.iterdir()) == []
    calls = read_log(log)
    healed, synced = (find_marks(calls, text)[0] for text in ("healed", "synced"))
    assert sum(size for _, call, size in calls[healed:synced] if call == "wrote") >= SHARED_BYTES, calls
    assert_synced(calls, synced)


@mpis
def test_a_fault_that_has_ended_fails_no_other_handle(mpi: str, tmp_path: Path, shm: Path) -> None:
    faults = fault_settings(tmp_path, "sync:EIO", WHILE=str(tmp_path / "fault"))
    name = "healed-through-two-handles"
    result = run_case(mpi, name, tmp_path, shm, faults=faults, **NEVER_DRAIN)
    check_passed(result, name)
    assert set(error_classes(result, "healed")) == {"success"}, result.stdout
    assert list(shm.iterdir()) == []


@mpis
def test_nodes_whose_last_sync_failed_do_not_wait_for_each_other(mpi: str, tmp_path: Path, shm: Path) -> None:
    """Each has the newest bytes over some of the other's, and may evict its data only when both have synced theirs."""
    faults = fault_settings(tmp_path, "write:EIO", WHILE=str(tmp_path / "fault"))
    env = {"ASSAY_IO_RANKS_PER_NODE": "1", "ASSAY_IO_DIRECT": "0", "ASSAY_IO_SIZE": "48M"}
    result = run_case(mpi, "contested-both-ways", tmp_path, shm, faults=faults, **env)
    check_passed(result, "contested-both-ways")
    assert set(error_classes(result, "failing")) == {"io"}, result.stdout
    assert set(error_classes(result, "healed")) == {"success"}, result.stdout + result.stderr
    assert list(shm.iterdir()) == []


@mpis
def test_a_removed_file_whose_close_failed_does_not_fail_others(mpi: str, tmp_path: Path, shm: Path) -> None:
    """The node with the newer bytes has them on the medium, the other one has not."""
    settings = {"WHILE": str(tmp_path / "fault"), "RANK": "0"}
    faults = fault_settings(tmp_path, "write:EIO", name="*", **settings)
    env = {"ASSAY_IO_RANKS_PER_NODE": "1", **NEVER_DRAIN}
    result = run_case(mpi, "removed-then-failed", tmp_path, shm, faults=faults, **env)
    check_passed(result, "removed-then-failed")
    assert set(error_classes(result, "failing")) == {"io"}, result.stdout
    assert set(error_classes(result, "later")) == {"success"}, result.stdout + result.stderr
    assert list(shm.iterdir()) == []


@pytest.mark.parametrize("name", ["renamed-after-close-by-some", "removed-after-close-by-some"])
@mpis
def test_an_unsettled_file_without_its_name_does_not_fail_writes(
    mpi: str, name: str, tmp_path: Path, shm: Path
) -> None:
    check_passed(run_case(mpi, name, tmp_path, shm, ranks=3, ASSAY_IO_RANKS_PER_NODE="1"), name)
    assert list(shm.iterdir()) == []


@mpis
def test_mpi_finalize_writes_data_that_failed_before(mpi: str, tmp_path: Path, shm: Path) -> None:
    faults = fault_settings(tmp_path, "write:EIO", WHILE=str(tmp_path / "fault"))
    result = run_case(mpi, "healed-at-the-end", tmp_path, shm, faults=faults, **NEVER_DRAIN)
    assert "io" in error_classes(result, "failing"), result.stdout
    assert has_blocks(tmp_path / "data", 1) and list(shm.iterdir()) == [], result.stderr


@mpis
def test_a_full_store_over_a_failing_file_system_fails_writes(mpi: str, tmp_path: Path, shm: Path) -> None:
    result = run_case(mpi, "ring-full", tmp_path, shm, faults=fault_settings(tmp_path, "write:EIO"))
    assert error_classes(result, "write") == ["io", "io"] and "io" in error_classes(result, "close"), (
        result.stdout
    )
    kept_store(result, shm)


@pytest.mark.parametrize("name", ["contested", "contested-and-renamed"])
@mpis
def test_contested_bytes_have_the_newer_write(mpi: str, name: str, tmp_path: Path, shm: Path) -> None:
    """The case fails if close succeeds and older bytes are in the file."""
    faults = fault_settings(tmp_path, "open:EACCES", WHILE=str(tmp_path / "fault"))
    env = {"ASSAY_IO_RANKS_PER_NODE": "1", **NEVER_DRAIN}
    check_passed(run_case(mpi, name, tmp_path, shm, faults=faults, **env), name)


# ---- reads that fail


@pytest.mark.parametrize("errno", ["EIO", *later("ESTALE")])
@mpis
def test_a_failed_read_is_an_error(mpi: str, errno: str, tmp_path: Path, shm: Path) -> None:
    faults = fault_settings(tmp_path, f"read:{errno}", WHILE=str(tmp_path / "fault"))
    result = run_case(mpi, "read-error", tmp_path, shm, faults=faults)
    check_passed(result, "read-error")
    assert "success" not in error_classes(result, "read"), result.stdout


# ---- fsync


def read_log(log: Path) -> list[tuple[str, str, int]]:
    """The lines of faulty_fs's log: process, call, result (bytes of a write). A mark has its text as the process."""
    calls = []
    for line in log.read_text().splitlines():
        process, call, number, _, _, rest = line.split(maxsplit=5)
        calls.append((rest if call == "mark" else process, call, int(number)))
    return calls


def find_marks(calls: list[tuple[str, str, int]], text: str) -> list[int]:
    return [k for k, (name, call, _) in enumerate(calls) if call == "mark" and name == text]


def assert_synced(calls: list[tuple[str, str, int]], upto: int, by_process: bool = False) -> None:
    """Before ``upto``, a sync that succeeded began after the last write. ``by_process``: each process has synced its
    own writes, as it must when each is on a node of its own."""
    for process in {name for name, call, _ in calls if call == "wrote"} if by_process else {""}:
        own_calls = [(call, number) for name, call, number in calls[:upto] if process in ("", name)]
        wrote = [k for k, (call, number) in enumerate(own_calls) if call == "wrote" and number > 0]
        began = [
            k for k, (call, _) in enumerate(own_calls) if call == "syncing" and k > max(wrote, default=-1)
        ]
        assert began and any(call == "synced" for call, _ in own_calls[began[0] :]), own_calls[-20:]


@nodes
@mpis
def test_close_returns_after_fsync(mpi: str, ranks_per_node: str, tmp_path: Path, shm: Path) -> None:
    log = tmp_path / "log"
    faults = fault_settings(tmp_path, "", LOG=str(log))
    run_case(mpi, "closed", tmp_path, shm, faults=faults, ASSAY_IO_RANKS_PER_NODE=ranks_per_node)
    calls = read_log(log)
    assert sum(size for _, call, size in calls if call == "wrote") >= SHARED_BYTES
    assert_synced(calls, find_marks(calls, "closed")[0], ranks_per_node == "1")


def check_syncs(log: Path, by_process: bool) -> None:
    """Three times: a write of each rank, a sync of the file, and a mark of each rank."""
    calls = read_log(log)
    marks = find_marks(calls, "synced")[::RANKS]
    assert len(marks) == 3
    for sync_index, mark in enumerate(marks):
        assert (
            sum(size for _, call, size in calls[:mark] if call == "wrote") >= (sync_index + 1) * SHARED_BYTES
        )
        assert_synced(calls, mark, by_process)


def test_stock_sync_returns_after_fsync(tmp_path: Path) -> None:
    """Validates the log and how it is read."""
    log = tmp_path / "log"
    run_case("mpich", "synced", tmp_path, None, faults=fault_settings(tmp_path, "", LOG=str(log)))
    check_syncs(log, by_process=True)


@nodes
@mpis
def test_sync_returns_after_fsync(mpi: str, ranks_per_node: str, tmp_path: Path, shm: Path) -> None:
    log = tmp_path / "log"
    faults = fault_settings(tmp_path, "", LOG=str(log))
    run_case(mpi, "synced", tmp_path, shm, faults=faults, ASSAY_IO_RANKS_PER_NODE=ranks_per_node)
    check_syncs(log, ranks_per_node == "1")


@nodes
@mpis
def test_a_failed_fsync_is_an_error(mpi: str, ranks_per_node: str, tmp_path: Path, shm: Path) -> None:
    faults = fault_settings(tmp_path, "sync:EIO")
    result = run_case(mpi, "synced", tmp_path, shm, faults=faults, ASSAY_IO_RANKS_PER_NODE=ranks_per_node)
    assert "io" in error_classes(result, "sync") and "io" in error_classes(result, "close"), result.stdout
    for store in shm.iterdir():
        assert str(store) in result.stderr and str(tmp_path / "data") in result.stderr
    assert len(list(shm.iterdir())) == (2 if ranks_per_node == "1" else 1)


@mpis
def test_a_released_file_gets_its_newer_bytes_again(mpi: str, tmp_path: Path, shm: Path) -> None:
    """One node's fsync fails, so it writes older bytes again after the close. The other node's close has released its
    descriptor."""
    log = tmp_path / "log"
    settings = {"WHILE": str(tmp_path / "fault"), "ONCE": "1", "RANK": "0", "LOG": str(log)}
    faults = fault_settings(tmp_path, "sync:EIO", **settings)
    env = {"ASSAY_IO_RANKS_PER_NODE": "1", **NEVER_DRAIN}
    result = run_case(mpi, "contested-by-a-retry", tmp_path, shm, faults=faults, **env)
    check_passed(result, "contested-by-a-retry")
    assert set(error_classes(result, "close")) == {"io"}, result.stdout
    calls = read_log(log)
    failed = next(k for k, (_, call, _) in enumerate(calls) if call == "failed")
    newer = [(call, number) for process, call, number in calls[failed:] if process != calls[failed][0]]
    assert sum(number for call, number in newer if call == "wrote") == BLOCK_BYTES, calls
    assert newer[-1][0] == "synced" and list(shm.iterdir()) == []
    with (tmp_path / "data").open("rb") as data:
        data.seek(SHARED_BYTES)
        assert data.read(BLOCK_BYTES) == expected_block(2, 0)


@mpis
def test_data_that_are_not_durable_do_not_come_over_later_ones(mpi: str, tmp_path: Path, shm: Path) -> None:
    """Closed at level memory, reopened at level file: the store writes its data again after a failed fsync, so later
    data must not have gone past it."""
    faults = fault_settings(
        tmp_path, "sync:HOLDEIO", WHILE=str(tmp_path / "fault"), LOG=str(tmp_path / "log")
    )
    env = {"ASSAY_IO_DIRECT": "1", **faulty_drain(tmp_path, faults)}
    result = run_case(mpi, "levels-mixed", tmp_path, shm, faults=faults, **env)
    check_passed(result, "levels-mixed")
    assert set(error_classes(result, "close")) == {"success"}, result.stdout
    wait_for_end(shm)
    assert has_blocks(tmp_path / "data", 2)


# ---- a disk that is full, below a file system that is not


@contextmanager
def loop_mounted(image: Path, folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "loop", image, folder], check=True, timeout=LIMIT_S)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True, timeout=LIMIT_S)


@needs_root
@mpis
def test_sync_reports_a_failed_write_back(mpi: str, tmp_path: Path, shm: Path) -> None:
    """ext4 on a sparse image whose tmpfs is full: writes succeed, their write-back does not. If sync and close
    succeed, the data are there after the file system was mounted anew."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted("tmpfs", tmp_path / "below", "-o", "size=16m") as below:
        image = below / "image"
        with image.open("wb") as sparse:
            sparse.truncate(256 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, timeout=LIMIT_S)
        with loop_mounted(image, disk):
            result = run_case(mpi, "synced-large", disk, shm)
        outcome = set(error_classes(result, "sync") + error_classes(result, "close"))
        with loop_mounted(image, disk):
            is_complete = all(has_blocks(disk / "data", row, row) for row in range(12))
    assert is_complete or outcome != {"success"}, "sync and close succeed, and the data are lost"
    assert not is_complete, "24 MiB fit on 16 MiB"
    assert "success" not in error_classes(result, "sync"), result.stdout
    store = kept_store(result, shm)
    listed = json.loads(assay("io", "stores", "--json", str(store)).stdout)
    assert listed["bytes"] >= 12 * SHARED_BYTES
