"""Unpacks compressed files piece by piece, within limits: a few bytes may unpack to any size.

zstd has no module in Python 3.11; the library that the engines link is called.
"""

from __future__ import annotations

import bz2
import ctypes
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from assay.errors import UserError

PIECE = 1 << 17
MAX_UNPACKED = 4 << 30  # bytes; dumps of the largest fabrics have some hundred MB
# Dumps of fabrics shrink to a tenth or a thirtieth. Only what was made to harm shrinks to a thousandth.
MAX_RATIO, ALWAYS_ALLOWED = 200, 16 << 20
MAX_DICTIONARY = 256 << 20  # bytes of memory that an xz file may ask for; xz -9 needs 65 MiB
DAMAGED = "copy it again, or make it again"


class Compression(NamedTuple):
    """``magic``: the first bytes. ``pieces``: yields the unpacked content; None: it is named, and not unpacked."""

    name: str
    magic: bytes
    command: str
    pieces: Callable[[BinaryIO], Iterator[bytes]] | None


class _DamageError(Exception):
    """Compressed data that cannot be unpacked."""


def _read_pieces(file: BinaryIO | gzip.GzipFile | bz2.BZ2File) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _lzma_pieces(file: BinaryIO) -> Iterator[bytes]:
    stream = None
    data = b""
    while True:
        if not data and (stream is None or stream.needs_input):
            data = file.read(PIECE)
            if not data:
                break
        if stream is None:  # streams may follow each other, with padding of zeros
            data = data.lstrip(b"\0")
            if not data:
                continue
            stream = lzma.LZMADecompressor(memlimit=MAX_DICTIONARY)
        yield stream.decompress(data, PIECE)
        data = b""
        if stream.eof:
            data, stream = stream.unused_data, None
    if stream is not None:
        raise EOFError


class _Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t)]


def _zstd() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        raise UserError(
            "libzstd.so.1 is not installed, so zstd cannot be unpacked", "apt-get install libzstd1"
        ) from None
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    library.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    return library


def _zstd_pieces(file: BinaryIO) -> Iterator[bytes]:
    library = _zstd()
    stream = library.ZSTD_createDStream()
    target = ctypes.create_string_buffer(PIECE)
    missing = 0  # bytes that zstd still expects; 0 at the end of a frame
    try:
        while data := file.read(PIECE):
            held = ctypes.create_string_buffer(data, len(data))
            source = _Buffer(ctypes.cast(held, ctypes.c_void_p), len(data), 0)
            is_full = False
            while source.position < source.size or is_full:
                out = _Buffer(ctypes.cast(target, ctypes.c_void_p), PIECE, 0)
                missing = library.ZSTD_decompressStream(stream, ctypes.byref(out), ctypes.byref(source))
                if library.ZSTD_isError(missing):
                    raise _DamageError
                is_full = out.position == PIECE
                yield target.raw[: out.position]
    finally:
        library.ZSTD_freeDStream(stream)
    if missing:
        raise EOFError


COMPRESSIONS = (
    Compression("gzip", b"\x1f\x8b", "gunzip", lambda file: _read_pieces(gzip.GzipFile(fileobj=file))),
    Compression("bzip2", b"BZh", "bunzip2", lambda file: _read_pieces(bz2.BZ2File(file))),
    Compression("xz", b"\xfd7zXZ\0", "unxz", _lzma_pieces),
    Compression("zstd", b"\x28\xb5\x2f\xfd", "unzstd", _zstd_pieces),
    Compression("lz4", b"\x04\x22\x4d\x18", "unlz4", None),
    Compression("compress", b"\x1f\x9d", "uncompress", None),
    Compression("lzip", b"LZIP", "lzip -d", None),
)


def compression_of(head: bytes) -> Compression | None:
    return next((kind for kind in COMPRESSIONS if head.startswith(kind.magic)), None)


def unpacked(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The content of a file, unpacked where it is compressed. Raises UserError where it is damaged or too much."""
    head = file.read(8)
    file.seek(0)
    kind = compression_of(head)
    if kind is None:
        yield from _read_pieces(file)
        return
    if kind.pieces is None:
        raise UserError(f"{path}: compressed by {kind.name}", f"unpack it: {kind.command} {path}")
    limit = min(MAX_UNPACKED, max(ALWAYS_ALLOWED, MAX_RATIO * os.fstat(file.fileno()).st_size))
    size = 0
    try:
        for piece in kind.pieces(file):
            if not size and piece and compression_of(piece) is not None:
                raise UserError(f"{path}: compressed twice", f"unpack it: {kind.command} {path}")
            size += len(piece)
            if size > limit:
                raise UserError(
                    f"{path}: it unpacks to more than {limit >> 20} MiB, so Assay stops there",
                    f"if it is genuine, unpack it: {kind.command} {path}",
                )
            yield piece
    except EOFError:
        raise UserError(f"{path}: the {kind.name} data end in the middle: it is cut short", DAMAGED) from None
    except (_DamageError, gzip.BadGzipFile, zlib.error, lzma.LZMAError):
        raise UserError(f"{path}: the {kind.name} data are damaged", DAMAGED) from None
    except OSError as error:
        if error.errno is None:  # of bz2
            raise UserError(f"{path}: the {kind.name} data are damaged", DAMAGED) from None
        raise
