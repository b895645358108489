"""Files on NFS and SMB are left to the MPI, with one line. The type of the file system is planted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from durability import codes, has_blocks, planted, run_case
from mpi_programs import memory_folder

pytestmark = pytest.mark.programs

NOT_ACCELERATED = "use the MPI's own I/O"


@pytest.fixture
def shm() -> Iterator[Path]:
    yield from memory_folder()


@pytest.mark.parametrize(
    ("type_number", "name"), [("6969", "NFS"), ("FF534D42", "SMB"), ("FE534D42", "SMB"), ("517B", "SMB")]
)
def test_the_mpi_does_the_io(type_number: str, name: str, tmp_path: Path, shm: Path) -> None:
    faults = planted(tmp_path, "", TYPE=type_number)
    result = run_case("mpich", "closed", tmp_path, shm, faults=faults, ASSAY_IO_REQUIRE="0")
    assert result.returncode == 0, result.stdout + result.stderr
    assert set(codes(result, "close")) == {"success"}, result.stdout
    assert has_blocks(tmp_path / "data", 1)
    assert result.stderr.count(f"files on {name} {NOT_ACCELERATED}") == 1, result.stderr


def test_other_file_systems_are_accelerated(tmp_path: Path, shm: Path) -> None:
    faults = planted(tmp_path, "", TYPE="BD00BD0")  # Lustre
    result = run_case("mpich", "closed", tmp_path, shm, faults=faults)
    assert result.returncode == 0, result.stdout + result.stderr
    assert NOT_ACCELERATED not in result.stderr
