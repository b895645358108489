"""The one error of the Python side that a user is meant to see.

Raised anywhere, caught once in ``assay.cli.main``: the user reads one line (what is wrong, where, and
its fix), never a traceback. Anything else that escapes is a defect of Assay.
"""

# Exit codes, the same for every verb.
EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_UNUSABLE = 2  # bad input, not runnable, or inconclusive
EXIT_INTERRUPTED = 130  # Ctrl-C or SIGTERM; the records so far are kept

EXIT_OF = {"PASS": EXIT_PASS, "FAIL": EXIT_FAIL, "INCONCLUSIVE": EXIT_UNUSABLE}  # of a run's outcome


class UserError(Exception):
    """A user's mistake or a fact of the machine: ``what`` is wrong, and how to ``fix`` it."""

    def __init__(self, what: str, fix: str = "", exit_code: int = EXIT_UNUSABLE) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.what}; fix: {self.fix}" if self.fix else self.what
