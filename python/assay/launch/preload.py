"""Preloads a library into the ranks of a user's command line, for any launcher.

The launcher itself should not load the library, so its options pass the environment on to the ranks (Open MPI's
``-x``, Hydra's ``-genv``). With an unknown launcher the whole command gets the environment; the library permits that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.launch.engines import flavours

VERSION_LIMIT_S = 120  # against hangs
LAUNCHERS = re.compile(r"(mpirun|mpiexec|orterun|prterun|srun)(\.[a-z]+|\.hydra)?$")


def launcher_of(command: Sequence[str]) -> str | None:
    """The name of the launcher in a command line; None if there is none that is known."""
    match = LAUNCHERS.match(Path(command[0]).name)
    return match[1] if match else None


def mpi_of(command: Sequence[str]) -> str | None:
    """The MPI of a command line, among those that Assay is built for; None if it cannot be determined."""
    if launcher_of(command) not in (None, "srun"):
        return _mpi_of_launcher(command[0])
    for argument in command:
        program = shutil.which(argument)
        if program and (match := _mpi_of_program(program)):
            return match
    return None


def with_environment(command: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment that pass ``env`` to the ranks."""
    launcher = launcher_of(command)
    if launcher in (None, "srun"):  # srun passes its own environment on
        return list(command), dict(env)
    if _mpi_of_launcher(command[0]) == "openmpi":
        options = [argument for name, value in env.items() for argument in ("-x", f"{name}={value}")]
    else:
        options = [argument for name, value in env.items() for argument in ("-genv", name, value)]
    return [command[0], *options, *command[1:]], {}


def _version(launcher: str) -> str:
    try:
        result = subprocess.run(
            [launcher, "--version"], capture_output=True, text=True, timeout=VERSION_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout + result.stderr


def _mpi_of_launcher(launcher: str) -> str | None:
    version = _version(launcher).lower()
    if "open mpi" in version or "openrte" in version:
        return "openmpi"
    if "hydra" not in version and "mpich" not in version:
        return None
    wheel = (shutil.which(launcher) or "").startswith(f"{Path('.venv/bin').resolve()}{os.sep}")
    return "mpich-wheel" if wheel and "mpich-wheel" in flavours() else "mpich"


def _mpi_of_program(program: str) -> str | None:
    """The MPI that a program is linked with."""
    try:
        result = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=VERSION_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"libmpi(?:ch)?\.so\.(\d+) => (\S+)", result.stdout)
    if not match:
        return None
    if int(match[1]) >= 40:
        return "openmpi"
    return "mpich-wheel" if "site-packages" in match[2] or "/.venv/" in match[2] else "mpich"
