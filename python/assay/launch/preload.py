"""Preloads a library into the ranks of a user's command line, for any launcher.

The launcher itself should not load the library, so its options pass the environment on to the ranks (Open MPI's
``-x``, Hydra's ``-genv``). With an unknown launcher the whole command gets the environment; the library permits that.

A program into which no library can be loaded (obstacle_in()) gets none. The engine decides that, for this launch as for
what ranks start themselves and for the recorders.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from assay.launch.engines import flavours
from assay.launch.mpis import flavour_for, kind_of
from assay.launch.stores import run_tool

VERSION_LIMIT_S = 120  # against hangs
PRELOAD = "LD_PRELOAD"
# The library of a sanitizer ends the program unless it is the first one.
SANITIZERS = re.compile(r"lib(asan|tsan|lsan|hwasan|ubsan)\.so|libclang_rt\.")
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


@dataclass(frozen=True)
class Obstacle:
    """A program into which no library of Assay can be loaded, and why: "is statically linked: ..."."""

    program: str
    reason: str


def obstacle_in(command: Sequence[str]) -> Obstacle | None:
    """The first program of a command line that no library can be loaded into: the ranks' or, without a launcher, the
    command itself. All ranks do without the library then, because the accelerator needs it in each of them."""
    launched = launcher_of(command) is not None
    programs = _programs(command) if launched else [command[0]] if shutil.which(command[0]) else []
    if not programs:
        return None
    for line in run_tool(["obstacles", *programs], VERSION_LIMIT_S).splitlines():
        obstacle = msgspec.json.decode(line, type=Obstacle)
        if obstacle.reason:
            return obstacle
    return None


def join_libraries(ours: str, theirs: str) -> str:
    """The value of LD_PRELOAD with our libraries before the user's own. Those of sanitizers stay first."""
    paths = list(dict.fromkeys(path for path in re.split("[: ]+", f"{ours}:{theirs}") if path))
    sanitizers = [path for path in paths if SANITIZERS.match(Path(path).name)]
    return ":".join([*sanitizers, *(path for path in paths if path not in sanitizers)])


def with_environment(command: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment that pass ``env`` to the ranks. Libraries that the launcher's options
    preload are kept."""
    launcher = launcher_of(command)
    if launcher in (None, "srun"):  # srun passes its own environment on
        return list(command), dict(env)
    env = dict(env)
    if _mpi_of_launcher(command[0]) == "openmpi":
        arguments = _without_exported_libraries(command, env)
        options = [argument for name, value in env.items() for argument in ("-x", f"{name}={value}")]
    else:
        arguments = _with_joined_libraries(command, env)
        options = [argument for name, value in env.items() for argument in ("-genv", name, value)]
    return [command[0], *options, *arguments], {}


def _contexts(command: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """The parts of a launcher's command line that ":" separates: its options, and the program with its arguments.

    The options of all launchers are not known here, so the first argument that can be executed is the program. It may
    be an option's value (``-launcher ssh``) if it follows an option; then the next one is the program."""
    part: list[str] = []
    for argument in [*command[1:], ":"]:
        if argument != ":":
            part.append(argument)
            continue
        place = next((k for k in range(len(part)) if _is_program(part, k)), len(part))
        yield part[:place], part[place:]
        part = []


def _is_program(part: list[str], place: int) -> bool:
    follows_option = place > 0 and part[place - 1].startswith("-")
    is_certain = not follows_option or "/" in part[place]
    return is_certain and not part[place].startswith("-") and shutil.which(part[place]) is not None


def _programs(command: Sequence[str]) -> list[str]:
    """The programs of a launcher's command line, and bare words after an option that may be one."""
    found = [
        argument
        for options, program in _contexts(command)
        for argument in [*options, *program[:1]]
        if not argument.startswith("-") and shutil.which(argument)
    ]
    return list(dict.fromkeys(found))


def _joined(contexts: list[tuple[list[str], list[str]]]) -> list[str]:
    """The arguments of a launcher's command line, from its parts."""
    arguments = [argument for options, program in contexts for argument in [":", *options, *program]]
    return arguments[1:]


def _without_exported_libraries(command: Sequence[str], env: dict[str, str]) -> list[str]:
    """The arguments without Open MPI's ``-x LD_PRELOAD[=...]``, whose libraries are added to ``env``."""
    contexts = []
    for options, program in _contexts(command):
        kept: list[str] = []
        for argument in options:
            name, _, value = argument.partition("=")
            if kept[-1:] == ["-x"] and name == PRELOAD and PRELOAD in env:
                env[PRELOAD] = join_libraries(env[PRELOAD], value or os.environ.get(PRELOAD, ""))
                kept.pop()
            else:
                kept.append(argument)
        contexts.append((kept, program))
    return _joined(contexts)


def _with_joined_libraries(command: Sequence[str], env: dict[str, str]) -> list[str]:
    """The arguments with our libraries in Hydra's ``-env LD_PRELOAD ...`` and ``-genv LD_PRELOAD ...``."""
    contexts = []
    for options, program in _contexts(command):
        for k in range(2, len(options)):
            if options[k - 2].lstrip("-") in ("env", "genv") and options[k - 1] == PRELOAD and PRELOAD in env:
                options[k] = join_libraries(env[PRELOAD], options[k])
        contexts.append((options, program))
    return _joined(contexts)


def _mpi_of_launcher(launcher: str) -> str | None:
    kind = kind_of(launcher)
    if kind != "mpich":
        return "mpich" if kind == "intelmpi" else kind
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
    is_wheel = "site-packages" in match[2] or "/.venv/" in match[2]
    return flavour_for("mpich-wheel") if is_wheel else "mpich"
