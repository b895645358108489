"""Prepares standard output and standard error for all verbs.

If the reader of a pipe ends early ("| head"), the verb runs on, so its exit code is unchanged. A character that the
terminal's encoding lacks is escaped.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO, cast


class _PipeWithoutErrors(io.FileIO):
    """A descriptor that drops what is written after its reader has closed the pipe."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            _discard(self.fileno())
            return memoryview(data).nbytes


def prepare_output() -> None:
    """Replaces the two streams, unless a caller (a test) has replaced them already."""
    if sys.stdout is None:  # closed by the caller ("assay net >&-")
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    elif sys.stdout is sys.__stdout__:
        sys.stdout = _wrap_stream(cast(TextIO, sys.stdout))
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    elif sys.stderr is sys.__stderr__:
        sys.stderr = _wrap_stream(cast(TextIO, sys.stderr), line_buffering=True)


def _wrap_stream(stream: TextIO, line_buffering: bool = False) -> TextIO:
    stream.flush()
    raw = _PipeWithoutErrors(stream.fileno(), "w", closefd=False)
    line_buffering = line_buffering or stream.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, "backslashreplace", line_buffering=line_buffering
    )


def discard_output() -> None:
    """Gives up standard output if it cannot be written, so that the interpreter's last flush does not fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard(sys.stdout.fileno())


def _discard(descriptor: int) -> None:
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, descriptor)
    os.close(null_device)
