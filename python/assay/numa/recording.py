"""The file that every recorder of the NUMA profiler writes: one JSON array per line, a ``Row`` each.

This is the only definition of the format. ``engines/profile/numa/format/lines.hpp`` writes it. A row is an array
whose first element names it; numbers are whole. A recording is one process; without an ``end`` row it was cut off,
and holds what was recorded until then. Bytes of names are written as the characters U+0000 to U+00FF.

A recording may come from an untrusted program or machine: every row is checked against its type, and every number that
refers to another row is checked against the rows before it.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from assay.errors import UserError
from assay.records.files import open_regular

VERSION = 1
MAX_BYTES = 4 << 30
MAX_LINE = 64 << 20
PARTS = 16
NOWHERE = -1  # the node of a page that was not found in memory
MODES = {
    "touch": "first touches",
    "sample": "sampled accesses",
    "gcc": "every access, compiled by gcc",
    "llvm": "every access, compiled by clang",
    "qemu": "every access, emulated",
}
RECORDERS = ("touch", "sample")  # modes that watch a program from outside
# The data sources of sampled accesses, in the order of ``Sampling.samples_by_source``. Near: on the thread's node.
DATA_SOURCES = ("near cache", "near memory", "far cache", "far memory", "unknown")
POLICIES = ("default", "preferred", "bind", "interleave", "local", "preferred many", "weighted interleave")
KINDS = ("heap", "mapping", "global", "stack", "small", "other")

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Address = Annotated[int, Meta(ge=0)]
NodeId = Annotated[int, Meta(ge=NOWHERE, lt=64)]
Processor = Annotated[int, Meta(ge=0, lt=1 << 16)]


class Row(Struct, array_like=True, forbid_unknown_fields=True):
    pass


class Process(Row, tag="process"):
    """The first row. ``emulated``: the number of emulated nodes, 0 for the machine's own. ``command``: the arguments,
    each ended by a zero."""

    version: int
    mode: str
    pid: Count
    parent: Count
    page_bytes: Annotated[int, Meta(ge=1, le=1 << 30)]
    emulated: Annotated[int, Meta(ge=0, le=64)]
    command: str
    rank: str


class Node(Row, tag="node"):
    """``memory`` in bytes, 0 if unknown. ``distances`` to each node, as the firmware gives them; may be empty."""

    id: Annotated[int, Meta(ge=0, lt=64)]
    processors: list[Processor]
    memory: Count
    distances: list[Count]


class Module(Row, tag="module"):
    """An object's code: addresses in the process are the object's own plus ``bias``."""

    bias: Address
    begin: Address
    end: Address
    path: str


class Thread(Row, tag="thread"):
    """``number`` counts the process's threads from 0."""

    number: Count
    tid: Count
    name: str


class Binding(Row, tag="binding"):
    """The processors and the memory policy of a thread from ``ns`` after the start on; ``nodes`` are the policy's."""

    thread: Count
    ns: Count
    processors: list[Processor]
    policy: Annotated[int, Meta(ge=0, lt=256)]
    nodes: list[NodeId]


class Stack(Row, tag="stack"):
    """Addresses within the calling instructions, innermost first. ``number`` starts with 1; 0: no stack."""

    number: Annotated[int, Meta(ge=1, lt=2**32)]
    addresses: list[Address]


class Site(Row, tag="site"):
    """A line of source without an address, of code that counts its own accesses (modes gcc and llvm)."""

    stack: Annotated[int, Meta(ge=1, lt=2**32)]
    function: str
    file: str
    line: Count


class Object(Row, tag="object"):
    """All blocks that one stack allocated, or all memory of one kind. ``bytes`` and ``count`` of all blocks."""

    number: Count
    kind: str
    name: str
    stack: Count
    bytes: Count
    count: Count


class Touch(Row, tag="touch"):
    """Pages that were touched first: from ``stack`` by ``thread`` while it ran on ``thread_node``. ``huge`` of the
    faults brought a huge page."""

    object: Count
    stack: Count
    thread: Count
    thread_node: NodeId
    page_node: NodeId
    policy: Annotated[int, Meta(ge=0, lt=256)]
    pages: Count
    huge: Count


class Access(Row, tag="access"):
    """Loads and stores of ``stack`` by ``thread`` on ``thread_node`` to pages on ``page_node``. ``object`` is
    ``NOWHERE`` where the recorder does not tell a place's objects apart."""

    object: Annotated[int, Meta(ge=NOWHERE, le=2**63 - 1)]
    stack: Count
    thread: Count
    thread_node: NodeId
    page_node: NodeId
    reads: Count
    writes: Count


class Part(Row, tag="part"):
    """Accesses from ``thread_node`` to one of the ``PARTS`` equal parts of an object's blocks."""

    object: Count
    part: Annotated[int, Meta(ge=0, lt=16)]
    thread: Count
    thread_node: NodeId
    page_node: NodeId
    accesses: Count


class Placed(Row, tag="placed"):
    """Pages of an object on a node, at the time when the object had most pages in memory."""

    object: Count
    node: NodeId
    pages: Count


class Moved(Row, tag="moved"):
    """Pages that were found on another node than before."""

    object: Count
    source: NodeId
    target: NodeId
    pages: Count


class Memory(Row, tag="memory"):
    """Resident pages of the process ``ns`` after its start."""

    ns: Count
    node: NodeId
    pages: Count


class Slice(Row, tag="slice"):
    """Sampled accesses from ``ns`` after the start on, for ``width`` ns; in touch mode first touches. ``unknown``:
    those of which a node is not known."""

    ns: Count
    width: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    local: Count
    remote: Count
    unknown: Count


class Sampling(Row, tag="sampling"):
    """Each sample stands for about ``period`` accesses (of AMD's ibs_op: instructions). ``events``: names, separated by
    commas. ``throttled``: how often the kernel suppressed samples, of all processes. ``samples_by_source``: in
    the order of ``DATA_SOURCES``."""

    events: str
    period: Count
    throttled: Count
    samples_by_source: Annotated[list[Count], Meta(min_length=5, max_length=5)]


class Note(Row, tag="note"):
    """A message about missing data, with the reason."""

    text: str


class End(Row, tag="end"):
    """The process ended ``ns`` after the start, 0 if unknown. ``lost``: events. ``repeated_faults``: on pages that were
    touched before."""

    ns: Count
    lost: Count
    repeated_faults: Count


AnyRow = (
    Process | Node | Module | Thread | Binding | Stack | Site | Object
    | Touch | Access | Part | Placed | Moved | Memory | Slice | Sampling | Note | End
)  # fmt: skip


class Recording(Struct):
    """The rows of one file by kind; every reference is to a row that exists."""

    process: Process
    nodes: dict[int, Node] = {}
    modules: list[Module] = []
    threads: dict[int, Thread] = {}
    bindings: list[Binding] = []
    stacks: dict[int, tuple[int, ...]] = {}
    sites: dict[int, Site] = {}
    objects: dict[int, Object] = {}
    touches: list[Touch] = []
    accesses: list[Access] = []
    parts: list[Part] = []
    placed: list[Placed] = []
    moved: list[Moved] = []
    memory: list[Memory] = []
    slices: list[Slice] = []
    sampling: Sampling | None = None
    notes: list[str] = []
    end: End | None = None


def as_text(raw: str) -> str:
    """Decodes a name of which each character stands for a byte."""
    try:
        return raw.encode("latin-1").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return raw


def as_shown(raw: str) -> str:
    """Decodes a name for display and storage: bytes that are not UTF-8 are replaced."""
    return as_text(raw).encode(errors="replace").decode()


def read_recording(path: Path) -> Recording:
    """Raises UserError for a file that is not a recording, with the line and what is wrong there."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise UserError(f"{path} has {size} bytes: too large for a recording", f"at most {MAX_BYTES}")
            return parse_recording(file, str(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def parse_recording(lines: Iterable[bytes], name: str) -> Recording:
    """Raises UserError. A last line that was cut off is left out."""
    decoder = msgspec.json.Decoder(AnyRow)
    recording: Recording | None = None
    for number, line in enumerate(lines, 1):
        try:
            if len(line) > MAX_LINE:
                raise ValueError("the line is too long")
            if not line.endswith(b"\n"):
                break  # cut off: the writer was killed, or the disk was full
            row = decoder.decode(line)
            if recording is None:
                recording = _begin(row)
            else:
                _add(recording, row)
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            raise UserError(
                f"{name}, line {number}: {error}", "record it again: assay numa -- PROGRAM"
            ) from None
    if recording is None:
        raise UserError(f"{name} is empty", "record it again: assay numa -- PROGRAM")
    return recording


def check_recording(recording: Recording) -> None:
    """Raises ValueError for a recording, read in another way, whose rows refer to rows that do not exist."""
    fresh = _begin(recording.process)
    for rows in (
        recording.nodes.values(),
        recording.modules,
        recording.threads.values(),
        recording.bindings,
        (Stack(number, list(addresses)) for number, addresses in recording.stacks.items()),
        recording.sites.values(),
        recording.objects.values(),
        recording.touches,
        recording.accesses,
        recording.parts,
        recording.placed,
        recording.moved,
        recording.memory,
        recording.slices,
        [recording.sampling] if recording.sampling else [],
        [recording.end] if recording.end else [],
    ):
        for row in rows:
            _add(fresh, row)
    for stored, checked in ((recording.nodes, fresh.nodes), (recording.threads, fresh.threads)):
        if stored.keys() != checked.keys():
            raise ValueError("a row is filed under another number than its own")
    if recording.objects.keys() != fresh.objects.keys():
        raise ValueError("an object is filed under another number than its own")


def _begin(row: object) -> Recording:
    if not isinstance(row, Process):
        raise ValueError("a recording begins with its process")
    if row.version != VERSION:
        raise ValueError(f"version {row.version} of the format; this Assay reads {VERSION}")
    if row.mode not in MODES:
        raise ValueError(f"unknown mode '{row.mode[:40]}'")
    return Recording(process=row)


def _add(recording: Recording, row: AnyRow) -> None:
    """Adds a row. Raises ValueError for a row that refers to rows that do not exist."""
    if isinstance(row, Process):
        raise ValueError("a second process")
    if recording.end is not None:
        raise ValueError("a row after the end")
    match row:
        case Node():
            recording.nodes[row.id] = row
        case Module():
            if not row.begin < row.end < 1 << 64 or row.bias >= 1 << 64:
                raise ValueError("a module outside of all addresses")
            recording.modules.append(row)
        case Thread():
            recording.threads[row.number] = row
        case Binding():
            _check_defined(row.thread, recording.threads, "thread")
            recording.bindings.append(row)
        case Stack():
            if any(address >= 1 << 64 for address in row.addresses):
                raise ValueError("a number that is not an address")
            recording.stacks[row.number] = tuple(row.addresses)
        case Site():
            recording.sites[row.stack] = row
        case Object():
            if row.kind not in KINDS:
                raise ValueError(f"unknown kind of object '{row.kind[:40]}'")
            _check_stack(row.stack, recording)
            recording.objects[row.number] = row
        case Touch() | Access():
            if row.object != NOWHERE:
                _check_defined(row.object, recording.objects, "object")
            _check_nodes(row, recording)
            _check_stack(row.stack, recording)
            if isinstance(row, Touch):
                recording.touches.append(row)
            else:
                recording.accesses.append(row)
        case Part():
            _check_defined(row.object, recording.objects, "object")
            _check_nodes(row, recording)
            recording.parts.append(row)
        case Placed():
            _check_defined(row.object, recording.objects, "object")
            _check_node(row.node, recording)
            recording.placed.append(row)
        case Moved():
            _check_defined(row.object, recording.objects, "object")
            _check_node(row.source, recording)
            _check_node(row.target, recording)
            recording.moved.append(row)
        case Memory():
            _check_node(row.node, recording)
            recording.memory.append(row)
        case Slice():
            if recording.slices and row.width != recording.slices[0].width:
                raise ValueError("slices of different widths")
            recording.slices.append(row)
        case Sampling():
            recording.sampling = row
        case Note():
            recording.notes.append(as_shown(row.text))
        case End():
            recording.end = row


def _check_nodes(row: Touch | Access | Part, recording: Recording) -> None:
    _check_defined(row.thread, recording.threads, "thread")
    _check_node(row.thread_node, recording)
    _check_node(row.page_node, recording)


def _check_defined(number: int, rows: Container[int], kind: str) -> None:
    if number not in rows:
        raise ValueError(f"{kind} {number} is not defined before its use")


def _check_stack(number: int, recording: Recording) -> None:
    if number and number not in recording.stacks and number not in recording.sites:
        raise ValueError(f"stack {number} is not defined before its use")


def _check_node(node: int, recording: Recording) -> None:
    if node != NOWHERE and node not in recording.nodes:
        raise ValueError(f"node {node} is not defined before its use")
