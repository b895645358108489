"""A text that is quoted as a mail has it: "> " before each line, and perhaps a line above that says who wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

_MARKS = re.compile(rb"^(?:> ?)+", re.MULTILINE)


def without_quote_marks(path: Path, chunks: Iterator[bytes], tell: Callable[[str], None]) -> Iterator[bytes]:
    """The text without the marks, if all lines of its first chunk have one. ``chunks`` are of whole lines, which keep
    their numbers."""
    head = next(chunks, b"")
    above, mark, _ = head.partition(b"\n>")
    if not mark or head.startswith(b">") or b"\n" in above.strip() or not above.rstrip().endswith(b":"):
        above = b""
    lines = [line for line in head[len(above) :].splitlines() if line.strip()]
    if not lines or not all(line.startswith(b">") for line in lines):
        return chain([head], chunks)
    tell(f"{path}: quoted as in a mail: '>' left out")
    rest = b"\n" * above.count(b"\n") + head[len(above) :]
    return (_MARKS.sub(b"", chunk) for chunk in chain([rest], chunks))
