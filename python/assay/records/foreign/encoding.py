"""Text of any usual encoding as UTF-8.

A mark at the begin decides, then the encoding that an XML declaration names, then zero bytes at every other place
(UTF-16 without a mark). Else each line is UTF-8, or Latin-1 where it is not: descriptions of adapters hold any bytes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from assay.errors import UserError

_MARKS = (  # that of UTF-32 begins like that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
DECLARATION = re.compile(rb"\s*<\?xml\b[^>]{0,200}?\?>")
_DECLARED = re.compile(rb"""encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")
_UTF8 = ("utf-8", "ascii")
MAX_LINE = 1 << 20  # bytes; a longer line is passed on in parts


def utf8_chunks(path: Path, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """``chunks`` in UTF-8, each of whole lines, without mark, and without an XML declaration of another encoding.
    Raises UserError for an encoding that is not known, or not kept to."""
    head = next(chunks, b"")
    mark, name = next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), (b"", ""))
    head = head[len(mark) :]
    name = name or _declared(path, head) or _utf16_without_mark(head)
    whole: Iterator[bytes] = chain([head], chunks)
    if name not in ("", *_UTF8):
        whole = _decoded(path, whole, name)
    return _without_declaration(_as_utf8(whole))


def _declared(path: Path, head: bytes) -> str:
    """The codec that an XML declaration names; empty without one. Raises UserError for an unknown one."""
    declaration = DECLARATION.match(head)
    named = _DECLARED.search(declaration[0]) if declaration else None
    if named is None:
        return ""
    name = named[1].decode()
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # codecs such as "hex" are none of text
    except (LookupError, UnicodeError):
        raise UserError(
            f"{path}:1: the encoding '{name}' is not known", "convert it: iconv -t UTF-8"
        ) from None
    return "" if codec.name.startswith("utf-16") else codec.name  # without zero bytes it is none


def _utf16_without_mark(head: bytes) -> str:
    sample = head[:1024]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if odd > len(sample) // 4 and not even:
        return "utf-16-le"
    return "utf-16-be" if even > len(sample) // 4 and not odd else ""


def _decoded(path: Path, chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(name)()
    try:
        for chunk in chunks:
            yield decoder.decode(chunk).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError:
        raise UserError(f"{path}: not {name}, although it says so", "convert it: iconv -t UTF-8") from None


def _as_utf8(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        rest += chunk
        end = rest.rfind(b"\n") + 1
        if end == 0 and len(rest) > MAX_LINE:
            end = len(rest)
        if end:
            yield _lines_as_utf8(rest[:end])
            rest = rest[end:]
    if rest:
        yield _lines_as_utf8(rest)


def _lines_as_utf8(lines: bytes) -> bytes:
    try:
        lines.decode()
    except UnicodeDecodeError:
        return b"".join(map(_line_as_utf8, lines.splitlines(keepends=True)))
    return lines


def _line_as_utf8(line: bytes) -> bytes:
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1").encode()
    return line


def _without_declaration(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """A declaration that names another encoding becomes blanks: the text had it, and has it no more."""
    first = next(chunks, b"")
    declaration = DECLARATION.match(first)
    named = _DECLARED.search(declaration[0]) if declaration else None
    if declaration and named and named[1].decode().lower() not in _UTF8:
        first = blanked(declaration[0]) + first[declaration.end() :]
    return chain([first], chunks)


def blanked(text: bytes) -> bytes:
    """Blanks, and the ends of lines."""
    return re.sub(rb"[^\r\n]", b" ", text)
