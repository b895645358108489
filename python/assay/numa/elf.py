"""Reads what is needed of an ELF file: its build-id, its loader and the extent of a function.

The file may be another one than was recorded, or damaged: sizes in it are bounded, and what contradicts itself is
treated as absent. Only 64-bit little-endian files are read, as on x86-64 and AArch64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from assay.records.files import open_regular

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_SYMBOL = [
    ("name", "<u4"),
    ("info", "u1"),
    ("other", "u1"),
    ("section", "<u2"),
    ("value", "<u8"),
    ("size", "<u8"),
]
NOTES, BUILD_ID, FUNCTION = 4, 3, 2  # PT_NOTE, NT_GNU_BUILD_ID, STT_FUNC
LOADER = 3  # PT_INTERP
MAX_PATH = 4096
SYMBOL_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
MAX_NOTE_BYTES = 1 << 16
MAX_SYMBOL_BYTES = 1 << 28


def build_id_of(path: Path) -> str:
    """The build-id of a file in hexadecimal; empty if it has none or cannot be read."""
    try:
        with open_regular(path) as file:
            return build_id(file)
    except (OSError, ValueError):
        return ""


def build_id(file: BinaryIO) -> str:
    """Empty if the file has none, or is no such ELF file."""
    for kind, _, offset, _, _, size, _, _ in _table(file, _SEGMENT):
        if kind == NOTES and size <= MAX_NOTE_BYTES:
            for note_kind, owner, content in _notes(_read(file, offset, size)):
                if note_kind == BUILD_ID and owner == b"GNU\0":
                    return content.hex()
    return ""


def loader_of(file: BinaryIO) -> str:
    """The path of the loader that an executable names; empty if it has none, or is no such ELF file."""
    for kind, _, offset, _, _, size, _, _ in _table(file, _SEGMENT):
        if kind == LOADER and size <= MAX_PATH:
            return _read(file, offset, size).split(b"\0")[0].decode(errors="surrogateescape")
    return ""


def function_extent(file: BinaryIO, address: int) -> tuple[int, int] | None:
    """The first address of the function that holds an address of the file, and the one after its end. None if no
    symbol of a function has a size that includes it."""
    import numpy as np  # imported when it is needed: each program that is started has its loader looked up

    entry = np.dtype(_SYMBOL)
    for _, kind, _, _, offset, size, _, _, _, _ in _table(file, _SECTION):
        if kind not in SYMBOL_TABLES or size > MAX_SYMBOL_BYTES:
            continue
        content = _read(file, offset, size)
        symbols = np.frombuffer(content, entry, len(content) // entry.itemsize)
        symbols = symbols[(symbols["info"] & 15) == FUNCTION]
        symbols = symbols[(symbols["value"] <= address) & (address - symbols["value"] < symbols["size"])]
        if len(symbols):
            innermost = symbols[np.argmax(symbols["value"])]
            return int(innermost["value"]), int(innermost["value"]) + int(innermost["size"])
    return None


def _table(file: BinaryIO, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
    """The program headers (``_SEGMENT``) or the section headers (``_SECTION``)."""
    content = _read(file, 0, _HEADER.size)
    if len(content) < _HEADER.size or content[:6] != b"\x7fELF\x02\x01":
        return
    _, _, _, _, segments, sections, _, _, _, segment_count, _, section_count, _ = _HEADER.unpack(content)
    offset, count = (segments, segment_count) if entry is _SEGMENT else (sections, section_count)
    rows = _read(file, offset, count * entry.size)
    yield from entry.iter_unpack(rows[: len(rows) // entry.size * entry.size])


def _notes(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Kind, owner and content of each note."""
    offset = 0
    while offset + _NOTE.size <= len(content):
        owner_size, size, kind = _NOTE.unpack_from(content, offset)
        offset += _NOTE.size
        owner_end = offset + (owner_size + 3) // 4 * 4
        yield kind, content[offset : offset + owner_size], content[owner_end : owner_end + size]
        offset = owner_end + (size + 3) // 4 * 4


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    if offset >= 1 << 63:
        return b""
    file.seek(offset)
    return file.read(size)
