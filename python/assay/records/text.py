"""Makes untrusted text safe to print on a terminal: names of hosts and files, messages of other programs.

Control characters can move the cursor, change colours or make the terminal type an answer. Bidirectional formatting
characters can make text look different from what it is. Both are printed as escapes such as "\\x1b".

All output passes printable(): what is printed by the streams of report/streams.py, tables by report/console.py.
"""

from __future__ import annotations

import re

# C0 controls except tab and newline, DEL, C1 controls, line and paragraph separators, bidirectional formatting
# characters, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with unsafe characters escaped; tabs and newlines stay."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def name_text(name: str) -> str:
    """A name that others have chosen, on one line: line breaks and tabs are escaped, too."""
    return printable(name).replace("\n", "\\n").replace("\t", "\\t")


def json_line(value: object) -> str:
    """The value as JSON on one line. Unsafe characters have the escapes of JSON, so that it stays JSON when printed."""
    import msgspec  # the start of the command line escapes text and needs no JSON

    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", msgspec.json.encode(value).decode())


def one_line(text: str) -> str:
    """Joins the lines of a text by "; " and drops empty lines."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return printable("; ".join(line for line in lines if line))
