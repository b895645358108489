"""The call tree of a heap profile: locations (lines of functions) and nodes (a location below its caller).

Both are arrays in the analyser's JSON (engines/profile/analyse/analyse.cpp): the order of the fields is the format.
"""

from __future__ import annotations

from msgspec import Struct


class Location(Struct, array_like=True, frozen=True):
    """A line of a function. Peaks are bytes that were live at once; "inclusive" adds what callees allocated."""

    function: str
    file: str
    line: int
    module: str
    inlined: bool
    is_allocator_frame: bool  # malloc, operator new, std::...: its allocations count for its caller
    function_id: int  # the number of the first location of the same function
    exclusive_peak: int  # of this line
    inclusive_peak: int
    function_exclusive_peak: int
    function_inclusive_peak: int

    @property
    def is_python(self) -> bool:
        """A Python function has its file as its module."""
        return self.module == self.file != ""

    @property
    def source(self) -> str:
        """ "solver.cpp:42", or the object where no source is known."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if name else self.module.rpartition("/")[2]


class Node(Struct, array_like=True):
    """One location below one caller. Bytes are requested bytes; lifetimes and sampled times are ticks."""

    parent: int  # -1 for an outermost node
    location: int
    count: int
    bytes: int
    exclusive_peak: int
    inclusive_peak: int
    at_peak: int  # bytes live when the whole process was at its peak
    leaked: int
    leaked_count: int
    temporary: int  # blocks freed before the thread's next allocation
    reallocated: int  # reallocations made here
    frees: int
    lifetime_sum: int  # over the freed blocks
    sampled_ticks: int  # time of the allocation calls that were timed
    sampled_calls: int  # the number of those calls
    sampled_free_ticks: int
    sampled_frees: int
    min_size: int
    max_size: int
    min_lifetime: int
    max_lifetime: int
    foreign_reallocations: int = 0  # reallocations made here of blocks that were allocated elsewhere


class Tree(Struct):
    locations: list[Location]
    nodes: list[Node]  # parents come before their children
    # By node number: blocks by log2 of their size, and by log2 of their lifetime in 16 ticks. Each list begins with
    # the first logarithm.
    histograms: dict[str, tuple[list[int], list[int]]]


def by_function(location: Location) -> object:
    return location.function, location.module


def by_line(location: Location) -> object:
    return location.function, location.file, location.line, location.module
