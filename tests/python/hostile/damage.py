"""Random damage to the input of readers. A reader must return a result or raise UserError.

The damage is the same in each run. With ASSAY_FUZZ_ROUNDS ("make fuzz") it is random, for so many rounds of each test.
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
    max_examples=ROUNDS,
    deadline=None,
    derandomize="ASSAY_FUZZ_ROUNDS" not in os.environ,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
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
    """The seed after up to four replacements of a few bytes; in one of ten cases random bytes."""
    content = bytearray(seed)
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(content)))
        end = min(len(content), begin + draw(st.integers(0, 12)))
        content[begin:end] = draw(st.sampled_from(PIECES) | st.binary(max_size=6))
    return bytes(content) if draw(st.integers(0, 9)) else draw(st.binary(max_size=200))


def read_or_refuse(read: Callable[[], object]) -> None:
    """Calls a reader, which may raise UserError and nothing else."""
    with contextlib.suppress(UserError):
        read()


def read_or_refuse_file(content: bytes, name: str, read: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-hostile-") as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        read_or_refuse(lambda: read(path))
