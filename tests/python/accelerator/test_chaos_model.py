"""The checker of the chaos test: it must find planted violations, and accept all that is allowed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from chaos_bytes import decode, encode
from chaos_check import check_errors, check_files, check_medium, check_reads, check_synchronised
from chaos_log import Outcome, RankLog
from chaos_medium import UnsafeBytes, unsafe_bytes
from chaos_model import Check, History, Resize, Write
from chaos_plan import FAULTS, Blocks, Operation, Plan, make_plan, written_blocks
from chaos_replay import Replay

SIZE = 4096


def bytes_of(write: Write) -> bytes:
    """The file if this write alone had been done."""
    offsets = np.arange(SIZE, dtype=np.int64)
    data = np.zeros(SIZE, np.uint8)
    mine = write.covers(offsets)
    data[mine] = encode(write.slot, write.rank, write.operation, offsets[mine])
    return data.tobytes()


def merged(*writes: Write) -> bytearray:
    """The file after these writes, in this order."""
    data = np.zeros(SIZE, np.uint8)
    for write in writes:
        mine = write.covers(np.arange(SIZE, dtype=np.int64))
        data[mine] = np.frombuffer(bytes_of(write), np.uint8)[mine]
    return bytearray(data.tobytes())


def write(
    operation: int, rank: int, begin: int, length: int, epoch: int = 0, acknowledged: bool = True
) -> Write:
    return Write(operation, rank, 0, Blocks(begin, length), epoch, acknowledged)


# A wrong byte equals the right one by chance in one case of 256, so the number of wrong bytes is not exact.
def violations(content: bytes, *writes: Write, resizes: tuple[Resize, ...] = ()) -> list[str]:
    history = History("f", 0, list(writes), list(resizes))
    return Check(history, lambda write: write.acknowledged).violations(bytes(content))


FIRST, SECOND = write(1, 0, 0, SIZE), write(2, 1, 1001, 2000, epoch=1)


def test_words_are_decoded() -> None:
    data = encode(3, 2, 777, np.arange(80, 96, dtype=np.int64))
    tags = decode(data.view(np.uint64))
    assert tags.valid.all()
    assert [tags.slot[0], tags.rank[0], tags.operation[0], tags.index[1]] == [3, 2, 777, 11]


def test_the_newest_writes_are_right() -> None:
    assert violations(merged(FIRST, SECOND), FIRST, SECOND) == []


def test_a_lost_write_is_found() -> None:
    (line,) = violations(merged(FIRST), FIRST, SECOND)
    assert (
        "bytes from 1001 to 3000 are old, of operation 1 of rank 0 in place of operation 2 of rank 1" in line
    )


def test_a_lost_write_that_left_zeros_is_found() -> None:
    (line,) = violations(merged(SECOND), FIRST, SECOND)
    assert "are zero in place of operation 1 of rank 0" in line


def test_a_torn_write_is_found() -> None:
    content = merged(FIRST, SECOND)
    content[1001:1500] = merged(FIRST)[1001:1500]
    (line,) = violations(content, FIRST, SECOND)
    assert "from 1001 to 1499 are old" in line


def test_a_single_wrong_byte_is_found() -> None:
    content = merged(FIRST, SECOND)
    content[1234] ^= 0x40
    (line,) = violations(content, FIRST, SECOND)
    assert "1 bytes from 1234 to 1234 are foreign" in line


def test_bytes_of_another_file_are_found() -> None:
    other = dataclasses.replace(FIRST, slot=2, operation=9)
    content = merged(FIRST, SECOND)
    content[64:128] = bytes_of(other)[64:128]
    (line,) = violations(content, FIRST, SECOND)
    assert "64 bytes from 64 to 127 are of another file: slot 2, operation 9 of rank 0" in line


def test_bytes_of_another_offset_are_found() -> None:
    content = merged(FIRST, SECOND)
    content[64:128] = content[128:192]
    (line,) = violations(content, FIRST, SECOND)
    assert "are of operation 1 of rank 0 at another offset" in line


def test_an_unacknowledged_write_may_be_there_in_part() -> None:
    pending = dataclasses.replace(SECOND, acknowledged=False)
    content = merged(FIRST)
    content[1500:2000] = bytes_of(pending)[1500:2000]
    assert violations(content, FIRST, pending) == []


def test_an_unacknowledged_write_does_not_excuse_zeros() -> None:
    pending = dataclasses.replace(SECOND, acknowledged=False)
    content = merged(FIRST)
    content[1500:2000] = bytes(500)
    (line,) = violations(content, FIRST, pending)
    assert "bytes from 1500 to 1999 are zero" in line


def test_writes_without_an_order_may_come_in_any_order() -> None:
    concurrent = dataclasses.replace(SECOND, epoch=0)
    assert violations(merged(FIRST, concurrent), FIRST, concurrent) == []
    assert violations(merged(concurrent, FIRST), FIRST, concurrent) == []


def test_writes_of_a_rank_have_an_order() -> None:
    later = write(2, 0, 0, 100)
    assert violations(merged(FIRST, later), FIRST, later) == []
    assert violations(merged(later, FIRST), FIRST, later) != []


def test_a_lost_block_of_a_strided_write_is_found() -> None:
    strided = Write(3, 0, 0, Blocks(5, 37, 10, 100), 1, True)
    content = merged(FIRST, strided)
    assert violations(content, FIRST, strided) == []
    content[205:242] = merged(FIRST)[205:242]
    (line,) = violations(content, FIRST, strided)
    assert "37 bytes from 205 to 241 are old" in line


def test_bytes_that_a_resize_removed_must_be_zero() -> None:
    resize = Resize(2, 1000, 1, True)
    cut = bytearray(merged(FIRST))
    assert violations(cut, FIRST, resizes=(resize,)) != []
    cut[1000:] = bytes(SIZE - 1000)
    assert violations(cut, FIRST, resizes=(resize,)) == []


def test_the_smallest_and_largest_size_follow_from_the_history() -> None:
    history = History("f", 0, [FIRST, write(4, 0, 5000, 10, acknowledged=False)], [])
    assert history.sizes(lambda write: write.acknowledged) == (SIZE, 5010)
    history.resizes = [Resize(3, 100, 1, True)]
    assert history.sizes(lambda write: write.acknowledged) == (100, 5010)
    history.resizes = [Resize(5, 100, 1, False)]
    assert history.sizes(lambda write: write.acknowledged) == (100, 5010)


@pytest.mark.parametrize("settled", [True, False])
def test_unsettled_writes_of_two_nodes_have_no_order(settled: bool) -> None:
    """The last recovered node wins for bytes that were not settled before."""
    first = dataclasses.replace(FIRST, settled=settled)
    history = History("f", 0, [first, SECOND], [])
    check = Check(history, lambda write: write.acknowledged, lambda rank: rank)
    assert bool(check.violations(bytes(merged(SECOND, first)))) is settled
    assert check.violations(bytes(merged(first, SECOND))) == []


# ---- whole runs: two ranks write, and each test plants a violation

PLAN = [
    Operation("open", 1, (0, "n0")),
    Operation("write", 2, (0, 0, 0, SIZE)),
    Operation("barrier", 3),
    Operation("write", 4, (1, 0, 1001, 2000)),
    Operation("sync", 5, (0,)),
    Operation("read", 6, (0, 0, 1000, 100)),
    Operation("write", 7, (0, 0, 0, 8)),
    Operation("close", 8, (0,)),
]


def plan_with_fault(fault: str = "none") -> Plan:
    return Plan(1, "mpich", 2, 0, 0, "file", "immediate", fault, "", False, False, False, operations=PLAN)


def logs(read: bytes) -> list[RankLog]:
    """The logs of two ranks on which all operations succeed. ``read``: the bytes that operation 6 has read."""
    result = [RankLog(notes={"started": 0}), RankLog(notes={"started": 0})]
    for operation in PLAN:
        blocks = written_blocks(operation, 2)
        alone = {"write": set(blocks), "read": {0}, "barrier": set()}.get(operation.kind, {0, 1})
        for rank in alone:
            moved = blocks[rank].bytes if blocks else len(read) if operation.kind == "read" else 0
            result[rank].outcomes[operation.number] = Outcome(
                operation.number * 10, operation.number * 10 + 5, 0, moved
            )
    result[0].reads = read
    return result


LAST = write(7, 0, 0, 8, epoch=2)
WRITTEN = [write(2, 0, 0, SIZE), write(4, 1, 1001, 2000, epoch=1), LAST]
GOOD = bytes(merged(*WRITTEN))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/n0").write_bytes(GOOD)
    return tmp_path / "files"


def kinds_of(files: Path, replay: Replay, recovered: bool) -> set[str]:
    return {violation.kind for violation in check_files(replay.plan, replay, files, recovered)}


def test_a_good_run_has_no_violation(files: Path) -> None:
    replay = Replay(plan_with_fault(), logs(GOOD[1000:1100]))
    assert [*check_errors(plan_with_fault(), replay, {}), *check_reads(replay)] == []
    assert kinds_of(files, replay, True) == kinds_of(files, replay, False) == set()


def test_a_name_whose_open_has_failed_is_free_for_another_file(files: Path) -> None:
    """Slot 1 opens n0 and fails on all ranks; slot 0 opens it later."""
    plan = plan_with_fault("EMFILE")
    plan.operations = [Operation("open", 0, (1, "n0")), *PLAN]
    ended = logs(GOOD[1000:1100])
    for log in ended:
        log.outcomes[0] = Outcome(0, 5, 32, 0)
    replay = Replay(plan, ended)
    assert kinds_of(files, replay, True) == kinds_of(files, replay, False) == set()


def test_an_old_read_is_found() -> None:
    replay = Replay(plan_with_fault(), logs(bytes(merged(WRITTEN[0]))[1000:1100]))
    (violation,) = check_reads(replay)
    assert "operation 6 of rank 0 read n0: " in violation.text
    assert "from 1001 to 1099 are old" in violation.text


def test_a_short_read_is_found() -> None:
    (violation,) = check_reads(Replay(plan_with_fault(), logs(GOOD[1000:1050])))
    assert "read 50 bytes at 1000, expected 100 to 100" in violation.text


def test_what_a_sync_promised_is_checked_before_recovery(files: Path) -> None:
    """A rank dies after the sync: the write after it may be missing until the recovery, those before may not."""
    ended = logs(GOOD[1000:1100])
    for log in ended:
        del log.outcomes[8]
    replay = Replay(plan_with_fault("kill"), ended)
    (files / "n0").write_bytes(bytes(merged(*WRITTEN[:2])))
    assert kinds_of(files, replay, False) == set()
    assert kinds_of(files, replay, True) == {"lost data after recovery"}
    (files / "n0").write_bytes(bytes(merged(WRITTEN[0])))
    assert kinds_of(files, replay, False) == {"lost data before recovery"}


def test_a_short_file_a_missing_one_and_an_unknown_one_are_found(files: Path) -> None:
    replay = Replay(plan_with_fault(), logs(GOOD[1000:1100]))
    (files / "n0").write_bytes(GOOD[:100])
    assert kinds_of(files, replay, True) == {"wrong size after recovery"}
    (files / "n0").rename(files / "n1")
    assert kinds_of(files, replay, True) == {"missing file", "unknown file"}


def logs_with_error(operation: int) -> list[RankLog]:
    result = logs(GOOD[1000:1100])
    original = result[0].outcomes[operation]
    result[0].outcomes[operation] = dataclasses.replace(original, error=32)
    return result


def test_an_error_needs_a_fault() -> None:
    replay = Replay(plan_with_fault(), logs_with_error(5))
    assert [violation.kind for violation in check_errors(plan_with_fault(), replay, {})] == [
        "error without a fault"
    ]


@pytest.mark.parametrize(
    ("begins", "ends", "kinds"),
    [(20, 70, []), (60, 70, ["error without a fault"]), (20, 40, ["error after the fault"])],
)
def test_errors_belong_to_the_fault(begins: int, ends: int, kinds: list[str]) -> None:
    """The sync, operation 5, fails between 50 and 55 ns."""
    replay = Replay(plan_with_fault("EIO"), logs_with_error(5))
    replay.logs[0].notes |= {"fault-begins": begins, "fault-ended": ends}
    assert [violation.kind for violation in check_errors(plan_with_fault("EIO"), replay, {})] == kinds


def unsafe_in_log(lines: list[str], folder: Path) -> tuple[dict[int, UnsafeBytes], dict[int, UnsafeBytes]]:
    """The unsafe bytes after operation 5, a sync, and at the end. Each line of the log is an event, its result and its
    offset, and may begin with a process number."""
    log = folder / "fs.log"
    with_process = [line if line[0].isdigit() else f"77 {line}" for line in lines]
    log.write_text(
        "".join(f"{line} {N0} /x/files/n0\n" for line in with_process) + f"0 returned 5 -1 {N0} -\n"
    )
    return unsafe_bytes(log, PLAN, node_of_rank=lambda rank: rank)


def test_files_that_have_had_the_same_name_are_not_confused(tmp_path: Path) -> None:
    """Both are deleted; the log calls both "n0 (deleted)". The first has lost bytes, the second is closed well."""
    lines = [
        "8 wrote 10 0 31 n0", "8 syncing 0 -1 31 n0", "8 failed -1 -1 31 n0",
        "8 wrote 10 0 32 n0", "8 syncing 0 -1 32 n0 (deleted)", "8 synced 0 -1 32 n0 (deleted)",
        "0 returned 2 -1 32 -", "0 returned 1 -1 31 -",
    ]  # fmt: skip
    log = tmp_path / "fs.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    saves = [Operation("sync", 1, (0,)), Operation("close", 2, (1,))]
    assert unsafe_bytes(log, saves, node_of_rank=lambda rank: rank)[0] == {
        1: UnsafeBytes(unsynced=False, lost=True, doubtful=True),
        2: UnsafeBytes(unsynced=False, lost=False, doubtful=False),
    }


def unsafe_after_sync(lines: list[str], folder: Path) -> dict[int, UnsafeBytes]:
    return unsafe_in_log(lines, folder)[0]


N0 = 41  # an inode
FAILED = ["wrote 10 0", "syncing 0 -1", "failed -1 -1"]
SYNCED = ["syncing 0 -1", "synced 0 -1"]
TWO_NODES = ["77 rank 0 -1", "78 rank 1 -1", "77 wrote 10 0", "78 wrote 10 20"]
OTHER_SYNCED = [f"78 {line}" for line in SYNCED]
OTHER_FAILED = ["78 syncing 0 -1", "78 failed -1 -1"]
DRAIN_SYNCED = [f"79 {line}" for line in SYNCED]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["wrote 10 0", *SYNCED], []),
        (["wrote 10 0"], ["no fsync"]),
        (["syncing 0 -1", "wrote 10 0", "synced 0 -1"], ["no fsync"]),
        (["wrote -5 0"], []),
        (FAILED, ["lost by fsync"]),
        ([*FAILED, *SYNCED], ["lost by fsync"]),
        ([*FAILED, "wrote 9 0", *SYNCED], ["lost by fsync"]),
        ([*FAILED, "wrote 9 1", "wrote 1 0", *SYNCED], []),
        ([*FAILED, "wrote 10 0"], ["no fsync"]),
        ([*TWO_NODES, *SYNCED, *OTHER_SYNCED], []),
        ([*TWO_NODES, *SYNCED], ["no fsync"]),
        ([*TWO_NODES, *OTHER_FAILED, *SYNCED], ["lost by fsync"]),
        ([*TWO_NODES, *OTHER_FAILED, *SYNCED, "78 wrote 10 20", *OTHER_SYNCED], []),
        ([*TWO_NODES, *DRAIN_SYNCED], []),
    ],
)
def test_bytes_that_a_sync_left_unsafe_are_found(lines: list[str], found: list[str], tmp_path: Path) -> None:
    after = unsafe_after_sync(lines, tmp_path)
    replay = Replay(plan_with_fault(), logs(GOOD[1000:1100]))
    assert [violation.kind for violation in check_synchronised(replay, after)] == found


@pytest.mark.parametrize(
    ("lines", "states"),
    [
        (["wrote 10 0", *DRAIN_SYNCED], []),
        (["wrote 10 0"], ["unsynced"]),
        ([*FAILED, *SYNCED], ["lost"]),
        ([*FAILED, "wrote 10 0", *DRAIN_SYNCED], []),
    ],
)
def test_without_a_store_all_bytes_are_on_the_medium(
    lines: list[str], states: list[str], tmp_path: Path
) -> None:
    at_end = unsafe_in_log(lines, tmp_path)[1]
    found = check_medium(Replay(plan_with_fault(), logs(GOOD[1000:1100])), {"n0": at_end[N0]})
    assert [violation.text.split()[-1] for violation in found] == states


OTHER_SAVE_RETURNED = ["0 returned 4 -1"]


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ([*FAILED, *SYNCED], []),
        (["wrote 10 0", *SYNCED], ["error after the fault"]),
        # An fsync of which the program knows nothing has saved the bytes before another one fails.
        (["wrote 10 0", *SYNCED, "syncing 0 -1", "failed -1 -1", *SYNCED], []),
        (["wrote 10 0", *SYNCED, *OTHER_SAVE_RETURNED, "syncing 0 -1", "failed -1 -1"], ["error after the fault"]),
        # The other node's fsync has failed, so the sync is an error on both.
        ([*TWO_NODES, *SYNCED, *OTHER_FAILED, "78 wrote 10 20", *OTHER_SYNCED], []),
        ([*FAILED, "wrote 10 0", *SYNCED], ["error after the fault"]),
    ],
)  # fmt: skip
def test_an_error_after_the_fault_needs_bytes_that_may_be_lost(
    lines: list[str], kinds: list[str], tmp_path: Path
) -> None:
    ranks = logs(GOOD[1000:1100])
    ranks[0].notes |= {"fault-begins": 1, "fault-ended": 2}
    ranks[0].outcomes[5] = Outcome(50, 55, 32)
    replay = Replay(plan_with_fault("fsync"), ranks)
    found = check_errors(plan_with_fault("fsync"), replay, unsafe_after_sync(lines, tmp_path))
    assert [violation.kind for violation in found] == kinds


# ---- plans


def test_a_seed_determines_the_plan() -> None:
    mpis = ["mpich", "openmpi"]
    assert make_plan(7, mpis) == make_plan(7, mpis) != make_plan(8, mpis)
    assert {make_plan(seed, mpis).fault for seed in range(200)} == set(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_operations_use_open_files(fault: str) -> None:
    """A plan uses and closes only open files, and closes all of them at its end."""
    for seed in range(20):
        plan = make_plan(seed, ["mpich"], fault=fault)
        opened: set[int] = set()
        for operation in plan.operations:
            if operation.kind == "open":
                assert operation.slot() not in opened
                opened.add(operation.slot())
            elif operation.kind in ("write", "write_all", "strided", "read", "sync", "size", "close"):
                assert operation.slot() in opened
                opened -= {operation.slot()} if operation.kind == "close" else set()
        assert not opened or fault == "dead_rank"
