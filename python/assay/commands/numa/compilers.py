"""``assay numa cc``, ``c++`` and ``fortran``: compilers whose programs count every access.

The compiler is $CC, $CXX or $FC, else gcc's. With clang the loads and stores are counted by a pass of the compiler,
inline; with gcc by the hooks of -fsanitize=thread, which the runtime of Assay implements, or on x86-64 by code that
the assembler puts in their place.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, SOURCE, UserError
from assay.launch.engines import engines_folder

COMPILERS = {"cc": ("CC", "gcc"), "c++": ("CXX", "g++"), "fortran": ("FC", "gfortran")}
GCC_OPTIONS = ["-g", "-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0"]
ONLY_COMPILES = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"}  # options without a link step
SOURCES = (".c", ".cc", ".cpp", ".cxx", ".c++", ".C", ".f", ".f90", ".f95", ".f03", ".f08", ".F", ".F90")
BINARIES = (".o", ".a", ".so")
# Without the assembler's macros each access calls its hook.
NOT_INLINE = ("-m32", "-mx32", "-masm=intel")
MACROS = "assay-numa-gcc.s"
PASS = "assay-numa-pass.so"
RUNTIME = "libassay-numa-exact.so"


def prepare_compiler(language: str, verbs: Verbs) -> None:
    variable, default = COMPILERS[language]
    parser = verbs.add_parser(
        language,
        help=f"compile so that every access is counted (${variable} or {default})",
        description=f"Calls ${variable} or {default} with its arguments, so that the program counts every access.",
        usage="%(prog)s ARGUMENT ...",
        prefix_chars="\0",  # all arguments are the compiler's
        add_help=False,
        examples=[
            Example(f"assay numa {language} -O2 -o program program.c", needs="a program"),
            Example(f"assay numa {language} -O2 -c part.c", needs="a program"),
            Example("assay numa -- ./program", "then record it", needs="a program"),
        ],
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    parser.set_defaults(sub_verb=lambda args: compile_program(language, args.arguments))


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
    """The compiler's commands. Raises UserError if the pass or the runtime of Assay is not built.

    One gcc command that compiles and links with -fsanitize=thread links gcc's own runtime. So gcc compiles each source
    into ``folder`` first, and links with a command without that option.
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
    for part in (PASS, RUNTIME) if is_clang else (MACROS, RUNTIME):
        if not (engines / part).is_file():
            raise UserError(f"{engines / part} is missing", SOURCE)
    options = ["-g", f"-fpass-plugin={engines / PASS}"] if is_clang else GCC_OPTIONS
    if not is_clang and platform.machine() == "x86_64" and set(NOT_INLINE).isdisjoint(arguments):
        options = [*options, "-Xassembler", str(engines / MACROS)]
        arguments = [word for word in arguments if word != "-pipe"]  # it takes the place of other files
    if any(argument.startswith("-flto") for argument in arguments) and not is_clang:
        # The accesses are instrumented when a unit is compiled, and at link time no more.
        print("assay numa: -flto is switched off, since gcc would not count the accesses", file=sys.stderr)
        options = [*options, "-fno-lto"]
    if not is_clang:  # with clang the pass counts these calls
        linked.append("-Wl,--wrap=memset,--wrap=memcpy,--wrap=memmove")
    if not ONLY_COMPILES.isdisjoint(arguments):
        return [[*compiler, *arguments, *options]]
    if is_clang:
        return [[*compiler, *arguments, *options, *linked]]
    commands, link = [], list(arguments)
    for number, source in enumerate(arguments):
        if source.endswith(SOURCES) and (number == 0 or arguments[number - 1] != "-o"):
            object_file = str(folder / f"{number}.o")
            commands.append(
                [*compiler, *_compile_arguments(arguments), *options, "-c", source, "-o", object_file]
            )
            link[number] = object_file
    return [*commands, [*compiler, *link, *linked]]


def _compile_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments without files, without -o, and without the linker's options."""
    compile_arguments = []
    for number, argument in enumerate(arguments):
        is_output = argument == "-o" or (number > 0 and arguments[number - 1] == "-o")
        is_for_linker = argument.startswith(("-l", "-L", "-Wl,")) or argument.endswith(BINARIES)
        if not is_output and not is_for_linker and not argument.endswith(SOURCES):
            compile_arguments.append(argument)
    return compile_arguments
