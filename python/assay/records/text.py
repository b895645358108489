"""Foreign text on its way to a terminal: names of hosts and files, messages of other programs.

Control characters move the cursor, change colours or answer as if typed; characters that set the direction of text
show one thing and say another. They are shown as escapes: "\\x1b".
"""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1, separators of lines, marks of direction, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with unsafe characters escaped; tabs and newlines stay."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The text on one line: its lines are joined by "; ", empty ones dropped."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return printable("; ".join(line for line in lines if line))
