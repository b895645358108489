"""Damage to what readers are given, and what they may answer: a result, or UserError.

``make fuzz`` runs more rounds: ASSAY_FUZZ_ROUNDS for each test.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from assay.errors import UserError

ROUNDS = int(os.environ.get("ASSAY_FUZZ_ROUNDS", "60"))
fuzzed = settings(
    max_examples=ROUNDS, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)

PIECES = [
    *(
        b"\xff",
        b"\0",
        b"[" * 3000,
        b"{",
        b'"',
        b"1e999",
        b"99999999999999999999",
        b"-1",
        b"null",
        b"\\ud800",
        b"nan",
    ),
    *(
        b"\xed\xa0\x80",
        b"0-999999999999",
        b'encoding="no-such"',
        b"utf-32",
        b"&a;",
        b"@@g",
        b"[1-99999999]",
        b"\n",
    ),
]


@st.composite
def damaged(draw: st.DrawFn, seed: bytes) -> bytes:
    """The seed with some places cut out, doubled or replaced; sometimes any bytes at all."""
    content = bytearray(seed)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content)))
        to = min(len(content), at + draw(st.integers(0, 12)))
        content[at:to] = draw(st.sampled_from(PIECES) | st.binary(max_size=6))
    return bytes(content) if draw(st.integers(0, 9)) else draw(st.binary(max_size=200))


def answers(read: Callable[[], object]) -> None:
    with contextlib.suppress(UserError):
        read()


def of_file(content: bytes, name: str, read: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-hostile-") as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        answers(lambda: read(path))
