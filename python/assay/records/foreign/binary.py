"""What a file is that is no text: a table of kinds, each recognised by its first bytes.

Signatures are those of the formats' owners, as file(1) knows them, too.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

GIVE_OUTPUT = "give the text that the tool has written"
DARSHAN = 6567223  # DARSHAN_MAGIC_NR of darshan-log-format.h, after eight bytes of version


class BinaryKind(NamedTuple):
    """``magic`` at ``offset``; ``holds``: what else the first part has. The more special kind comes first."""

    name: str
    magic: bytes
    fix: str = GIVE_OUTPUT
    offset: int = 0
    holds: re.Pattern[bytes] | None = None


_PICKLE = re.compile(rb"\A\x80[\x02-\x05][\x95(}\]c\x8c]")  # protocol, then a frame or the first opcode
BINARY = (
    BinaryKind("an ELF program or library", b"\x7fELF"),
    BinaryKind("a PNG picture", b"\x89PNG\r\n\x1a\n"),
    BinaryKind("a JPEG picture", b"\xff\xd8\xff"),
    BinaryKind("a GIF picture", b"GIF8"),
    BinaryKind("a PDF document", b"%PDF-"),
    BinaryKind("an HDF5 file", b"\x89HDF\r\n\x1a\n"),
    BinaryKind("a netCDF file", b"CDF", holds=re.compile(rb"\ACDF[\x01\x02\x05]")),
    BinaryKind(
        "an SQLite export of Nsight Systems",
        b"SQLite format 3\0",
        holds=re.compile(rb"CREATE TABLE (StringIds|TARGET_INFO_|CUPTI_|META_DATA_EXPORT)"),
    ),
    BinaryKind("an SQLite database of rocprofiler", b"SQLite format 3\0", holds=re.compile(rb"\brocpd_")),
    BinaryKind("an SQLite database", b"SQLite format 3\0"),
    BinaryKind("a NumPy array", b"\x93NUMPY"),
    BinaryKind("a Parquet file", b"PAR1"),
    BinaryKind("a recording of perf", b"PERFILE2"),
    BinaryKind("a recording of perf", b"2ELIFREP"),
    BinaryKind("a report of Nsight Systems", b"NVIDIA Tegra Profiler Report"),
    BinaryKind("a report of Nsight Compute", b"NVR\0"),
    BinaryKind("a trace of OTF2 (Score-P)", b"OTF2"),
    BinaryKind("a database of HPCToolkit", b"HPCTOOLKIT"),
    BinaryKind("a measurement of HPCToolkit", b"HPCRUN-"),
    BinaryKind("a recording of gprof", b"gmon\x01\0\0\0"),
    BinaryKind("a trace of trace-cmd", b"\x17\x08Dtracing"),
    BinaryKind("a trace of LTTng", b"\xc1\x1f\xfc\xc1"),
    BinaryKind("a recording of Java's Flight Recorder", b"FLR\0"),
    BinaryKind("a heap dump of Java", b"JAVA PROFILE 1.0."),
    BinaryKind("a processor profile of gperftools", b"\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
    # proto/profile.proto: first a type of samples (two numbers), or, of other writers, the empty string.
    BinaryKind(
        "a profile of pprof", b"\n", holds=re.compile(rb"\A\n[\2-\x16](\x08[\x80-\xff]*[\0-\x7f]\x10|\x10)")
    ),
    BinaryKind("a profile of pprof", b"2\0002"),
    # Objects of Python as marshal writes them: a dictionary whose first key is (file, line, function).
    BinaryKind("a profile of Python's cProfile", b"", holds=re.compile(rb"\A[{\xfb][)\xa9]\x03")),
    BinaryKind("a pickle of Python", b"", holds=_PICKLE),
    BinaryKind(
        "a profile of Cube (Score-P)",
        b"ustar",
        offset=257,
        holds=re.compile(rb"\A(\./)?(anchor\.xml|[0-9]+\.(index|data))\0"),
    ),
    BinaryKind("a zip archive", b"PK\x03\x04", "unpack it, and name the file inside"),
    BinaryKind("a 7z archive", b"7z\xbc\xaf\x27\x1c", "unpack it, and name the file inside"),
    BinaryKind("a tar archive", b"ustar", "unpack it, and name the file inside", 257),
    BinaryKind("a log of Darshan", struct.pack("<q", DARSHAN), offset=8),
    BinaryKind("a recording of memray", b"memray"),
    BinaryKind("a packet capture", b"\xd4\xc3\xb2\xa1"),
    BinaryKind("a packet capture", b"\xa1\xb2\xc3\xd4"),
    BinaryKind("a packet capture", b"\x4d\x3c\xb2\xa1"),
    BinaryKind("a packet capture", b"\x0a\x0d\x0d\x0a"),
)


_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")  # of no text


def binary_kind(head: bytes) -> BinaryKind | None:
    """What the first bytes are; None for text, or for what is not known. A text may begin with letters that are a
    signature, too: hosts may be called PAR1."""
    is_text = _CONTROL.search(head) is None
    return next(
        (
            kind
            for kind in BINARY
            if head.startswith(kind.magic, kind.offset)
            and (kind.holds is None or kind.holds.search(head))
            and not (is_text and kind.magic.isalnum())
        ),
        None,
    )
