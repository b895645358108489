"""A user's own command line with a library in front of its ranks, whatever launches them.

The launcher itself should not carry the library: its words get what makes it pass an environment on (Open MPI's
``-x``, Hydra's ``-genv``). Where no launcher is known, the whole command carries it; the library is made for that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.launch.engines import flavours

ASK_LIMIT_S = 10
LAUNCHERS = re.compile(r"(mpirun|mpiexec|orterun|prterun|srun)(\.[a-z]+|\.hydra)?$")


def launcher_of(words: Sequence[str]) -> str | None:
    """The name of the launcher that a command line begins with."""
    found = LAUNCHERS.match(Path(words[0]).name)
    return found[1] if found else None


def mpi_of(words: Sequence[str]) -> str | None:
    """Which of the MPIs that Assay is built for a command line runs under; None when that cannot be told."""
    if launcher_of(words) not in (None, "srun"):
        return _of_launcher(words[0])
    for word in words:
        program = shutil.which(word)
        if program and (found := _of_program(program)):
            return found
    return None


def with_environment(words: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The words and the environment that bring ``env`` to the ranks."""
    launcher = launcher_of(words)
    if launcher in (None, "srun"):  # srun passes its own environment on
        return list(words), dict(env)
    if _of_launcher(words[0]) == "openmpi":
        passed = [word for name, value in env.items() for word in ("-x", f"{name}={value}")]
    else:
        passed = [word for name, value in env.items() for word in ("-genv", name, value)]
    return [words[0], *passed, *words[1:]], {}


def _version(launcher: str) -> str:
    try:
        told = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=ASK_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout + told.stderr


def _of_launcher(launcher: str) -> str | None:
    version = _version(launcher).lower()
    if "open mpi" in version or "openrte" in version:
        return "openmpi"
    if "hydra" not in version and "mpich" not in version:
        return None
    wheel = (shutil.which(launcher) or "").startswith(f"{Path('.venv/bin').resolve()}{os.sep}")
    return "mpich-wheel" if wheel and "mpich-wheel" in flavours() else "mpich"


def _of_program(program: str) -> str | None:
    """By the MPI library that it is linked with."""
    try:
        told = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=ASK_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"libmpi(?:ch)?\.so\.(\d+) => (\S+)", told.stdout)
    if not found:
        return None
    if int(found[1]) >= 40:
        return "openmpi"
    return "mpich-wheel" if "site-packages" in found[2] or "/.venv/" in found[2] else "mpich"
