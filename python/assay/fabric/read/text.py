"""Shared by all readers of fabric files: lines of limited length, errors with file and line, messages of the tool,
printable names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NoReturn

from assay.errors import UserError
from assay.records.foreign import Wanted, open_text
from assay.records.foreign.leading import DIRECT_ROUTE, HARMLESS

MAX_LINE_BYTES = 1 << 16
MAX_NAME_LENGTH = 128
open_file = open_text  # of any dialect
EMPTY_DUMP = "was the tool that wrote it allowed to see the fabric?"

# What the tools of infiniband-diags write to standard error where a node does not answer; 2>&1 puts it into the file.
MESSAGE = re.compile(
    r"(?:\S*\.c:[0-9]+;|\S*ib(?:warn|panic|error|netdiscover):|\S*\b(?:mad_rpc|_do_madrpc)\b|SubnGet\(\w+\) failed)"
)


class LineReader:
    """Iterates over the lines of a file with their numbers, from 1. ``refuse`` raises an error with file and line.

    ``wanted``: what a file must be that is no dump of a fabric. ``longest``: the most bytes of a line.
    """

    def __init__(self, path: Path, wanted: Wanted | None = None, longest: int = MAX_LINE_BYTES) -> None:
        self.path = path
        self.wanted = wanted
        self.longest = longest
        self.last = 0  # the number of the last line that is not blank, of those that were read
        self.is_ended = True  # whether the last line that was read has an end

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Lines without their ends. Bytes that are no UTF-8 are replaced. Raises UserError for a file that cannot be
        read, is empty, no text, or has a line that no tool writes."""
        try:
            with open_file(self.path, self.wanted) as file:
                for number in count(1):
                    raw = file.readline(self.longest + 1)
                    if not raw:
                        break
                    if len(raw) > self.longest:
                        self.refuse(number, f"a line of more than {self.longest} characters")
                    if b"\0" in raw:
                        self.refuse(number, "not a text file")
                    self.is_ended = raw.endswith(b"\n")
                    line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
                    if line and not line.isspace():
                        self.last = number
                    yield number, line
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from None
        if not self.last:
            raise UserError(f"{self.path}: the file is empty", self.wanted.fix if self.wanted else EMPTY_DUMP)

    def refuse(self, line: int, problem: str, fix: str = "") -> NoReturn:
        raise UserError(f"{self.path}:{line}: {printable(problem)}", fix)


def is_harmless(text: LineReader, number: int, line: str, otherwise: str = "") -> bool:
    """Whether a line is a message of the tool that says nothing of the fabric. Raises UserError for a message that a
    node did not answer: what is behind it is missing. ``otherwise``: what else can be done, in the fix."""
    if HARMLESS.match(line):
        return True
    if MESSAGE.match(line):
        match = DIRECT_ROUTE.search(line)
        where = f"the node at the direct route {match[0]}" if match else f"a node ({line[:120]})"
        look = f"look at that node (smpquery -D nodeinfo {match[0]})" if match else "look at that node"
        text.refuse(
            number,
            f"{where} did not answer, so the file may be incomplete",
            f"{look}, then take the file anew{otherwise}",
        )
    return False


def printable(text: str) -> str:
    """The text with control characters replaced, so that no file can control the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def clean(name: str) -> str:
    """A node description without control characters, cut to MAX_NAME_LENGTH: an adapter may send any bytes."""
    return printable(name.strip())[:MAX_NAME_LENGTH]
