"""A heap profile: what the analyser (``assay-heap analyse``) made of one process, by function, line and stack.

The tree of calls has a node for each distinct (function, line) below its caller; figures are of the blocks that
were asked for right there. Bytes are those that were requested, times are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from assay.errors import UserError

# Functions that only hand a request on: what they ask for, their caller has asked for.
_HANDED_ON = re.compile(
    r"operator new|operator delete|calloc$|realloc$|__libc_|g_malloc|g_realloc|"
    r"std::(__new_allocator|allocator|allocator_traits|_Vector_base|_Deque_base|__allocate)|__gnu_cxx::|"
    r"_M_(allocate|deallocate|create|dispose|destroy)\b"
)


class Place(Struct, array_like=True, frozen=True):
    function: str
    file: str
    line: int
    module: str
    inlined: bool

    @property
    def hands_on(self) -> bool:
        return _HANDED_ON.search(self.function) is not None

    @property
    def source(self) -> str:
        """ "solver.cpp:42", or the object where no source is known."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if name else self.module.rpartition("/")[2]


class Node(Struct, array_like=True):
    """One line of one function below one caller. ``parent`` is -1 for the outermost."""

    parent: int
    place: int
    count: int
    bytes: int
    own_peak: int
    at_peak: int
    leaked: int
    leaked_count: int
    temporary: int
    reallocated: int
    frees: int
    lifetime: int  # ticks
    cost: int  # ticks of those calls that were timed
    costed: int
    least: int
    most: int


class _Tree(Struct):
    places: list[Place]
    nodes: list[Node]


class Process(Struct):
    pid: int
    parent: int
    program: str
    seconds: float
    complete: bool


class Trace(Struct):
    bytes: int
    events: int
    lost_events: int
    damaged_bytes: int
    unreadable_chunks: int
    missing_objects: list[str]


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


class Thread(Struct):
    thread: int
    name: str
    bytes: int
    foreign_frees: int
    calls: dict[str, Calls]


class Timeline(Struct):
    """``live`` is the most within each step of ``step`` seconds; ``samples`` are (time, virtual, resident)."""

    start: float
    step: float
    live: list[int]
    count: list[int]
    bytes: list[int]
    samples: list[tuple[float, float, float]]


METRICS: dict[str, str] = {  # of a node -> in words
    "bytes": "allocated",
    "count": "allocations",
    "at_peak": "live at the peak",
    "leaked": "never freed",
    "temporary": "freed before the next allocation",
    "reallocated": "reallocations",
}


@dataclass
class Figures:
    """Of one function or line: ``own`` is what it asked for itself, ``total`` with all that it called."""

    place: Place
    own: int = 0
    total: int = 0


class HeapProfile(Struct):
    process: Process
    trace: Trace
    totals: Totals
    tick: float  # seconds
    threads: list[Thread]
    timeline: Timeline
    sizes: list[int]
    lifetimes: list[list[int]]
    tree: _Tree

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
        places = [self.places[self.nodes[at].place] for at in self.stack(node)]
        return next((place for place in places if not place.hands_on), places[0])

    def by(self, metric: str, key: Callable[[Place], object]) -> list[Figures]:
        """Figures of a metric by function, by line or whatever ``key`` tells apart, most first. A function that
        is several times on a stack counts once."""
        found: dict[object, Figures] = {}
        for number, node in enumerate(self.nodes):
            value: int = getattr(node, metric)
            if not value:
                continue
            asker = self.asker(number)
            found.setdefault(key(asker), Figures(asker)).own += value
            seen: dict[object, Place] = {}
            for at in self.stack(number):
                place = self.places[self.nodes[at].place]
                seen.setdefault(key(place), place)
            for one, place in seen.items():
                found.setdefault(one, Figures(place)).total += value
        return sorted(found.values(), key=lambda f: (-f.own, -f.total))


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
