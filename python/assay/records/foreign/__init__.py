"""Files of other tools: what each is, by its first bytes and lines, and its text.

A file may be compressed (gzip, bzip2, xz, zstd), in UTF-8 with or without a mark, UTF-16 or Latin-1, quoted as in a
mail, and may begin with lines that a login or the tool's standard error left there. Readers get the text of any of
these in UTF-8. A file that is something else is refused by its true name. Its suffix is never asked.
"""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from assay.errors import UserError
from assay.records.files import open_regular
from assay.records.foreign.binary import GIVE_OUTPUT, BinaryKind, binary_kind
from assay.records.foreign.encoding import utf8_chunks
from assay.records.foreign.kinds import Kind, text_kind
from assay.records.foreign.leading import without_leading_lines
from assay.records.foreign.quoted import without_quote_marks
from assay.records.foreign.unpack import compression_of, unpacked
from assay.records.notes import tell

HEAD = 1 << 16  # bytes by which a file is recognised
MAX_TEXT = 64 << 20  # bytes of a text that is read as a whole


@dataclass(frozen=True)
class Wanted:
    """What a reader needs: its ``name`` in messages ("a host file"), the ``kinds`` that are it, and the ``fix``."""

    name: str
    fix: str
    kinds: tuple[str, ...] = ()


class _Stream(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, file: BinaryIO, chunks: Iterator[bytes]) -> None:
        self._file, self._chunks, self._rest = file, chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        part = self._rest[: len(buffer)]
        buffer[: len(part)] = part
        self._rest = self._rest[len(part) :]
        return len(part)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_text(path: Path, wanted: Wanted | None = None) -> BinaryIO:
    """The text of a file, as a stream of UTF-8 without a mark. Raises UserError, also while it is read, for a file that
    cannot be read, is no regular file, no text, damaged, or unpacks to too much, or is of a kind that ``wanted`` is
    not; and OSError for a failing device."""
    file = _open(path)
    try:
        chunks = utf8_chunks(path, _refuse_binary(path, unpacked(path, file), wanted))
        text = without_leading_lines(path, without_quote_marks(path, chunks, tell), tell)
        return io.BufferedReader(_Stream(file, _refuse_text(path, text, wanted) if wanted else text), HEAD)
    except BaseException:
        file.close()
        raise


def read_text(path: Path, wanted: Wanted, limit: int = MAX_TEXT) -> str:
    """The whole text. Raises UserError as ``open_text`` does, for a text of more than ``limit`` bytes, and for a file
    that is of a kind that ``wanted`` is not."""
    try:
        with open_text(path, wanted) as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}", "check the path") from None
    if len(content) > limit:
        raise UserError(f"{path}: larger than {limit >> 20} MiB, so not {wanted.name}", wanted.fix)
    if b"\0" in content:
        raise UserError(f"{path}: not a text file, so not {wanted.name}", wanted.fix)
    return content.decode()


def refuse_other(path: Path, wanted: Wanted) -> None:
    """Raises UserError for a file of a known kind that ``wanted`` is not, and for no file. A damaged one may pass."""
    head = b""
    with _open(path) as file, contextlib.suppress(UserError):  # of a damaged file as much as can be read
        for chunk in unpacked(path, file):
            head += chunk
            if len(head) >= HEAD:
                break
    text = b"".join(_refuse_binary(path, iter([head]), wanted))
    with contextlib.suppress(UserError):
        text = b"".join(utf8_chunks(path, iter([text])))
    for _ in _refuse_text(path, iter([text]), wanted):
        pass


def named(path: Path) -> str:
    """ "PATH (a profile of massif)" of a file whose kind is known; else the path alone."""
    kind: BinaryKind | Kind | None = None
    with contextlib.suppress(UserError, OSError), _open(path) as file:
        head = _head(unpacked(path, file))[:HEAD]
        kind = binary_kind(head) or text_kind(head.decode(errors="replace"))
    return f"{path} ({kind.name})" if kind else str(path)


def is_plain(path: Path) -> bool:
    """Whether programs that know no dialects read this file as Assay does. Raises UserError as ``open_text`` does."""
    with _open(path) as raw, open_text(path) as text:
        while True:
            ours, theirs = text.read(HEAD), raw.read(HEAD)
            if ours != theirs:
                return False
            if not ours:
                return True


def require_plain(path: Path, wanted: Wanted) -> None:
    """Raises UserError for a file that is something else, or that only Assay would read: an engine opens it again by
    its name."""
    with open_text(path, wanted) as text, _open(path) as file:
        text.read(1)
        compression = compression_of(file.read(HEAD))
    if compression is not None:
        raise UserError(
            f"{path}: compressed by {compression.name}", f"unpack it: {compression.command} {path}"
        )
    if not is_plain(path):
        raise UserError(f"{path}: not plain UTF-8 from its first byte on", "convert it: iconv -t UTF-8")


def _open(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EISDIR, errno.EINVAL):
            fix = (
                "name a file in it"
                if error.errno == errno.EISDIR
                else "write it to a file first, and name that"
            )
            raise UserError(f"{path} {error.strerror}", fix) from None
        reason = error.strerror if isinstance(error, OSError) else "no file has such a name"
        raise UserError(f"{path}: cannot be read: {reason}", "check the path") from None


def _refuse_binary(path: Path, chunks: Iterator[bytes], wanted: Wanted | None) -> Iterator[bytes]:
    head = _head(chunks)
    kind = binary_kind(head)
    if kind is not None:
        fix = wanted.fix if wanted and kind.fix == GIVE_OUTPUT else kind.fix
        raise UserError(f"{path}: {kind.name}, {f'not {wanted.name}' if wanted else 'no text'}", fix)
    return chain([head], chunks)


def _refuse_text(path: Path, chunks: Iterator[bytes], wanted: Wanted) -> Iterator[bytes]:
    head = _head(chunks)
    kind = text_kind(head[:HEAD].decode(errors="replace"))
    if kind is not None and kind.key not in wanted.kinds:
        raise UserError(f"{path}: {kind.name}, not {wanted.name}", wanted.fix)
    yield from chain([head], chunks)


def _head(chunks: Iterator[bytes]) -> bytes:
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= HEAD:
            break
    return head


__all__ = [
    "Kind",
    "Wanted",
    "is_plain",
    "named",
    "open_text",
    "read_text",
    "refuse_other",
    "require_plain",
    "text_kind",
]
