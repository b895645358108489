"""Whether a program can be started at all.

The kernel says "No such file or directory" also of a program that is there: of a script whose interpreter is not, and
of an executable whose loader is not (made for another distribution).
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from assay.errors import UserError
from assay.numa.elf import loader_of
from assay.records.files import open_regular
from assay.records.text import one_line

MAX_LINE = 256  # of the kernel, for the first line of a script


def require_program(name: str) -> str:
    """The path of a program. Raises UserError if there is none, or if what it is run by is missing."""
    path = shutil.which(name)
    if path is None:
        raise UserError(f"cannot run {name}", "check that it is on PATH and executable")
    interpreter, loader = _run_by(Path(path))
    for runner in filter(None, (interpreter, loader)):
        if os.access(runner, os.X_OK):
            continue
        if runner.endswith("\r"):
            raise UserError(f"cannot run {name}: its lines end in CRLF", f"convert it: dos2unix {path}")
        problem = "cannot be executed" if os.path.exists(runner) else "does not exist"
        what = "interpreter" if interpreter else "loader"
        fix = "correct its first line" if interpreter else "take a build for this system"
        raise UserError(f"cannot run {name}: its {what} {one_line(runner)} {problem}", fix)
    return path


def _run_by(path: Path) -> tuple[str, str]:
    """The interpreter of a script and the loader of an executable; empty where there is none, or it is unknown."""
    try:
        with open_regular(path) as file:
            start = file.read(MAX_LINE)
            if not start.startswith(b"#!"):
                return "", loader_of(file)
    except (OSError, ValueError):  # a program may be executable and not readable
        return "", ""
    words = re.split(rb"[\n\0]", start[2:])[0].strip(b" \t").replace(b"\t", b" ").split(b" ")
    return os.fsdecode(words[0]), ""
