"""Notes to people on standard error: what Assay leaves out or does otherwise than may be expected, a line each.

A note is printed once, however often its cause is met. What changes a verdict is no note: it belongs into the run.
"""

from __future__ import annotations

import sys

from assay.records.text import name_text

_told: set[str] = set()


def tell(note: str) -> None:
    if note not in _told:
        _told.add(note)
        print(f"note: {name_text(note)}", file=sys.stderr)
