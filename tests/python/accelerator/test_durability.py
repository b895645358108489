"""Acknowledged writes are never lost: files that are renamed, removed, changed by others, or opened in hundreds.

The cases are in tests/engines/durability and check their own bytes. The same program under the MPI's own I/O validates
them.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from durability import (
    NEVER_DRAIN,
    RANKS,
    TESTED,
    check_passed,
    error_classes,
    fault_settings,
    in_acceptance,
    mounted,
    needs_root,
    run_case,
)

pytestmark = pytest.mark.programs

NAMES = [
    "renamed-while-open",
    "renamed-then-opened",
    "renamed-over",
    "folder-moved-while-open",
    "replaced-while-open",
    "unlinked-while-read",
    "deleted-while-read",
    "unlinked-scratch",
    "linked-and-deleted-while-open",
    "linked-and-deleted",
    "linked-and-deleted-on-close",
    "link-deleted",
    "link-deleted-on-close",
]
# ROMIO deletes what has the name of the open when it closes the file, also if that is another file by then.
STRICTER_THAN_STOCK = ["renamed-and-deleted-on-close"]
# Each rank has handles of its own, or opens what others have closed.
INDEPENDENT_OPENS = [
    "two-communicators",
    "two-communicators-reopened",
    "truncated-by-another-handle",
    "error-codes",
]
HANDLES = [
    "renamed-between-openings",
    "read-after-an-own-close",
    "read-after-a-cut",
    "cut-through-another-handle",
    "no-type",
]
REOPENED = ["reopened-by-one", "reopened-by-all"]
ALONE = [
    "alone-own-parts",
    "alone-overwritten",
    "alone-beside-handles",
    "alone-after-all",
    "alone-cut-after-all",
    "alone-cut",
    "alone-cut-beside-handles",
]
UNREADABLE = ["read-folder", "read-memory", "read-proc"]
FEW_DESCRIPTORS = {"files-in-turn": 64, "last-descriptors": 200}
MANY_FILES = {"files-300": 1024, "files-512": 1024, "shared-pointers": 4096}
CHECKPOINTS = ["checkpoints-deleted", "checkpoints-unlinked"]
OTHER_CASES = ["changed-often", "preallocated", "contested-and-renamed"]
MAY_FALL_BACK = {"ASSAY_IO_REQUIRE": "0"}  # to the MPI's own I/O

NODES = ["one-node", "a-node-each"]
nodes = pytest.mark.parametrize("ranks_per_node", ["0", "1"], ids=NODES)
mpis = pytest.mark.parametrize("mpi", TESTED)


# It validates the cases. ROMIO preallocates by writing, and opens a folder without an error. The cases allow for both.
@in_acceptance
@pytest.mark.parametrize(
    "name",
    [*NAMES, *INDEPENDENT_OPENS, *REOPENED, *ALONE, *UNREADABLE, *FEW_DESCRIPTORS, *MANY_FILES, *OTHER_CASES],
)
def test_stock_mpi_passes_the_cases(name: str, data: Path) -> None:
    check_passed(run_case("mpich", name, data, None, FEW_DESCRIPTORS.get(name, 0)), name)


@pytest.mark.parametrize("ranks_per_node", ["0", pytest.param("1", marks=in_acceptance)], ids=NODES)
@pytest.mark.parametrize(
    "drain",
    [pytest.param({}, marks=in_acceptance), NEVER_DRAIN],
    ids=["drained-meanwhile", "drained-at-close"],
)
@pytest.mark.parametrize("name", [*NAMES, *STRICTER_THAN_STOCK])
@mpis
def test_files_renamed_or_removed_while_their_data_drain(
    mpi: str, name: str, drain: dict[str, str], ranks_per_node: str, data: Path, shm: Path
) -> None:
    result = run_case(mpi, name, data, shm, ASSAY_IO_RANKS_PER_NODE=ranks_per_node, **drain)
    check_passed(result, name)
    assert list(shm.iterdir()) == [] and "assay io" not in result.stderr


@pytest.mark.parametrize("name", MANY_FILES)
@mpis
def test_hundreds_of_open_files_keep_their_data(mpi: str, name: str, data: Path, shm: Path) -> None:
    """With the limit of descriptors that most systems have, each file gets its own bytes."""
    check_passed(run_case(mpi, name, data, shm, MANY_FILES[name], **MAY_FALL_BACK), name)


@pytest.mark.parametrize("name", FEW_DESCRIPTORS)
@mpis
def test_files_within_a_low_limit_of_descriptors(mpi: str, name: str, data: Path, shm: Path) -> None:
    check_passed(run_case(mpi, name, data, shm, FEW_DESCRIPTORS[name], **MAY_FALL_BACK), name)


@mpis
def test_mpi_finalize_writes_many_files_that_failed_and_were_moved(mpi: str, data: Path, shm: Path) -> None:
    faults = fault_settings(data, "write:EIO", name="many*", WHILE=str(data / "fault"))
    result = run_case(mpi, "moved-after-failed-close", data, shm, faults=faults, **NEVER_DRAIN)
    check_passed(result, "moved-after-failed-close")
    files = list((data / "elsewhere").iterdir())
    assert len(files) == 80 and list(shm.iterdir()) == []
    for file in files:
        number = int(file.name.removeprefix("many"))
        assert array("i", file.read_bytes()).tolist() == [number * RANKS, number * RANKS + 1], file


@needs_root
@pytest.mark.parametrize("name", CHECKPOINTS)
@mpis
def test_deleted_files_give_their_space_back(mpi: str, name: str, tmp_path: Path, shm: Path) -> None:
    """128 MiB of checkpoints, one or two at a time, on 64 MiB."""
    with mounted("tmpfs", tmp_path / "small", "-o", "size=64m") as small:
        check_passed(run_case(mpi, name, small, shm), name)


@mpis
def test_changes_by_others_are_seen(mpi: str, data: Path, shm: Path) -> None:
    """300 times both ranks open a changed file at once. Where each has a processor, they look it up in the same
    microsecond. A fault appears in most runs on a quiet machine, not in all."""
    faults = fault_settings(data, "", name="changed", MEET=str(data / "meeting"))
    result = run_case(mpi, "changed-often", data, shm, faults=faults)
    check_passed(result, "changed-often")


@needs_root
@mpis
def test_changes_by_others_are_seen_where_times_are_coarse(mpi: str, tmp_path: Path, shm: Path) -> None:
    """A ramfs has times of the kernel's tick in every version of Linux."""
    with mounted("ramfs", tmp_path / "coarse") as coarse:
        check_passed(run_case(mpi, "changed-a-few-times", coarse, shm), "changed-a-few-times")


# Open MPI's own I/O, which these files are left to, reports success where a folder or /proc/self/mem cannot be read.
@pytest.mark.parametrize(
    ("mpi", "name"), [("mpich", name) for name in UNREADABLE] + [("openmpi", "read-proc")]
)
def test_special_files_are_read_or_refused(mpi: str, name: str, data: Path, shm: Path) -> None:
    check_passed(run_case(mpi, name, data, shm, **MAY_FALL_BACK), name)


@nodes
@pytest.mark.parametrize("name", INDEPENDENT_OPENS)
@mpis
def test_ranks_that_open_by_themselves(
    mpi: str, name: str, ranks_per_node: str, data: Path, shm: Path
) -> None:
    check_passed(run_case(mpi, name, data, shm, ASSAY_IO_RANKS_PER_NODE=ranks_per_node), name)


@mpis
def test_a_sync_without_a_rank_leaves_its_newer_bytes(mpi: str, data: Path, shm: Path) -> None:
    env = {"ASSAY_IO_RANKS_PER_NODE": "2", **NEVER_DRAIN}
    check_passed(
        run_case(mpi, "newest-of-a-rank-outside", data, shm, ranks=3, **env), "newest-of-a-rank-outside"
    )


@nodes
@pytest.mark.parametrize("level", ["file", "memory"])
@pytest.mark.parametrize("name", REOPENED)
@mpis
def test_an_open_after_close_and_barrier_sees_all_nodes(
    mpi: str, name: str, level: str, ranks_per_node: str, data: Path, shm: Path
) -> None:
    settings = {"ASSAY_IO_RANKS_PER_NODE": ranks_per_node, "ASSAY_IO_UNTIL": level}
    check_passed(run_case(mpi, name, data, shm, **settings), name)


@nodes
@pytest.mark.parametrize("level", ["file", "memory"])
@pytest.mark.parametrize("name", ALONE)
@mpis
def test_nodes_that_open_a_file_by_themselves_see_size_and_bytes_of_all(
    mpi: str, name: str, level: str, ranks_per_node: str, data: Path, shm: Path
) -> None:
    settings = {"ASSAY_IO_RANKS_PER_NODE": ranks_per_node, "ASSAY_IO_UNTIL": level}
    check_passed(run_case(mpi, name, data, shm, ranks=3, **settings), name)


@nodes
@pytest.mark.parametrize("level", ["file", "memory"])
@pytest.mark.parametrize("name", HANDLES)
@mpis
def test_handles_and_openings_of_a_file_agree(
    mpi: str, name: str, level: str, ranks_per_node: str, data: Path, shm: Path
) -> None:
    settings = {"ASSAY_IO_RANKS_PER_NODE": ranks_per_node, "ASSAY_IO_UNTIL": level, "ASSAY_IO_DIRECT": "0"}
    check_passed(run_case(mpi, name, data, shm, **settings), name)


@pytest.mark.parametrize("name", ["changed-by-another-program", "cut-through-another-handle", "no-type"])
@mpis
def test_handles_of_a_file_without_the_store_agree(mpi: str, name: str, data: Path, shm: Path) -> None:
    check_passed(run_case(mpi, name, data, shm), name)


@nodes
@mpis
def test_what_another_program_changes_between_two_openings_is_seen(
    mpi: str, ranks_per_node: str, data: Path, shm: Path
) -> None:
    name, settings = "changed-by-another-program", {"ASSAY_IO_DIRECT": "0"}
    check_passed(run_case(mpi, name, data, shm, ASSAY_IO_RANKS_PER_NODE=ranks_per_node, **settings), name)


@pytest.mark.parametrize("direct", ["0", "1"], ids=["store", "direct"])
def test_open_mpi_takes_a_name_with_a_colon_as_it_is(direct: str, data: Path, shm: Path) -> None:
    check_passed(
        run_case("openmpi", "name-with-a-colon", data, shm, ASSAY_IO_DIRECT=direct), "name-with-a-colon"
    )


@nodes
@pytest.mark.parametrize("direct", ["0", "1"], ids=["store", "direct"])
@mpis
def test_libraries_close_their_files_in_mpi_finalize(
    mpi: str, direct: str, ranks_per_node: str, data: Path, shm: Path
) -> None:
    settings = {"ASSAY_IO_RANKS_PER_NODE": ranks_per_node, "ASSAY_IO_DIRECT": direct}
    check_passed(run_case(mpi, "closed-in-finalize", data, shm, **settings), "closed-in-finalize")
    assert {path.name: path.read_bytes() for path in data.iterdir()} == dict.fromkeys(
        ("log0", "log1"), b"beginend!"
    )
    assert list(shm.iterdir()) == []


@nodes
@mpis
def test_a_deleted_link_leaves_the_file_that_was_closed(
    mpi: str, ranks_per_node: str, data: Path, shm: Path
) -> None:
    settings = {"ASSAY_IO_RANKS_PER_NODE": ranks_per_node, "ASSAY_IO_UNTIL": "memory"}
    check_passed(run_case(mpi, "link-deleted", data, shm, **settings), "link-deleted")


@mpis
def test_a_bypass_keeps_what_other_handles_have_written(mpi: str, data: Path, shm: Path) -> None:
    check_passed(run_case(mpi, "bypass-beside-a-writer", data, shm, **NEVER_DRAIN), "bypass-beside-a-writer")


@mpis
def test_preallocated_space_is_allocated(mpi: str, data: Path, shm: Path) -> None:
    check_passed(run_case(mpi, "preallocated", data, shm), "preallocated")


@needs_root
@mpis
def test_preallocation_finds_a_full_file_system(mpi: str, tmp_path: Path, shm: Path) -> None:
    with mounted("tmpfs", tmp_path / "small", "-o", "size=16m") as small:
        result = run_case(mpi, "preallocated-too-much", small, shm)
    assert set(error_classes(result, "preallocate")) == {"no-space"}, result.stderr
