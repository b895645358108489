"""Prepares standard output and standard error for all verbs.

If the reader of a pipe ends early ("| head") or the terminal is closed, the verb runs on, so its exit code is
unchanged. Messages that standard error does not take are dropped: results have a stream of their own. A character that
the terminal's encoding lacks is escaped, and so are characters that change what a terminal does (records/text.py).
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import sys
from collections.abc import Collection
from typing import Any, TextIO, cast

from assay.errors import UserError
from assay.records.text import printable


class _Descriptor(io.FileIO):
    """A descriptor that drops what is written once that fails with one of the errors of ``dropping``; None: any."""

    def __init__(self, descriptor: int, dropping: Collection[int] | None) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._dropping = dropping

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if self._dropping is not None and error.errno not in self._dropping:
                raise
            _discard(self.fileno())
            return memoryview(data).nbytes


class _Stream(io.TextIOWrapper):
    """Escapes what is unsafe on a terminal. Only ``styled`` writes colours: for consoles, which escape the text."""

    def write(self, text: str) -> int:
        return super().write(printable(text))

    @property
    def styled(self) -> TextIO:
        return cast(TextIO, _Styled(self))


class _Styled:
    """The same stream, for text that is safe and has terminal sequences."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return io.TextIOWrapper.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prepare_output() -> None:
    """Replaces the two streams, unless a caller (a test) has replaced them already. Raises UserError if standard output
    is closed: every verb prints, and a file that is opened next would get its descriptor.

    A shell that runs a script without a stream has opened the script in its place: it cannot be written to."""
    if sys.stdout is not None and sys.stdout is sys.__stdout__:
        output = cast(TextIO, sys.stdout)
        # A terminal that was closed fails with EIO, as a disk does that breaks.
        gone = (errno.EPIPE, errno.EIO) if output.isatty() else (errno.EPIPE,)
        sys.stdout = _wrap_stream(output, gone, output.isatty()) if _can_write(output) else None
    if sys.stderr is not None and sys.stderr is sys.__stderr__:
        errors = cast(TextIO, sys.stderr)
        if not _can_write(errors):
            _discard(errors.fileno())
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    elif sys.stderr is sys.__stderr__:
        sys.stderr = _wrap_stream(cast(TextIO, sys.stderr), None, line_buffering=True)
    if sys.stdout is None:
        raise UserError("standard output is closed", "send it to a file, or to /dev/null if it is not needed")


def _can_write(stream: TextIO) -> bool:
    return fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def _wrap_stream(stream: TextIO, dropping: Collection[int] | None, line_buffering: bool) -> TextIO:
    stream.flush()
    raw = _Descriptor(stream.fileno(), dropping)
    return _Stream(io.BufferedWriter(raw), stream.encoding, "backslashreplace", line_buffering=line_buffering)


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
