"""Files on NFS and SMB are not accelerated, and one line reports it. The type of the file system is planted."""

from __future__ import annotations

from pathlib import Path

import pytest
from durability import error_classes, fault_settings, has_blocks, in_acceptance, run_case

pytestmark = pytest.mark.programs

NOT_ACCELERATED = "use the MPI's own I/O"


@pytest.mark.parametrize(
    ("type_number", "name"),
    [
        ("6969", "NFS"),
        ("FF534D42", "SMB"),
        pytest.param("FE534D42", "SMB", marks=in_acceptance),
        pytest.param("517B", "SMB", marks=in_acceptance),
    ],
)
def test_network_file_systems_use_the_mpis_own_io(
    type_number: str, name: str, tmp_path: Path, shm: Path
) -> None:
    faults = fault_settings(tmp_path, "", TYPE=type_number)
    result = run_case("mpich", "closed", tmp_path, shm, faults=faults, ASSAY_IO_REQUIRE="0")
    assert result.returncode == 0, result.stdout + result.stderr
    assert set(error_classes(result, "close")) == {"success"}, result.stdout
    assert has_blocks(tmp_path / "data", 1)
    assert result.stderr.count(f"files on {name} {NOT_ACCELERATED}") == 1, result.stderr


def test_other_file_systems_are_accelerated(tmp_path: Path, shm: Path) -> None:
    faults = fault_settings(tmp_path, "", TYPE="BD00BD0")  # Lustre
    result = run_case("mpich", "closed", tmp_path, shm, faults=faults)
    assert result.returncode == 0, result.stdout + result.stderr
    assert NOT_ACCELERATED not in result.stderr
