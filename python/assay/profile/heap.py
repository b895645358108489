"""A heap profile: what the analyser (``assay-heap analyse``) made of one process, by function, line and stack.

The tree of calls has a node for each distinct (function, line) below its caller; figures are of the blocks that
were asked for right there. Bytes are those that were requested, times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from assay.errors import UserError
from assay.profile.figures import Figures, Grouping, Key


class Place(Struct, array_like=True, frozen=True):
    function: str
    file: str
    line: int
    module: str
    inlined: bool
    hands_on: bool  # only passes requests on: what it asks for, its caller has asked for
    first: int  # the number of the first place of the same function
    peak_own: int  # the most that was live of what this line has asked for
    peak_total: int  # and of what was asked for below it
    function_peak_own: int
    function_peak_total: int

    @property
    def is_python(self) -> bool:
        """A function of Python's: its object is its file."""
        return self.module == self.file != ""

    @property
    def source(self) -> str:
        """ "solver.cpp:42", or the object where no source is known."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if name else self.module.rpartition("/")[2]


class Node(Struct, array_like=True):
    """One line of one function below one caller. ``parent`` is -1 for the outermost. Times are ticks."""

    parent: int
    place: int
    count: int
    bytes: int
    own_peak: int
    total_peak: int  # with all below it
    at_peak: int
    leaked: int
    leaked_count: int
    temporary: int
    reallocated: int
    frees: int
    lifetime: int
    sampled_ticks: int  # ticks of the calls that were timed, and how many these are
    sampled_calls: int
    sampled_free_ticks: int
    sampled_frees: int
    least: int
    most: int
    shortest: int
    longest: int
    foreign_reallocations: int = 0  # reallocations here of blocks that were allocated elsewhere


class Tree(Struct):
    places: list[Place]
    nodes: list[Node]
    # By the number of a node: blocks by the logarithm of their size, and of their lifetime in 16 ticks, to base 2;
    # each list begins with the first logarithm.
    spreads: dict[str, tuple[list[int], list[int]]]


class Process(Struct):
    pid: int  # 0: several, added up
    parent: int
    program: str
    rank: str  # in an MPI program; empty for none
    seconds: float
    complete: bool
    left: bool = False  # it goes on: what it has not freed, it may still free
    ran: float | None = None  # seconds until it was attached to; blocks from before are not known
    at_least: int = 0  # bytes: smaller blocks were left out
    sample: int = (
        0  # bytes: about one block was recorded for each so many, and figures are estimates; 0: all were
    )


class Trace(Struct):
    source: str  # the tool whose file it was; empty for a trace of our own
    bytes: int
    events: int
    lost_events: int
    damaged_bytes: int
    unreadable_chunks: int
    missing_objects: list[str]
    unread_python: str = ""  # the version of an interpreter whose functions are not seen; empty: none


class Totals(Struct):
    count: int
    bytes: int
    frees: int
    unknown_frees: int
    peak: int
    peak_count: int
    peak_seconds: float
    leaked: int
    leaked_count: int
    mapped: int
    mapped_bytes: int


class Calls(Struct):
    count: int
    seconds: float


class ThreadStack(Struct):
    """A thread's own stack, known where it allocates and frees. ``depth`` is the most within each step of the
    timeline, 0 where nothing is known; ``node`` is where it was deepest."""

    deepest: int
    seconds: float
    node: int
    resident: int  # when the thread ended; 0: unknown
    depth: list[int]


class Thread(Struct):
    thread: int
    name: str
    bytes: int
    first: float
    last: float
    foreign_frees: int
    calls: dict[str, Calls]
    stack: ThreadStack


class Timeline(Struct):
    """``live`` is the most within each step of ``step`` seconds; ``samples`` are (time, virtual, resident)."""

    start: float
    step: float
    live: list[int]
    count: list[int]
    bytes: list[int]
    samples: list[tuple[float, float, float]]


class Pin(Struct, array_like=True):
    """Blocks of one stack that keep nearly empty pages: ``bytes`` is their part of what is empty there."""

    node: int
    bytes: int
    blocks: int


class Fragments(Struct):
    """Pages that hold live blocks, at the moment when most of the process's memory was asked for by nobody.
    ``filled`` counts them by the tenth of them that is in use."""

    seconds: float
    resident: int
    live: int
    page_bytes: int
    pages: int
    filled: list[int]
    pins: list[Pin]

    @property
    def empty(self) -> int:
        """Bytes on these pages that nobody asked for."""
        return max(0, self.pages * self.page_bytes - self.live)


class TouchedLine(Struct, array_like=True):
    """A line that has touched pages of blocks for the first time."""

    function: str
    file: str
    line: int
    pages: int


class TouchedStack(Struct, array_like=True):
    """Pages of the blocks of one stack that were touched, and what would be left of that with huge pages."""

    node: int
    pages: int
    with_huge: int


class Touches(Struct):
    """Page faults: ``outside`` of any block are those of stacks, variables, code and blocks that were not recorded.
    Threads are (thread, pages)."""

    outside: int
    lines: list[TouchedLine]
    stacks: list[TouchedStack]
    threads: list[tuple[int, int]]


class ObjectData(Struct, array_like=True):
    """Bytes of variables of one object: initialised, zero at the start, and of each thread."""

    path: str
    data: int
    zeroed: int
    per_thread: int
    variables: int
    resident: int | None


class Variable(Struct, array_like=True):
    name: str
    object: str
    bytes: int
    per_thread: bool
    file: str
    line: int
    resident: int | None


class Globals(Struct):
    seconds: float | None  # when ``resident`` was looked up
    objects: list[ObjectData]
    variables: list[Variable]


METRICS: dict[str, str] = {  # of a node -> in words
    "bytes": "allocated",
    "count": "allocations",
    "at_peak": "live at the peak",
    "leaked": "not freed",
    "temporary": "freed before the next allocation",
    "reallocated": "reallocations",
}
COUNTED = ("count", "temporary", "reallocated")  # the others are bytes


class HeapProfile(Struct, dict=True):
    process: Process
    trace: Trace
    totals: Totals
    tick: float  # seconds
    threads: list[Thread]
    timeline: Timeline
    sizes: list[int]  # blocks by the logarithm of their size to base 2
    frequent: list[tuple[int, int]]  # the most frequent sizes: bytes, blocks
    lifetimes: list[list[int]]  # freed blocks by the logarithms of their lifetime in 16 ticks and their size
    touches: Touches | None  # None: the system does not let a user watch page faults
    fragments: Fragments | None
    globals: Globals
    tree: Tree

    @property
    def title(self) -> str:
        """What tells it from the other processes of a run."""
        if not self.process.pid:
            return self.process.program
        rank = f"rank {self.process.rank}, " if self.process.rank else ""
        return f"{self.process.program} ({rank}pid {self.process.pid})"

    @property
    def has_python(self) -> bool:
        """Whether functions of Python are on its stacks."""
        return any(place.is_python for place in self.places)

    @property
    def places(self) -> list[Place]:
        return self.tree.places

    @property
    def nodes(self) -> list[Node]:
        return self.tree.nodes

    def stack(self, node: int) -> Iterator[int]:
        """The nodes from this one outwards."""
        while node >= 0:
            yield node
            node = self.nodes[node].parent

    def asker(self, node: int) -> Place:
        """Who is to be told: the innermost that does not merely hand requests on."""
        return self.handed_on(node)[-1]

    def handed_on(self, node: int) -> list[Place]:
        """From this node to who is to be told, the library's own functions on the way."""
        found = []
        for at in self.stack(node):
            found.append(self.places[self.nodes[at].place])
            if not found[-1].hands_on:
                return found
        return found[:1]

    def by(self, metric: str, key: Key) -> list[Figures]:
        """Figures of a metric by function, by line or whatever ``key`` tells apart, most first. A function that
        is several times on a stack counts once."""
        groupings: dict[Key, Grouping] = self.__dict__.setdefault("groupings", {})
        if key not in groupings:
            groupings[key] = Grouping(self.places, self.nodes, key)
        return groupings[key].figures([getattr(node, metric) for node in self.nodes])


def by_function(place: Place) -> object:
    return place.function, place.module


def by_line(place: Place) -> object:
    return place.function, place.file, place.line, place.module


def load_profile(path: Path) -> HeapProfile:
    """Reads an analysis. Raises UserError when there is none, or it is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=HeapProfile)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise UserError(
            f"{path} is no analysis of a heap trace: {error}", "make it anew: assay heap RUN"
        ) from None


def load_profiles(run: Path) -> list[HeapProfile]:
    """Those of a run's processes that have been analysed, the one that allocated most first."""
    found = [load_profile(path) for path in sorted((run / "heap").glob("*.json")) if ".dump" not in path.name]
    return sorted(found, key=lambda one: -one.totals.bytes)


def load_dumps(run: Path) -> list[HeapProfile]:
    """Profiles that were written on the way, in the order of time."""
    return [load_profile(path) for path in sorted((run / "heap").glob("*.dump*.json"))]
