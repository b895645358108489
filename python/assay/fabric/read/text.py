"""What the readers of files share: lines with a limit, errors with file and line, names that are safe to print."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from assay.errors import UserError

MOST_BYTES = 4 << 30  # larger than the tables of any fabric
LONGEST_LINE = 1 << 16
LONGEST_NAME = 128


class Text:
    """The lines of a file; ``refuse`` names the file and a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            size = path.stat().st_size
            if size > MOST_BYTES:
                raise UserError(f"{path}: {size} bytes are no fabric's")
            raw = path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from None
        if not raw.strip():
            raise UserError(
                f"{path}: the file is empty", "was the tool that wrote it allowed to see the fabric?"
            )
        if b"\0" in raw:
            raise UserError(f"{path}: not a text file")
        self.lines = raw.decode("utf-8", errors="replace").split("\n")
        longest = max(range(len(self.lines)), key=lambda n: len(self.lines[n]))
        if len(self.lines[longest]) > LONGEST_LINE:
            self.refuse(longest + 1, f"a line of {len(self.lines[longest])} characters")

    @property
    def last(self) -> int:
        """The number of the last line that is not empty."""
        return next(n for n in range(len(self.lines), 0, -1) if self.lines[n - 1].strip())

    def refuse(self, line: int, what: str, fix: str = "") -> NoReturn:
        raise UserError(f"{self.path}:{line}: {printable(what)}", fix)


def printable(text: str) -> str:
    """Without control characters: a terminal must not obey a file."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def clean(name: str) -> str:
    """A description as any adapter may send it: without control characters, of a limited length."""
    return printable(name.strip())[:LONGEST_NAME]
