"""A heap profile in the report: one line of its embedded data for each process.

Tables are stored by column, as lists of equal length, because a page may hold a hundred thousand rows. Bytes are
requested bytes. Times are seconds since the process's start, unless they are said to be ticks.
"""

from __future__ import annotations

from msgspec import Struct


class HeapLocations(Struct):
    """Lines of functions. ``function_id`` is the first location of the same function. Allocations of an allocator
    frame count for its caller. Peaks are live bytes of a line, or of its function; inclusive adds the callees."""

    function: list[str]
    file: list[str]
    line: list[int]
    module: list[str]
    inlined: list[bool]
    is_allocator_frame: list[bool]
    function_id: list[int]
    exclusive_peak: list[int]
    inclusive_peak: list[int]
    function_exclusive_peak: list[int]
    function_inclusive_peak: list[int]


class HeapNodes(Struct):
    """The call tree, parents before children; ``parent`` is -1 for an outermost node. Lifetimes and sampled ticks are
    in ticks. ``sampled_calls`` is the number of calls that ``sampled_ticks`` is the time of."""

    parent: list[int]
    location: list[int]
    count: list[int]
    bytes: list[int]
    exclusive_peak: list[int]
    inclusive_peak: list[int]
    at_peak: list[int]
    leaked: list[int]
    leaked_count: list[int]
    temporary: list[int]
    reallocated: list[int]
    frees: list[int]
    lifetime_sum: list[int]
    sampled_ticks: list[int]
    sampled_calls: list[int]
    sampled_free_ticks: list[int]
    sampled_frees: list[int]
    min_size: list[int]
    max_size: list[int]
    min_lifetime: list[int]
    max_lifetime: list[int]
    foreign_reallocations: list[int]


class HeapCalls(Struct):
    count: int
    seconds: float


class HeapThread(Struct):
    """``depth`` is the largest size of the thread's stack within each step of the timeline, in bytes; 0: unknown."""

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
    """``live`` is the maximum within each step; ``count`` and ``bytes`` are the allocations in it. The last three are
    samples of the whole process."""

    start: float
    step: float
    live: list[int]
    count: list[int]
    bytes: list[int]
    seconds: list[float]
    virtual: list[float]
    resident: list[float]


class HeapFragmentation(Struct):
    """``filled`` counts pages by the tenth that is in use; ``pin_bytes`` is each node's share of the empty bytes."""

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
    """First touches, one page fault each: by the line that touched, by the node that allocated (``node_with_huge``:
    the faults that would remain with huge pages), and by thread. ``outside`` counts those outside of blocks."""

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
    bss: int
    tls: int
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


class HeapHistograms(Struct):
    """Blocks by log2 of their size, and by log2 of their lifetime in 16 ticks; each list begins with its first
    logarithm."""

    sizes: list[int]
    lifetimes: list[int]


class HeapSource(Struct):
    text: str
    changed: bool  # modified since the program ran


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
    """One rank of a merged profile. ``outlier``: the names of the totals in which it is an outlier."""

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
    lifetimes: list[list[int]]  # by log2 of the lifetime in 16 ticks, and log2 of the size
    touches: HeapTouches | None
    fragmentation: HeapFragmentation | None
    objects: list[HeapObject]
    variables: list[HeapVariable]
    locations: HeapLocations
    nodes: HeapNodes
    histograms: dict[str, HeapHistograms]  # by node
    sources: dict[str, HeapSource]  # by file
    left_out: int  # nodes too small to show, added to their callers
