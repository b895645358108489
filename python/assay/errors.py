"""``UserError``, the exception for errors that the user can correct, and the exit codes of all verbs.

``UserError`` is raised anywhere and caught once, in ``assay.cli.main``, which prints one line: the problem and its fix,
no traceback. Any other exception that arrives there is reported as a defect of Assay.
"""

from pathlib import Path

IN_CHECKOUT = (Path(__file__).resolve().parents[2] / "CMakeLists.txt").is_file()
# The command that brings back what is missing of Assay itself.
REPAIR = "make setup" if IN_CHECKOUT else "pip install --force-reinstall assay"
# The fix where the wheel's engines cannot run, or have no such part.
SOURCE = "build Assay from its source: make setup in a checkout"

# Exit codes, the same for every verb.
EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_UNUSABLE = 2  # bad input, not runnable, or inconclusive
EXIT_INTERRUPTED = 130  # Ctrl-C or SIGTERM; the records so far are kept

# The exit code of each outcome of a run.
EXIT_OF = {"PASS": EXIT_PASS, "FAIL": EXIT_FAIL, "INCONCLUSIVE": EXIT_UNUSABLE}


class UserError(Exception):
    """A user's mistake, or something that this machine lacks. ``what`` is the problem, ``fix`` how to correct it."""

    def __init__(self, what: str, fix: str = "", exit_code: int = EXIT_UNUSABLE) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.what}; fix: {self.fix}" if self.fix else self.what
