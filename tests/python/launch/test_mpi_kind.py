"""Which MPI a compiler wrapper belongs to, by the macros of its mpi.h, whatever its paths are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "cmake" / "MpiKind.cmake"
needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="the engines are built with CMake")


def kind(wrapper: str | Path, tmp_path: Path) -> str:
    script = tmp_path / "kind.cmake"
    script.write_text(f'include("{SCRIPT}")\nassay_mpi_kind("{wrapper}" kind)\nmessage("kind=${{kind}}")\n')
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, timeout=120, check=True)
    return done.stderr.strip().removeprefix("kind=")


@needs_cmake
@pytest.mark.parametrize(
    ("macros", "expected"),
    [
        ("#define OPEN_MPI 1\n#define OMPI_MAJOR_VERSION 5", "openmpi"),  # /opt/hpcx/ompi, -lmpi
        ('#define MPICH_VERSION "4.2.1"', "mpich"),
        ('#define I_MPI_VERSION "2021.12"', "mpich"),
        ('#define MVAPICH2_VERSION "2.3.7"', "mpich"),
        ("#define MPI_VERSION 3", ""),
    ],
)
def test_the_header_decides(macros: str, expected: str, tmp_path: Path) -> None:
    wrapper = tmp_path / "mpicxx"
    wrapper.write_text(f"#!/bin/sh\ncat <<'END'\n{macros}\nEND\n")
    wrapper.chmod(0o755)
    assert kind(wrapper, tmp_path) == expected


@needs_cmake
@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_the_mpis_of_this_machine(name: str, tmp_path: Path) -> None:
    wrapper = shutil.which(f"mpicxx.{name}")
    if wrapper is None:
        pytest.skip(f"no mpicxx.{name} here")
    assert kind(wrapper, tmp_path) == name


@needs_cmake
def test_a_wrapper_that_is_none_has_no_kind(tmp_path: Path) -> None:
    assert kind("/nonexistent/mpicxx", tmp_path) == ""
