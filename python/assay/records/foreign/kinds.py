"""What a file is: a table of kinds, each recognised by the first bytes (no text) or by a line near the begin (text).

The table is for refusals: a reader that gets another file says what that file is. It holds what people of this field
have at hand and may give by mistake. Signatures are those of the formats' owners, as file(1) knows them, too.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

GIVE_OUTPUT = "give the text that the tool has written"
DARSHAN = 6567223  # DARSHAN_MAGIC_NR of darshan-log-format.h, after eight bytes of version


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
    BinaryKind("a log of Darshan", struct.pack("<q", DARSHAN), offset=8),
    BinaryKind("a recording of memray", b"memray"),
    BinaryKind("a packet capture", b"\xd4\xc3\xb2\xa1"),
    BinaryKind("a packet capture", b"\x0a\x0d\x0d\x0a"),
)
_PICKLE = re.compile(
    rb"\x80[\x02-\x05][\x95(}\]c\x8c]", re.DOTALL
)  # protocol, then a frame or the first opcode


def _lines(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


def _json(key: str) -> re.Pattern[str]:
    """An object with this key; keys before it may hold anything."""
    return re.compile(rf'\A\s*\{{[^\0]*"{key}"\s*:')


_XML = _lines(r"^[ \t]*<")
READ = (
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
    Kind("subnet.lst", "OpenSM's opensm-subnet.lst", _lines(r"^\{ (CA|SW|R[Tt])"), _lines(r"^\{ ")),
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
    Kind("topology.conf", "Slurm's topology.conf", _lines(r"^[ \t]*(?i:SwitchName|BlockName)[ \t]*=")),
    Kind("topology.yaml", "Slurm's topology.yaml", _lines(r"^-?[ \t]*topology:[ \t]*\S+[ \t\r]*$")),
    Kind(
        "slurm.conf", "Slurm's slurm.conf", _lines(r"^[ \t]*(?i:ClusterName|SlurmctldHost|NodeName)[ \t]*=")
    ),
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
FABRIC = (
    Kind(
        "ibnetdiscover -p",
        "the output of ibnetdiscover -p",
        _lines(r"^(SW|CA|RT) +[0-9]+ +[0-9]+ 0x[0-9a-f]{16} [0-9?]+x "),
    ),
    Kind(
        "ibnetdiscover -l",
        "the output of ibnetdiscover -l",
        _lines(r"^(Ca|Switch|Router)\t : 0x[0-9a-f]+ ports [0-9]+ devid "),
    ),
    Kind("iblinkinfo", "the output of iblinkinfo", _lines(r"^(CA|Switch): ?\S.*:$|==\( *[0-9]+X ")),
    Kind(
        "ibhosts",
        "the output of ibhosts or ibswitches",
        _lines(r'^(Ca|Switch|Router)\t: 0x[0-9a-f]+ ports [0-9]+ "'),
    ),
    Kind("ibstat", "the output of ibstat", _lines(r"\ACA '\S+'$")),
    Kind("ibstatus", "the output of ibstatus", _lines(r"^Infiniband device '\S+' port [0-9]+ status:")),
    Kind("ibv_devinfo", "the output of ibv_devinfo", _lines(r"^hca_id:[ \t]+\S+")),
    Kind("sminfo", "the output of sminfo", _lines(r"^sminfo: sm lid [0-9]+ sm guid 0x")),
    Kind("ibtracert", "the output of ibtracert", _lines(r"^From (ca|switch) \{0x[0-9a-f]+\} portnum ")),
    Kind(
        "ibqueryerrors",
        "the output of ibqueryerrors",
        _lines(r'^Errors for (0x[0-9a-f]+ )?"|^## Summary: [0-9]+ nodes checked'),
    ),
    Kind("saquery", "the output of saquery", _lines(r"^(Node|Path|PortInfo|Link|Switch)\w*Record dump:")),
    Kind(
        "multicast",
        "multicast forwarding tables",
        _lines(r"^Multicast mlids \[|^Switch 0x[0-9a-f]{16}\s*\nLID +: Out Port\(s\)"),
    ),
    Kind(
        "lid-matrix",
        "OpenSM's opensm-lid-matrix.dump",
        _lines(r"^Switch: guid 0x[0-9a-f]{16}[ \t\r]*$"),
    ),
    Kind(
        "node-name-map",
        "a map of node names",
        _lines(r'\A(?:[ \t]*(?:#.*)?\r?\n)*0x[0-9a-fA-F]{1,16}[ \t]+"[^"\n]*"[ \t\r]*$'),
    ),
    Kind(
        "opensm.log",
        "a log of OpenSM",
        _lines(r"^\w{3} [ 0-9]{2} [0-9:]{8} [0-9]{6} \[[0-9A-F]+\] 0x[0-9A-F]{2} ->"),
    ),
    Kind(
        "ibdiagnet.log",
        "a log of ibdiagnet",
        _lines(r'"IBDIAGNET [0-9]|^Running command +: ibdiagnet|^-I- Discovering'),
    ),
    Kind(
        "opareport text",
        "the text of opareport",
        _lines(r"^(Links|Node Type|Route|Connection) Summary[ \t\r]*$|^[0-9]+ Links in Fabric:"),
    ),
    Kind(
        "opaextract",
        "the output of opaextractlids or opaextractsellinks",
        _lines(r"^(0x[0-9a-f]{16};[0-9]+;(FI|SW);|NodeGUID;PortNum;NodeType;)"),
    ),
    Kind("ibsim", "a net file of ibsim", _lines(r'^(Hca|Switch)\s+[0-9]+\s+"[^"\n]*"[ \t\r]*$')),
    Kind("ibdm", "a topology file of ibdm", _lines(r"^[ \t]*\S+ -> \S+ \S+ P[0-9]+(/\S+)?[ \t\r]*$")),
)
MACHINES = (
    Kind(
        "lstopo",
        "the text of lstopo",
        _lines(r"\AMachine \([0-9]+[KMGT]B( total)?\)|^ *(NUMANode|PU) (L#|P#)[0-9]+\b"),
    ),
    Kind("numactl", "the output of numactl -H", _lines(r"^available: [0-9]+ nodes? \(")),
    Kind("numastat", "the output of numastat", _lines(r"^numa_hit +[0-9]")),
    Kind("lscpu", "the output of lscpu", _lines(r"\AArchitecture: +\S+$")),
    Kind("nvidia-smi", "the output of nvidia-smi", _lines(r"^\t(\x1b\[4m)?GPU0\t|^\| NVIDIA-SMI [0-9]")),
    Kind("sinfo", "the output of sinfo", _lines(r"\APARTITION +AVAIL +TIMELIMIT ")),
    Kind("kubectl", "the output of kubectl get nodes", _lines(r"\ANAME +STATUS +ROLES +AGE ")),
    Kind("flux", "the output of flux resource list", _lines(r"\A *STATE +(QUEUE +|PROPERTIES +)?NNODES ")),
    Kind("R", "a resource set of Flux", _json("R_lite")),
)
BENCHMARKS = (
    Kind(
        "osu",
        "the output of an OSU benchmark",
        _lines(r"^# (OSU|OMB-Py) (MPI|OpenSHMEM|UPC|[NRx]CCL)\S* .*\b[Tt]est\b"),
    ),
    Kind("imb", "the output of the Intel MPI Benchmarks", _lines(r"^# +Intel\(R\) MPI Benchmarks ")),
    Kind(
        "perftest",
        "the output of perftest",
        _lines(r"^ *(RDMA_\w+|Send|Atomic_\w+) .*(BW|Latency) Test[ \t\r]*$|^ #bytes +#iterations "),
    ),
    Kind("linktest", "the output of LinkTest", _lines(r"(?i:^ *linktest version [0-9])")),
    Kind("iperf3", "the JSON of iperf3", re.compile(r'\A\s*\{\s*"start"\s*:[^\0]*"(connected|version)"\s*:')),
    Kind(
        "iperf",
        "the text of iperf",
        _lines(r"^(Connecting to host \S+, port|Server listening on |Client connecting to )"),
    ),
    Kind("nccl-tests", "the output of nccl-tests", _lines(r"^# nThread [0-9]+ nGpus [0-9]+ minBytes ")),
    Kind(
        "ior output",
        "the output of IOR",
        _lines(r"^IOR-[0-9].*: MPI Coordinated Test of Parallel I/O|^access,bw\(MiB/s\),"),
    ),
    Kind("ior json", "the JSON of IOR", _json("Command line")),
    Kind(
        "h5bench output",
        "the output of h5bench",
        _lines(r"^=+ +Performance Results +=+[ \t\r]*$|\Ametric, value, unit[ \t\r]*$"),
    ),
    Kind("io500", "the output of IO500", _lines(r"^IO500 version |^\[RESULT\] +[\w-]+ +[0-9.]+ \w+/")),
    Kind("mdtest output", "the output of mdtest", _lines(r"^mdtest-\S+ was launched with ")),
    Kind("fio", "the JSON of fio", _json("fio version")),
    Kind("fio text", "the text of fio", _lines(r"^\S.*: \(g=[0-9]+\): rw=|^fio-[0-9]+\.[0-9.]+[ \t\r]*$")),
    Kind("darshan-parser", "the output of darshan-parser", _lines(r"^# darshan log version:")),
    Kind("hpl", "the output of HPL", _lines(r"^HPLinpack [0-9]")),
    Kind("hpcg", "the output of HPCG", _lines(r"^HPCG-Benchmark[ \t\r]*(version=|$)")),
    Kind("stream", "the output of STREAM", _lines(r"^STREAM version ")),
    Kind(
        "mlc", "the output of Intel's Memory Latency Checker", _lines(r"^Intel\(R\) Memory Latency Checker ")
    ),
)
PROFILERS = (
    Kind("heaptrack", "a heaptrack trace", _lines(r"\Av [0-9a-f]+( [0-9a-f]+)?$")),
    Kind("massif", "a profile of massif", _lines(r"^time_unit: (i|ms|B)$")),
    Kind("callgrind", "a profile of callgrind", _lines(r"\A# callgrind format|^creator: callgrind-")),
    Kind("cachegrind", "a profile of cachegrind", _lines(r"\Adesc: I1 cache:")),
    Kind("valgrind", "a report of valgrind", _lines(r"\A==[0-9]+== |^<valgrindoutput>")),
    Kind("malt", "a profile of MALT", re.compile(r'\A\s*\{[^\0]*"run"\s*:\s*\{[^{}\0]*"formatVersion"\s*:')),
    Kind(
        "numaprof",
        "a profile of NUMAPROF",
        re.compile(r'\A\s*\{\s*"infos"\s*:\s*\{[^\0]*"formatVersion"\s*:'),
    ),
    Kind(
        "speedscope",
        "a profile of speedscope",
        re.compile(r"\A\s*\{[^\0]*speedscope\.app/file-format-schema"),
    ),
    Kind("trace events", "a trace of Chrome's format", _json("traceEvents")),
    Kind("jemalloc", "a heap profile of jemalloc", _lines(r"\Aheap_v2/[0-9]+$")),
    Kind("gperftools", "a heap profile of gperftools", _lines(r"\Aheap profile: +[0-9]+:")),
    Kind(
        "perf script",
        "the output of perf script",
        _lines(r"^\S.* [0-9]+(/[0-9]+)? +(\[[0-9]+\] +)?[0-9]+\.[0-9]+: +([0-9]+ +)?[\w:/-]+: *$"),
    ),
)
TEXT = READ + FABRIC + MACHINES + BENCHMARKS + PROFILERS


def binary_kind(head: bytes) -> BinaryKind | None:
    """What the first bytes are; None for text, or for what is not known."""
    if _PICKLE.match(head):
        return BinaryKind("a pickle of Python", b"")
    return next((kind for kind in BINARY if head.startswith(kind.magic, kind.offset)), None)


def text_kind(head: str) -> Kind | None:
    """What the first part of a text is: the kind whose line comes first; None for what is not known."""
    found = [(match.start(), kind) for kind in TEXT if (match := kind.pattern.search(head))]
    return min(found, key=lambda item: item[0])[1] if found else None
