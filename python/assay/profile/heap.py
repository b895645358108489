"""A heap profile: the analysis of one process by ``assay-heap analyse``.

Its call tree (tree.py) has a node for each distinct (function, line) below its caller. Bytes are requested bytes;
times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from assay.errors import UserError
from assay.profile.figures import Figures, Grouping, Key
from assay.profile.tree import Location, Node, Tree
from assay.records.decode import decoder


class Process(Struct):
    pid: int  # 0: a sum of several processes
    parent: int
    program: str
    rank: str  # of MPI_COMM_WORLD; empty for a program without MPI
    seconds: float
    complete: bool
    detached: bool = False  # the process goes on after the recording and may still free blocks
    attached_after: float | None = None  # seconds since its start; None: recorded from the start
    at_least: int = 0  # bytes; smaller blocks were not recorded
    sample: int = 0  # bytes; about one block was recorded for every so many bytes; 0: all blocks were


class Trace(Struct):
    imported_from: str  # the tool that wrote the file; empty for a trace of assay heap
    bytes: int
    events: int
    lost_events: int
    damaged_bytes: int
    unreadable_chunks: int
    missing_objects: list[str]
    unsupported_python: str = ""  # the version of an interpreter whose frames were not read; empty: none


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
    """The size of a thread's stack in bytes, sampled at its allocations and frees. ``depth`` is the maximum within
    each step of the timeline, 0 where there is no sample; ``node`` is the call that was deepest."""

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
    """``live`` is the maximum within each step of ``step`` seconds; ``samples`` are (time, virtual, resident)."""

    start: float
    step: float
    live: list[int]
    count: list[int]
    bytes: list[int]
    samples: list[tuple[float, float, float]]


class Pin(Struct, array_like=True):
    """Blocks of one stack that keep partly empty pages: ``bytes`` is their share of the empty bytes."""

    node: int
    bytes: int
    blocks: int


class Fragmentation(Struct):
    """Pages that hold live blocks, at the moment when resident memory exceeded live bytes most. ``filled`` counts
    these pages by the tenth of the page that is in use."""

    seconds: float
    resident: int
    live: int
    page_bytes: int
    pages: int
    filled: list[int]
    pins: list[Pin]

    @property
    def empty(self) -> int:
        """Bytes of these pages that belong to no block."""
        return max(0, self.pages * self.page_bytes - self.live)


class TouchedLine(Struct, array_like=True):
    """A line that touched pages of blocks for the first time."""

    function: str
    file: str
    line: int
    pages: int


class TouchedStack(Struct, array_like=True):
    """Touched pages of the blocks of one stack, and the page faults that would remain with huge pages."""

    node: int
    pages: int
    with_huge: int


class Touches(Struct):
    """First touches, one page fault each. ``outside`` counts those outside of recorded blocks: stacks, variables,
    code. ``threads`` are (thread, pages)."""

    outside: int
    lines: list[TouchedLine]
    stacks: list[TouchedStack]
    threads: list[tuple[int, int]]


class ObjectData(Struct, array_like=True):
    """Bytes of the variables of one object: initialised (.data), zero at the start (.bss), and of each thread (TLS)."""

    path: str
    data: int
    bss: int
    tls: int
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


METRICS: dict[str, str] = {  # field of Node -> title
    "bytes": "allocated",
    "count": "allocations",
    "at_peak": "live at the peak",
    "leaked": "not freed",
    "temporary": "freed before the next allocation",
    "reallocated": "reallocations",
}
COUNTED = ("count", "temporary", "reallocated")  # numbers of blocks; the other metrics are bytes


class HeapProfile(Struct, dict=True):
    process: Process
    trace: Trace
    totals: Totals
    tick: float  # seconds
    threads: list[Thread]
    timeline: Timeline
    sizes: list[int]  # blocks by log2 of their size
    frequent: list[tuple[int, int]]  # the most frequent sizes: bytes, blocks
    lifetimes: list[list[int]]  # freed blocks by log2 of their lifetime in 16 ticks and log2 of their size
    touches: Touches | None  # None: page faults were not recorded
    fragmentation: Fragmentation | None
    globals: Globals
    tree: Tree

    @property
    def title(self) -> str:
        """Tells the process from the others of its run."""
        if not self.process.pid:
            return self.process.program
        rank = f"rank {self.process.rank}, " if self.process.rank else ""
        return f"{self.process.program} ({rank}pid {self.process.pid})"

    @property
    def has_python(self) -> bool:
        """Whether the stacks hold Python functions."""
        return any(location.is_python for location in self.locations)

    @property
    def locations(self) -> list[Location]:
        return self.tree.locations

    @property
    def nodes(self) -> list[Node]:
        return self.tree.nodes

    def stack(self, node: int) -> Iterator[int]:
        """The nodes from this one to the outermost."""
        while node >= 0:
            yield node
            node = self.nodes[node].parent

    def allocation_site(self, node: int) -> Location:
        """The innermost location that is no allocator frame."""
        return self.path_to_allocation_site(node)[-1]

    def path_to_allocation_site(self, node: int) -> list[Location]:
        """From this node out to the allocation site: the allocator's frames, then the site. The node's location alone
        if the stack holds nothing but allocator frames."""
        path = []
        for ancestor in self.stack(node):
            path.append(self.locations[self.nodes[ancestor].location])
            if not path[-1].is_allocator_frame:
                return path
        return path[:1]

    def by(self, metric: str, key: Key) -> list[Figures]:
        """A metric summed by ``key`` (by_function, by_line), the largest exclusive sum first. A recursive function
        counts once a stack."""
        groupings: dict[Key, Grouping] = self.__dict__.setdefault("groupings", {})
        if key not in groupings:
            groupings[key] = Grouping(self.locations, self.nodes, key)
        return groupings[key].figures([getattr(node, metric) for node in self.nodes])


_decode = decoder(HeapProfile)


def load_profile(path: Path) -> HeapProfile:
    """Reads an analysis. Raises UserError if the file cannot be read or is no analysis."""
    try:
        profile: HeapProfile = _decode(path.read_bytes())
        return profile
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UserError(
            f"{path} is not the analysis of a heap trace: {error}", "delete it and run: assay heap RUN"
        ) from None


def load_profiles(run: Path) -> list[HeapProfile]:
    """The analysed processes of a run, the one that allocated most first."""
    profiles = [
        load_profile(path) for path in sorted((run / "heap").glob("*.json")) if ".dump" not in path.name
    ]
    return sorted(profiles, key=lambda profile: -profile.totals.bytes)


def load_dumps(run: Path) -> list[HeapProfile]:
    """Profiles that were written while the program ran, in time order."""
    return [load_profile(path) for path in sorted((run / "heap").glob("*.dump*.json"))]
