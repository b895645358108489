"""What of a heap profile is in a report: one line of its embedded data for each process.

Tables are columns here, lists of equal length, since a page may hold a hundred thousand rows. Bytes are requested
bytes; times are seconds since the process's start where they are not said to be ticks.
"""

from __future__ import annotations

from msgspec import Struct


class HeapPlaces(Struct):
    """Lines of functions. ``first`` is the first place of the same function; ``hands_on`` are those whose requests
    are their callers'. Peaks are of what a line, or its function, has asked for itself and with its callees."""

    function: list[str]
    file: list[str]
    line: list[int]
    module: list[str]
    inlined: list[bool]
    hands_on: list[bool]
    first: list[int]
    peak_own: list[int]
    peak_total: list[int]
    function_peak_own: list[int]
    function_peak_total: list[int]


class HeapNodes(Struct):
    """The tree of calls, parents before children; ``parent`` is -1 for the outermost. Figures are of blocks that were
    asked for right there; ``lifetime``, ``sampled_ticks``, ``sampled_free_ticks``, ``shortest`` and ``longest`` are
    ticks."""

    parent: list[int]
    place: list[int]
    count: list[int]
    bytes: list[int]
    own_peak: list[int]
    total_peak: list[int]
    at_peak: list[int]
    leaked: list[int]
    leaked_count: list[int]
    temporary: list[int]
    reallocated: list[int]
    frees: list[int]
    lifetime: list[int]
    sampled_ticks: list[int]
    sampled_calls: list[int]
    sampled_free_ticks: list[int]
    sampled_frees: list[int]
    least: list[int]
    most: list[int]
    shortest: list[int]
    longest: list[int]
    foreign_reallocations: list[int]


class HeapCalls(Struct):
    count: int
    seconds: float


class HeapThread(Struct):
    """``depth`` is how deep its own stack was, the most within each step of the timeline; 0 where it is not known."""

    thread: int
    name: str
    bytes: int
    first: float
    last: float
    foreign_frees: int
    calls: dict[str, HeapCalls]
    deepest: int
    deepest_seconds: float
    deepest_node: int
    resident: int
    depth: list[int]


class HeapTimeline(Struct):
    """``live`` is the most within each step, ``count`` and ``bytes`` what was asked for in it; the last three are
    samples of the whole process."""

    start: float
    step: float
    live: list[int]
    count: list[int]
    bytes: list[int]
    seconds: list[float]
    virtual: list[float]
    resident: list[float]


class HeapFragments(Struct):
    """``filled`` counts pages by the tenth that is in use; the pins are nodes and their part of what is empty."""

    seconds: float
    resident: int
    live: int
    page_bytes: int
    pages: int
    filled: list[int]
    pin_node: list[int]
    pin_bytes: list[int]
    pin_blocks: list[int]


class HeapTouches(Struct):
    """First touch: pages by the line that has touched them, by the node that has asked for them (and what would be left
    with huge pages), and by thread; ``outside`` of blocks."""

    outside: int
    line_function: list[str]
    line_file: list[str]
    line: list[int]
    line_pages: list[int]
    node: list[int]
    node_pages: list[int]
    node_with_huge: list[int]
    thread: list[int]
    thread_pages: list[int]


class HeapObject(Struct):
    path: str
    data: int
    zeroed: int
    per_thread: int
    variables: int
    resident: int | None


class HeapVariable(Struct):
    name: str
    object: str
    bytes: int
    per_thread: bool
    file: str
    line: int
    resident: int | None


class HeapSpread(Struct):
    """Blocks by the logarithm to base 2 of their size, and of their lifetime in 16 ticks; each list begins with its
    first logarithm."""

    sizes: list[int]
    lifetimes: list[int]


class HeapSource(Struct):
    text: str
    changed: bool  # since the program ran


class HeapTotals(Struct):
    count: int
    bytes: int
    frees: int
    peak: int
    peak_count: int
    peak_seconds: float
    leaked: int
    leaked_count: int
    mapped: int
    mapped_bytes: int


class HeapRank(Struct):
    """One of the processes that were added up. ``outlier``: which of its figures are far from the others'."""

    name: str
    pid: int
    peak: int
    bytes: int
    count: int
    leaked: int
    seconds: float
    outlier: list[str]


class HeapPage(Struct, tag="heap", tag_field="kind"):
    program: str
    pid: int
    title: str
    seconds: float
    complete: bool
    tick: float  # seconds
    problems: list[str]
    totals: HeapTotals
    ranks: list[HeapRank]
    threads: list[HeapThread]
    timeline: HeapTimeline
    sizes: list[int]
    frequent_size: list[int]
    frequent_count: list[int]
    lifetimes: list[list[int]]  # by the logarithms of lifetime in 16 ticks, and of size
    touches: HeapTouches | None
    fragments: HeapFragments | None
    objects: list[HeapObject]
    variables: list[HeapVariable]
    places: HeapPlaces
    nodes: HeapNodes
    spreads: dict[str, HeapSpread]  # by node
    sources: dict[str, HeapSource]  # by file
    left_out: int  # nodes too small to be shown, added to their callers
