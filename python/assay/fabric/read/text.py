"""What the readers of files share: lines with a limit, errors with file and line, names that are safe to print."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NoReturn

from assay.errors import UserError

LONGEST_LINE = 1 << 16
LONGEST_NAME = 128


class Text:
    """The lines of a file with their numbers, from 1, as they are read; ``refuse`` names the file and a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = 0  # the number of the last line that is not blank, of those that were read

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Lines without their ends. Bytes that are no UTF-8 are replaced. Raises UserError for a file that cannot be
        read, is empty, no text, or has a line that no tool writes."""
        try:
            with self.path.open("rb") as file:
                for number in count(1):
                    raw = file.readline(LONGEST_LINE + 1)
                    if not raw:
                        break
                    if len(raw) > LONGEST_LINE:
                        self.refuse(number, f"a line of more than {LONGEST_LINE} characters")
                    if b"\0" in raw:
                        self.refuse(number, "not a text file")
                    line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
                    if line and not line.isspace():
                        self.last = number
                    yield number, line
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from None
        if not self.last:
            raise UserError(
                f"{self.path}: the file is empty", "was the tool that wrote it allowed to see the fabric?"
            )

    def refuse(self, line: int, what: str, fix: str = "") -> NoReturn:
        raise UserError(f"{self.path}:{line}: {printable(what)}", fix)


def printable(text: str) -> str:
    """Without control characters: a terminal must not obey a file."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def clean(name: str) -> str:
    """A description as any adapter may send it: without control characters, of a limited length."""
    return printable(name.strip())[:LONGEST_NAME]
