"""Lines before the begin of a tool's output: greetings of a login, and what the tool wrote to standard error (2>&1).

A greeting is left out, and said. An error message means that the output may be incomplete, so the file is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from assay.errors import UserError
from assay.records.foreign.encoding import DECLARATION, blanked
from assay.records.foreign.kinds import FILES, Kind, text_kind

_ERROR = re.compile(
    r"\b(i?bwarn|ibpanic|u?mad|mad_rpc|smp|timed? ?out|error|err|fail(s|ed|ure)?|cannot|can't|could not|unable|denied|"
    r"no such|not found|unreachable|aborted|bad status)\b|^-[EW]-",
    re.IGNORECASE,
)
# Of ibsim, and of a shell whose locale is not installed on the host.
HARMLESS = re.compile(r"ibwarn: \[[0-9]+\] sim_connect: attached\b|\S+: warning: setlocale: ")
DIRECT_ROUTE = re.compile(r"\b0(?:,[0-9]{1,3})+\b")  # ports from this host on
RUN_AGAIN = "find out why, then take it again with standard error apart: COMMAND > FILE 2> errors.txt"
SEARCHED = 1 << 16  # characters
SHOWN = 80  # characters of a foreign line


def without_leading_lines(
    path: Path, chunks: Iterator[bytes], tell: Callable[[str], None]
) -> Iterator[bytes]:
    """The text with blank lines in place of a greeting, so that lines keep their numbers. Raises UserError where an
    error message is before the output."""
    head = next(chunks, b"")
    text = head.decode()
    kind = text_kind(text[:SEARCHED], FILES)
    begin = kind.first.search(text) if kind and kind.first else None
    if kind is None or begin is None or not text[: begin.start()].strip():
        return chain([head], chunks)
    leading = text[: begin.start()].splitlines(keepends=True)
    for number, line in enumerate(leading, 1):
        if _ERROR.search(line) and not HARMLESS.search(line):
            raise _incomplete(path, number, line.strip(), kind)
    count = sum(1 for line in leading if line.strip())
    lines = "1 line" if count == 1 else f"{count} lines"
    tell(f"{path}: {lines} before {kind.name} left out: {_shown(next(x for x in leading if x.strip()))}")
    rest = text[begin.start() :].encode()
    declaration = DECLARATION.match(rest)
    if declaration:  # XML allows it at the very begin alone
        rest = blanked(declaration[0]) + rest[declaration.end() :]
    return chain([b"".join(b"\n" for line in leading if line.endswith("\n")) + rest], chunks)


def _incomplete(path: Path, number: int, line: str, kind: Kind) -> UserError:
    route = DIRECT_ROUTE.search(line)
    problem = f"the node at the direct route {route[0]} did not answer: " if route else "an error message: "
    return UserError(f"{path}:{number}: {problem}{_shown(line)}; so {kind.name} may be incomplete", RUN_AGAIN)


def _shown(line: str) -> str:
    line = line.strip()
    return f"'{line[:SHOWN]}{'...' if len(line) > SHOWN else ''}'"
