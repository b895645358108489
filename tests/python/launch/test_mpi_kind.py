"""The kind of MPI of a compiler wrapper, which CMake finds by the macros of its mpi.h and not by its paths."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "cmake" / "MpiKind.cmake"
needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="the engines are built with CMake")


def kind(wrapper: str | Path, tmp_path: Path) -> str:
    script = tmp_path / "kind.cmake"
    script.write_text(f'include("{SCRIPT}")\nassay_mpi_kind("{wrapper}" kind)\nmessage("kind=${{kind}}")\n')
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, timeout=240, check=True)
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
def test_the_macros_of_the_header_decide(macros: str, expected: str, tmp_path: Path) -> None:
    wrapper = tmp_path / "mpicxx"
    wrapper.write_text(f"#!/bin/sh\ncat <<'END'\n{macros}\nEND\n")
    wrapper.chmod(0o755)
    assert kind(wrapper, tmp_path) == expected


@needs_cmake
@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_the_kinds_of_the_mpis_of_this_machine(name: str, tmp_path: Path) -> None:
    wrapper = shutil.which(f"mpicxx.{name}")
    if wrapper is None:
        pytest.skip(f"no mpicxx.{name} here")
    assert kind(wrapper, tmp_path) == name


@needs_cmake
def test_a_missing_wrapper_has_no_kind(tmp_path: Path) -> None:
    assert kind("/nonexistent/mpicxx", tmp_path) == ""


PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(finds LANGUAGES NONE)
include("{folder}/FindMpis.cmake")
get_target_property(compile assay_mpi_mpich INTERFACE_COMPILE_OPTIONS)
get_target_property(link assay_mpi_mpich INTERFACE_LINK_LIBRARIES)
get_target_property(paths assay_mpi_mpich INTERFACE_LINK_OPTIONS)
message(NOTICE "${{compile}} ${{link}} ${{paths}}")
"""


def mpich_flags(tmp_path: Path, **environment: str) -> str:
    """The compiler and linker flags of CMake's target for MPICH, in this environment."""
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(folder=SCRIPT.parent))
    done = subprocess.run(
        ["cmake", "-S", tmp_path, "-B", tmp_path / "built"],
        capture_output=True, text=True, timeout=240, check=True, env={**os.environ, **environment},
    )  # fmt: skip
    return next(line for line in done.stderr.splitlines() if line.startswith("-I"))


@needs_cmake
def test_the_folder_of_crays_mpi_comes_from_its_module(tmp_path: Path) -> None:
    cray = tmp_path / "cray"
    (cray / "include").mkdir(parents=True)
    (cray / "include" / "mpi.h").write_text("")
    assert mpich_flags(tmp_path, CRAY_MPICH_DIR=str(cray)) == (
        f"-I{cray}/include -L{cray}/lib -lmpi -Wl,-rpath,{cray}/lib"
    )


@needs_cmake
def test_the_flags_of_crays_mpi_come_from_its_compiler(tmp_path: Path) -> None:
    """Cray's compiler is planted: a CC that answers only --cray-print-opts=all."""
    wrapper = tmp_path / "bin" / "CC"
    wrapper.parent.mkdir()
    flags = "-I/opt/cray/pe/mpich/include -L/opt/cray/pe/mpich/lib -lmpi_gnu_91 -lsci"
    wrapper.write_text(f'#!/bin/sh\n[ "$1" = --cray-print-opts=all ] && echo "{flags}"\n')
    wrapper.chmod(0o755)
    flags_of_mpich = mpich_flags(tmp_path, PATH=f"{wrapper.parent}:{os.environ['PATH']}", CRAY_MPICH_DIR="")
    assert flags_of_mpich.startswith(
        "-I/opt/cray/pe/mpich/include -L/opt/cray/pe/mpich/lib -lmpi_gnu_91 -lsci"
    )
    assert flags_of_mpich.endswith("-Wl,-rpath,/opt/cray/pe/mpich/lib")


@needs_cmake
def test_another_compiler_called_cc_is_not_crays(tmp_path: Path) -> None:
    if shutil.which("mpicxx.mpich") is None:
        pytest.skip("no mpicxx.mpich here")
    wrapper = tmp_path / "bin" / "CC"
    wrapper.parent.mkdir()
    wrapper.write_text("#!/bin/sh\necho unknown option >&2\nexit 1\n")
    wrapper.chmod(0o755)
    flags_of_mpich = mpich_flags(tmp_path, PATH=f"{wrapper.parent}:{os.environ['PATH']}", CRAY_MPICH_DIR="")
    assert "cray" not in flags_of_mpich
