"""``UserError``, the exception for errors that the user can correct, and the exit codes of all verbs.

``UserError`` is raised anywhere and caught once, in ``assay.cli.main``, which prints one line: the problem and its fix,
no traceback. Any other exception that arrives there is reported as a defect of Assay.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Origin = Literal["checkout", "debian", "wheel"]
# The command that brings back what is missing of Assay itself, as engines/core/origin.cpp has it.
REPAIRS: dict[Origin, str] = {
    "checkout": "make setup",
    "debian": "apt-get install --reinstall ./assay_*.deb",
    "wheel": "pip install --force-reinstall ./assay-*.whl",
}
# The fix where the wheel's engines cannot run, or have no such part.
SOURCE = "build Assay from its source: make setup in a checkout"

# Exit codes, the same for every verb.
EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_UNUSABLE = 2  # bad input, not runnable, or inconclusive
EXIT_INTERRUPTED = 130  # Ctrl-C or SIGTERM; the records so far are kept

# The exit code of each outcome of a run.
EXIT_OF = {"PASS": EXIT_PASS, "FAIL": EXIT_FAIL, "INCONCLUSIVE": EXIT_UNUSABLE}


def origin(module: Path) -> Origin:
    """Where a module of this package comes from: a checkout, the Debian package or the wheel."""
    path = module.resolve()
    if (path.parents[2] / "CMakeLists.txt").is_file():
        return "checkout"
    return "debian" if path.is_relative_to("/usr/lib/assay") else "wheel"


ORIGIN = origin(Path(__file__))
REPAIR = REPAIRS[ORIGIN]


def rebuild(with_package: str, in_wheel: bool = True, origin: Origin = ORIGIN) -> str:
    """The fix where an engine is missing. A checkout builds it with a package of the system, by Debian's name; the
    Debian package has every engine; ``in_wheel``: the wheel has it too."""
    if origin == "checkout":
        return f"Debian: apt-get install {with_package}, then make setup"
    return REPAIRS[origin] if in_wheel or origin == "debian" else SOURCE


class UserError(Exception):
    """A user's mistake, or something that this machine lacks. ``what`` is the problem, ``fix`` how to correct it."""

    def __init__(self, what: str, fix: str = "", exit_code: int = EXIT_UNUSABLE) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.what}; fix: {self.fix}" if self.fix else self.what


@contextmanager
def after_program(status: int) -> Iterator[None]:
    """For what follows the user's program, which ended with ``status``: an error (a full disk) is reported, and the
    exit code is the program's if it failed, since a job script that wraps it must not see another."""
    try:
        yield
    except Exception as error:
        error.program_status = status  # type: ignore[attr-defined]
        raise


def exit_code_after(error: Exception) -> int:
    """The exit code of a run that ended with ``error``: of a program that failed before, else of the error."""
    status: int = getattr(error, "program_status", 0)
    return status or getattr(error, "exit_code", EXIT_UNUSABLE)
