"""What a file is: a table of kinds, each recognised by the first bytes (no text) or by a line near the begin (text).

The table is for refusals: a reader that gets another file says what that file is. It holds what people of this field
have at hand and may give by mistake. Signatures are those of the formats' owners, as file(1) knows them, too.
"""

from __future__ import annotations

import re
from typing import NamedTuple

GIVE_OUTPUT = "give the text that the tool has written"


class Kind(NamedTuple):
    """``name`` in messages; ``fix`` for binary ones. ``pattern`` of text: searched in its first part, line by line.
    ``first``: a line with which it may begin; what is before that belongs to no such file. None: not looked for."""

    key: str
    name: str
    pattern: re.Pattern[str]
    first: re.Pattern[str] | None = None
    fix: str = ""


class BinaryKind(NamedTuple):
    name: str
    magic: bytes
    fix: str = GIVE_OUTPUT
    offset: int = 0


BINARY = (
    BinaryKind("an ELF program or library", b"\x7fELF"),
    BinaryKind("a PNG picture", b"\x89PNG\r\n\x1a\n"),
    BinaryKind("a JPEG picture", b"\xff\xd8\xff"),
    BinaryKind("a GIF picture", b"GIF8"),
    BinaryKind("a PDF document", b"%PDF-"),
    BinaryKind("an HDF5 file", b"\x89HDF\r\n\x1a\n"),
    BinaryKind("a netCDF file", b"CDF\x01"),
    BinaryKind("an SQLite database", b"SQLite format 3\0"),
    BinaryKind("a NumPy array", b"\x93NUMPY"),
    BinaryKind("a Parquet file", b"PAR1"),
    BinaryKind("a recording of perf", b"PERFILE2"),
    BinaryKind("a zip archive", b"PK\x03\x04", "unpack it, and name the file inside"),
    BinaryKind("a 7z archive", b"7z\xbc\xaf\x27\x1c", "unpack it, and name the file inside"),
    BinaryKind("a tar archive", b"ustar", "unpack it, and name the file inside", 257),
    BinaryKind("a packet capture", b"\xd4\xc3\xb2\xa1"),
    BinaryKind("a packet capture", b"\x0a\x0d\x0d\x0a"),
)
_PICKLE = re.compile(
    rb"\x80[\x02-\x05][\x95(}\]c\x8c]", re.DOTALL
)  # protocol, then a frame or the first opcode


def _lines(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


_XML = _lines(r"^[ \t]*<")
TEXT = (
    Kind("lfs", "a pointer of Git LFS", _lines(r"\Aversion https://git-lfs")),
    Kind("html", "a page of HTML", re.compile(r"\A\s*<(!DOCTYPE\s+html|html)\b", re.IGNORECASE)),
    Kind(
        "ibnetdiscover",
        "the output of ibnetdiscover",
        _lines(r'^(Switch|Ca|Rt)\s+[0-9]+ "[SHR]-'),
        _lines(
            r"^(#|(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=|(Switch|Ca|Rt)\s|Chassis|Non-Chassis)"
        ),
    ),
    Kind("subnet.lst", "OpenSM's opensm-subnet.lst", _lines(r"^\{ (CA|SW|RT)"), _lines(r"^\{ ")),
    Kind("db_csv", "an ibdiagnet db_csv", _lines(r"^START_[A-Z_0-9]+[ \t\r]*$"), _lines(r"^(#|START_)")),
    Kind(
        "lfts",
        "forwarding tables (dump_fts, opensm-lfts.dump)",
        _lines(r"^Unicast lids \["),
        _lines(r"^(#|Unicast lids)"),
    ),
    Kind("fdbs", "forwarding tables (opensm.fdbs)", _lines(r"^\w*dump_ucast_routes: Switch 0x")),
    Kind("opareport", "an opareport", _lines(r"^[ \t]*<(Report|Snapshot|Topology)\b"), _XML),
    Kind("hwloc", "an hwloc XML", _lines(r"^[ \t]*<topology\b|^[ \t]*<!DOCTYPE topology"), _XML),
    Kind("simgrid", "a SimGrid platform", _lines(r"^[ \t]*<platform\b|^[ \t]*<!DOCTYPE platform"), _XML),
    Kind("iblinkinfo", "the output of iblinkinfo", _lines(r"^(CA|Switch): ?\S.*:$|==\( *[0-9]+X ")),
    Kind(
        "ibhosts",
        "the output of ibhosts or ibswitches",
        _lines(r'^(Ca|Switch)\t: 0x[0-9a-f]+ ports [0-9]+ "'),
    ),
    Kind("ibstat", "the output of ibstat", _lines(r"\ACA '\S+'$")),
    Kind("ibsim", "a net file of ibsim", _lines(r'^(Hca|Switch)\s+[0-9]+\s+"[^"\n]*"[ \t\r]*$')),
    Kind("topology.conf", "Slurm's topology.conf", _lines(r"^[ \t]*(?i:SwitchName|BlockName)[ \t]*=")),
    Kind("topology.yaml", "Slurm's topology.yaml", _lines(r"^-?[ \t]*topology:[ \t]*\S+[ \t\r]*$")),
    Kind(
        "slurm.conf", "Slurm's slurm.conf", _lines(r"^[ \t]*(?i:ClusterName|SlurmctldHost|NodeName)[ \t]*=")
    ),
    Kind("heaptrack", "a heaptrack trace", _lines(r"\Av [0-9a-f]+( [0-9a-f]+)?$")),
    Kind("ior", "a script of IOR", _lines(r"^[ \t]*(?i:IOR START)[ \t\r]*$")),
    Kind("h5bench.json", "a JSON configuration of h5bench", re.compile(r'\A\s*\{[^\0]*"benchmarks"\s*:')),
    Kind(
        "h5bench",
        "settings of h5bench",
        _lines(r"^[ \t]*(MEM_PATTERN|FILE_PATTERN|TO_READ_NUM_PARTICLES|NUM_DIMS|DIM_1)[ \t]*="),
    ),
    Kind("run", "records of Assay", _lines(r'\A\{"type":')),
    Kind("script", "a script", _lines(r"\A#!\s*/")),
)


def binary_kind(head: bytes) -> BinaryKind | None:
    """What the first bytes are; None for text, or for what is not known."""
    if _PICKLE.match(head):
        return BinaryKind("a pickle of Python", b"")
    return next((kind for kind in BINARY if head.startswith(kind.magic, kind.offset)), None)


def text_kind(head: str) -> Kind | None:
    """What the first part of a text is: the kind whose line comes first; None for what is not known."""
    found = [(match.start(), kind) for kind in TEXT if (match := kind.pattern.search(head))]
    return min(found, key=lambda item: item[0])[1] if found else None
