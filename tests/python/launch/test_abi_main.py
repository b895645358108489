"""The program that starts an engine of the wheel: it loads the site's MPI, then the engine, and says in one line what
it cannot load. MPI and engine are planted libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "engines" / "probe" / "abi_main.c"
MPICH = """int MPI_Init_thread(void) { return 0; }
int MPI_Get_library_version(char* text, int* length) {
    return __builtin_strcpy(text, "MPICH Version:\\t9.9\\nmore"), *length = 18, 0; }"""
OPEN_MPI = "int ompi_mpi_comm_world, MPI_Init_thread;"
ENGINE = """#include <stdio.h>
int MPI_Init_thread(void);
int main(int argc, char** argv) {
    if (argc == 1) return MPI_Init_thread();
    return puts("described"), 0; }"""

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="compiles the program with gcc")


def compiled(path: Path, source: str, *options: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-x", "c", "-", "-o", str(path), *options]
    subprocess.run(command, input=source, text=True, check=True, timeout=240)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's folder: the program for MPICH's ABI with its engine; "no engine" has the program alone."""
    folder = tmp_path_factory.mktemp("a package")
    compiled(folder / "bin" / "assay-probe-mpich", SOURCE.read_text())
    compiled(folder / "bin" / "libassay-probe-mpich.so", ENGINE, "-shared", "-fPIC")
    compiled(folder / "no engine" / "assay-probe-mpich", SOURCE.read_text())
    compiled(folder / "mpi" / "libmpi.so.12", MPICH, "-shared", "-fPIC")
    compiled(folder / "other" / "libmpi.so.12", OPEN_MPI, "-shared", "-fPIC")
    (folder / "no library").mkdir()
    (folder / "no library" / "libmpi.so.12").write_text("a note")
    for damaged, whole in (("cut mpi", "mpi/libmpi.so.12"), ("cut engine", "bin/libassay-probe-mpich.so")):
        cut = folder / damaged / Path(whole).name
        cut.parent.mkdir()
        cut.write_bytes((folder / whole).read_bytes()[:1000])
    compiled(folder / "cut engine" / "assay-probe-mpich", SOURCE.read_text())
    return folder


def run(
    folder: Path, *arguments: str, program: str = "bin", env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    cleared = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    # No MPI of this machine: the linker finds the planted ones alone.
    first = {"LD_LIBRARY_PATH": str(folder / "no library")}
    command = [str(folder / program / "assay-probe-mpich"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**cleared, **first, **env}
    )


def test_the_library_that_the_launcher_names_is_loaded(folder: Path) -> None:
    library = folder / "mpi" / "libmpi.so.12"
    result = run(folder, "--mpi-library", env={"ASSAY_MPI_LIBRARY": str(library)})
    assert (result.returncode, result.stdout) == (0, f"{library}: MPICH Version: 9.9\n")
    assert run(folder, env={"ASSAY_MPI_LIBRARY": str(library)}).returncode == 0


def test_a_host_without_that_path_loads_its_own(folder: Path) -> None:
    env = {"ASSAY_MPI_LIBRARY": "/nonexistent/libmpi.so.12", "LD_LIBRARY_PATH": str(folder / "mpi")}
    result = run(folder, "--mpi-library", env=env)
    assert result.returncode == 0 and str(folder / "mpi") in result.stdout


def test_an_engine_describes_itself_without_an_mpi(folder: Path) -> None:
    library = {"ASSAY_MPI_LIBRARY": str(folder / "no library" / "libmpi.so.12")}
    assert run(folder, "--describe", env=library).stdout == "described\n"


@pytest.mark.parametrize(
    ("library", "program", "reason"),
    [
        (
            "no library",
            "bin",
            "no library of MPICH's ABI (MPICH, Intel MPI, MVAPICH, Cray MPICH) can be loaded",
        ),
        ("other", "bin", "the MPI library is not of MPICH's ABI"),
        ("cut mpi", "bin", "a library of MPI or of Assay is damaged"),
        ("mpi", "cut engine", "a library of MPI or of Assay is damaged"),
        ("mpi", "no engine", "the engine cannot be loaded"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(
    library: str, program: str, reason: str, folder: Path
) -> None:
    env = {"ASSAY_MPI_LIBRARY": str(folder / library / "libmpi.so.12")}
    result = run(folder, "run", program=program, env=env)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith(f"assay-probe-mpich: {reason}") and "; fix: " in result.stderr
    assert result.stderr.count("\n") == 1
