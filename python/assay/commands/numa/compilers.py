"""``assay numa cc``, ``c++`` and ``fortran``: compilers whose programs count every access.

The compiler is $CC, $CXX or $FC, else gcc's. With clang the loads and stores are counted by a pass of the compiler,
inline; with gcc by calls of the hooks of -fsanitize=thread, which the runtime of Assay implements.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.commands.parser import Example
from assay.errors import EXIT_PASS, UserError
from assay.launch.engines import engines_folder

if TYPE_CHECKING:
    from assay.commands.numa import Verbs

COMPILERS = {"cc": ("CC", "gcc"), "c++": ("CXX", "g++"), "fortran": ("FC", "gfortran")}
GCC_OPTIONS = ["-g", "-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0"]
ONLY_COMPILES = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"}
SOURCES = (".c", ".cc", ".cpp", ".cxx", ".c++", ".C", ".f", ".f90", ".f95", ".f03", ".f08", ".F", ".F90")
BINARIES = (".o", ".a", ".so")
PASS = "assay-numa-pass.so"
RUNTIME = "libassay-numa-exact.so"


class Compiler:
    """A sub-verb for a language."""

    def __init__(self, language: str) -> None:
        self.language = language

    def prepare(self, verbs: Verbs) -> None:
        variable, default = COMPILERS[self.language]
        parser = verbs.add_parser(
            self.language,
            help=f"compile so that every access is counted (${variable} or {default})",
            description=f"Calls ${variable} or {default} with its arguments, so that the program counts every access.",
            usage="%(prog)s ARGUMENT ...",
            prefix_chars="\0",  # all arguments are the compiler's
            add_help=False,
            examples=[
                Example(f"assay numa {self.language} -O2 -o program program.c", needs="a program"),
                Example(f"assay numa {self.language} -O2 -c part.c", needs="a program"),
                Example("assay numa -- ./program", "then record it", needs="a program"),
            ],
        )
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
        parser.set_defaults(numa_verb=lambda args: compile_program(self.language, args.arguments))


def compile_program(language: str, arguments: Sequence[str]) -> int:
    """Returns the compiler's exit code; of several commands the first that is not 0."""
    with tempfile.TemporaryDirectory(prefix="assay-numa-") as folder:
        for command in commands_of(language, arguments, Path(folder)):
            if shutil.which(command[0]) is None:
                raise UserError(f"cannot run {command[0]}", f"install it, or set {COMPILERS[language][0]}")
            if status := subprocess.run(command).returncode:
                return status
    return EXIT_PASS


def commands_of(language: str, arguments: Sequence[str], folder: Path) -> list[list[str]]:
    """The compiler's commands. Raises UserError where a part of Assay is missing.

    gcc that compiles and links at once with -fsanitize=thread would link its own runtime: it is called for each source
    into ``folder``, and then for the link.
    """
    if not arguments:
        raise UserError(
            "nothing to compile", f"give the compiler's arguments: assay numa {language} -c part.c"
        )
    variable, default = COMPILERS[language]
    compiler = shlex.split(os.environ.get(variable, "")) or [default]
    engines = engines_folder().resolve()
    linked = [f"-L{engines}", "-lassay-numa-exact", f"-Wl,-rpath,{engines}"]
    is_clang = "clang" in Path(compiler[0]).name
    for part in (PASS, RUNTIME) if is_clang else (RUNTIME,):
        if not (engines / part).is_file():
            raise UserError(f"{engines / part} is missing", "build it: make setup")
    options = ["-g", f"-fpass-plugin={engines / PASS}"] if is_clang else GCC_OPTIONS
    if not is_clang:  # the pass counts these itself
        linked.append("-Wl,--wrap=memset,--wrap=memcpy,--wrap=memmove")
    if not ONLY_COMPILES.isdisjoint(arguments):
        return [[*compiler, *arguments, *options]]
    if is_clang:
        return [[*compiler, *arguments, *options, *linked]]
    commands, link = [], list(arguments)
    for number, source in enumerate(arguments):
        if source.endswith(SOURCES) and (number == 0 or arguments[number - 1] != "-o"):
            made = str(folder / f"{number}.o")
            commands.append([*compiler, *_of_compiling(arguments), *options, "-c", source, "-o", made])
            link[number] = made
    return [*commands, [*compiler, *link, *linked]]


def _of_compiling(arguments: Sequence[str]) -> list[str]:
    """The arguments without files, the output, and what is for the linker alone."""
    kept = []
    for number, argument in enumerate(arguments):
        is_output = argument == "-o" or (number > 0 and arguments[number - 1] == "-o")
        is_linkers = argument.startswith(("-l", "-L", "-Wl,")) or argument.endswith(BINARIES)
        if not is_output and not is_linkers and not argument.endswith(SOURCES):
            kept.append(argument)
    return kept
