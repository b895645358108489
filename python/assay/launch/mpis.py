"""The MPI of a launcher, and its library.

In a checkout an engine is linked with the MPI that was found when it was built. The wheel's engines are built for an
ABI ("openmpi", "mpich") and load the library that belongs to the launcher (``engines/probe/abi_main.c``).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from assay.errors import REPAIR, UserError
from assay.launch.engines import engine_library, flavours, probe
from assay.records.text import name_text

VERSION_LIMIT_S = 120  # against hangs
ABIS = ("openmpi", "mpich")
# The libraries of an ABI; Debian's MPICH has a name of its own.
SONAMES = {"openmpi": ["libmpi.so.40"], "mpich": ["libmpi.so.12", "libmpich.so.12"]}
LIBRARY = re.compile(r"libmpi(?:ch)?\.so\.\d")
MAX_WORDS = 80  # characters of a launcher's own words
# Where an MPI's library is, below the folder that has its bin: Intel's has "release", Debian the name of the processor.
LIBRARY_FOLDERS = ("lib", "lib64", "lib/release", "lib/x86_64-linux-gnu")


def is_for_abi() -> bool:
    """Whether the engines are for an ABI, as in the wheel."""
    return any(engine_library(probe_name).is_file() for probe_name in (f"assay-probe-{abi}" for abi in ABIS))


def flavour_for(mpi: str) -> str:
    """The engine's flavour that serves an MPI: its own, or that of its ABI."""
    return "mpich" if mpi not in flavours() and is_for_abi() and mpi != "openmpi" else mpi


def find_program(name: str) -> str | None:
    """A launcher of MPI on PATH, else beside this Python, where pip installs an MPI."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def kind_of(launcher: str) -> str | None:
    """The MPI that a launcher belongs to, by its version: "openmpi", "intelmpi" or "mpich"; None for any other."""
    text = _version(launcher).lower()
    if "open mpi" in text or "openrte" in text:
        return "openmpi"
    if "intel(r) mpi" in text:
        return "intelmpi"
    return "mpich" if "hydra" in text or "mpich" in text else None


@functools.cache
def _version(launcher: str) -> str:
    try:
        result = subprocess.run(
            [launcher, "--version"], capture_output=True, text=True, errors="replace", timeout=VERSION_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout + result.stderr


def major_version(launcher: str) -> int:
    """The first number of a launcher's version; 0 if it tells none."""
    match = re.search(r"\b(\d+)\.\d+", _version(launcher))
    return int(match[1]) if match else 0


def first_of_kind(names: Sequence[str], kind: str) -> str | None:
    """The first of the programs that belongs to that MPI."""
    found = (program for name in names if (program := find_program(name)))
    return next((program for program in found if kind_of(program) == kind), None)


def chosen_program() -> str | None:
    """The mpirun or mpiexec that this user has chosen: the first on PATH."""
    return find_program("mpirun") or find_program("mpiexec")


def library_beside(launcher: str, abi: str) -> Path | None:
    """The MPI library in the installation of a launcher; None if it is elsewhere, where the dynamic linker looks."""
    for program in (Path(launcher), Path(launcher).resolve()):
        for folder in LIBRARY_FOLDERS:
            for soname in SONAMES[abi]:
                path = program.parent.parent / folder / soname
                if path.is_file():
                    return path
    return None


def describe_mpi(launcher: str) -> str:
    """A launcher for a refusal: its path, its own words, and the libraries of MPI in its installation."""
    words = next((line.strip() for line in _version(launcher).splitlines() if line.strip()), "")
    text = f"says '{name_text(words)[:MAX_WORDS]}'" if words else "tells no version"
    folders = {
        program.parent.parent / below
        for program in (Path(launcher), Path(launcher).resolve())
        for below in LIBRARY_FOLDERS
    }
    found = [path for folder in folders for path in folder.glob("libmpi*.so.*") if LIBRARY.match(path.name)]
    sonames = {
        path.resolve(): path for path in sorted(found, key=lambda path: -len(path.name))
    }  # the shortest name
    libraries = " and ".join(str(path) for path in sonames.values()) or "no libmpi.so beside it"
    return f"{launcher} ({text}; {libraries})"


def rank_command(engine: Path, flavour: str, launcher: str | None, arguments: Sequence[str]) -> list[str]:
    """The command of a rank. ``launcher``: the program that starts it, None if that belongs to no MPI (srun)."""
    variables = _variables(engine, flavour, launcher)
    prefix = ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []
    return [*prefix, str(engine), *arguments]


def _variables(engine: Path, flavour: str, launcher: str | None) -> dict[str, str]:
    library = (
        library_beside(launcher, flavour) if launcher and engine_library(engine.name).is_file() else None
    )
    return {"ASSAY_MPI_LIBRARY": str(library)} if library else {}


@functools.cache
def loaded_library(flavour: str, launcher: str | None) -> str:
    """The library that an engine for an ABI loads on this host, and its version. Raises UserError if it loads none."""
    engine = probe(flavour)
    variables = {**os.environ, **_variables(engine, flavour, launcher)}
    command = [str(engine), "--mpi-library"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=VERSION_LIMIT_S, env=variables
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{engine} does not answer: {error}", REPAIR) from None
    if result.returncode:
        what, _, fix = result.stderr.strip().rpartition("\n")[2].partition("; fix: ")
        raise UserError(
            what.removeprefix(f"{engine.name}: ") or f"{engine} ended by {result.returncode}", fix
        )
    return " ".join(result.stdout.split())


def missing_library(flavour: str, launcher: str | None) -> str | None:
    """Why an engine cannot be used with a launcher's MPI; None if it can, or if it is linked with its MPI."""
    if not is_for_abi():
        return None
    try:
        loaded_library(flavour, launcher)
    except UserError as error:
        return error.what
    return None
