"""A heap profile of one process, as ``assay-heap analyse`` writes it, and the part of it in the report's page.

Bytes are requested bytes. Times are seconds since the process's start. Tables are stored by column, as lists of equal
length. ``METRICS`` and these structs are the only definition: see assay.records.profile.
"""

from __future__ import annotations

from msgspec import Struct

from assay.records.profile import Metric, Source, SourceProblem, Tree

METRICS: list[Metric] = [
    Metric("bytes", "allocated", "B", "sum", listed=True),
    Metric("count", "allocations", "1", "sum", listed=True),
    Metric("peak", "peak", "B", "peak"),
    Metric("at_peak", "live at the peak", "B", "sum", listed=True),  # of the whole process
    Metric("leaked", "not freed", "B", "sum", listed=True),
    Metric("leaked_count", "blocks not freed", "1", "sum"),
    Metric("pooled", "kept by runtime libraries", "B", "sum"),  # and not counted as leaked
    Metric("temporary", "freed before the next allocation", "1", "sum", listed=True),  # of the thread
    Metric("reallocated", "reallocations", "1", "sum", listed=True),
    Metric("foreign_reallocations", "reallocations of others' blocks", "1", "sum", shown=False),
    Metric("new_blocks", "blocks that replace none of this stack", "1", "sum", shown=False),
    Metric(
        "steps",
        "reallocations a block",
        "1",
        "mean",
        dividend="reallocated",
        divisor="new_blocks",
        shown=False,
    ),
    Metric("frees", "frees made here", "1", "sum"),  # of any stack's blocks
    Metric("freed", "blocks freed", "1", "sum", shown=False),
    Metric("mean_size", "size, mean", "B", "mean", dividend="bytes", divisor="count"),
    Metric("min_size", "size, least", "B", "least", known_by="count"),
    Metric("max_size", "size, largest", "B", "most"),
    Metric("lifetimes", "lifetimes, added up", "s", "sum", shown=False),
    Metric("lifetime", "lifetime, mean", "s", "mean", dividend="lifetimes", divisor="freed"),
    Metric("min_lifetime", "lifetime, shortest", "s", "least", known_by="freed"),
    Metric("max_lifetime", "lifetime, longest", "s", "most"),
    Metric("malloc_time", "time in malloc", "s", "sum"),  # of all calls, from those that were timed
    Metric("free_time", "time in free", "s", "sum"),
]


class HeapProcess(Struct):
    pid: int  # 0: a sum of several processes
    parent: int
    program: str
    rank: str  # of MPI_COMM_WORLD; empty for a program without MPI
    seconds: float
    complete: bool
    detached: bool = False  # the process runs on after the recording and may still free blocks
    attached_after: float | None = None  # seconds since its start; None: recorded from the start
    at_least: int = 0  # bytes; smaller blocks were not recorded
    sample: int = 0  # about one block was recorded for every ``sample`` allocated bytes; 0: all blocks


class HeapTrace(Struct):
    imported_from: str  # the tool that wrote the file; empty for a trace of assay heap
    bytes: int
    events: int
    lost_events: int
    damaged_bytes: int
    unreadable_chunks: int
    missing_objects: list[str]
    unsupported_python: str = ""  # the version of an interpreter whose frames were not read; empty: none
    cut_off: bool = False  # the file lacks its end: blocks that are not freed in it may be freed later
    lost_faults: int = 0  # page faults that could not be recorded; also of other processes at that time
    unrecorded: list[str] = []  # programs that the process started and that are not recorded: "PATH REASON"


class HeapTotals(Struct):
    """``count`` and ``bytes``: of all allocated blocks. ``unknown_frees``: frees of blocks whose allocation was not
    recorded. ``peak``: most bytes live at once, in ``peak_count`` blocks. ``leaked``: bytes that were not freed,
    without those of ``HeapProfile.pools``. ``mapped``: the program's own mmap calls."""

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


class HeapPool(Struct):
    """Blocks that a runtime library keeps for itself until the process ends: no leak of the program."""

    name: str  # of the library or its part
    bytes: int
    count: int


class HeapCalls(Struct):
    count: int
    seconds: float


class HeapThread(Struct):
    """``deepest`` and the fields after it describe the thread's stack, sampled at its allocations and frees. ``depth``:
    the maximum within each step of the timeline, in bytes, 0 without a sample. ``deepest_site``: the line that
    allocated or freed where the stack was deepest. ``resident``: at the thread's end, 0 if unknown."""

    thread: int
    name: str
    bytes: int
    first: float
    last: float
    foreign_frees: int
    calls: dict[str, HeapCalls]
    deepest: int
    deepest_seconds: float
    deepest_site: int
    resident: int
    depth: list[int]


class HeapTimeline(Struct):
    """``live`` is the maximum within each step of ``step`` seconds; ``count`` and ``bytes`` are the allocations in it.
    The last three are samples of the whole process."""

    start: float
    step: float
    live: list[int]
    count: list[int]
    bytes: list[int]
    seconds: list[float]
    virtual: list[float]
    resident: list[float]


class HeapFragmentation(Struct):
    """Pages that hold live blocks, at the moment when resident memory exceeded live bytes most. ``resident`` leaves
    out pages of files and of shared memory (a trace of heaptrack includes them). ``filled``: numbers of pages by the
    tenth that is in use. ``pin_bytes``: the empty bytes of the pages that each allocation site's blocks keep resident
    (``pin_site`` is its line's first location)."""

    seconds: float
    resident: int
    live: int
    page_bytes: int
    pages: int
    filled: list[int]
    pin_site: list[int]
    pin_bytes: list[int]
    pin_blocks: list[int]


class HeapTouches(Struct):
    """First touches, one page fault each: by the line that touched, by the allocation site of the block (``site``:
    its line's first location; ``site_with_huge``: the faults that would remain with huge pages), and by thread.
    ``outside`` counts those outside of blocks: stacks, variables, code."""

    outside: int
    line_function: list[str]
    line_file: list[str]
    line: list[int]
    line_pages: list[int]
    site: list[int]
    site_pages: list[int]
    site_with_huge: list[int]
    thread: list[int]
    thread_pages: list[int]


class HeapObject(Struct):
    """Bytes of the variables of one object: initialised (.data), zero at the start (.bss), and of each thread."""

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


class HeapProfile(Struct):
    process: HeapProcess
    trace: HeapTrace
    totals: HeapTotals
    pools: list[HeapPool]  # the largest first
    tick: float  # seconds
    threads: list[HeapThread]
    timeline: HeapTimeline
    sizes: list[int]  # blocks by log2 of their size
    frequent_size: list[int]  # the most frequent sizes, bytes
    frequent_count: list[int]
    lifetimes: list[list[int]]  # freed blocks by log2 of their lifetime in 16 ticks and log2 of their size
    touches: HeapTouches | None  # None: page faults were not recorded
    fragmentation: HeapFragmentation | None
    objects: list[HeapObject]
    variables: list[HeapVariable]
    histograms: dict[str, HeapHistograms]  # by the first location of the function that allocated
    tree: Tree


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
    """One line of the report's embedded data."""

    title: str  # tells the process from the run's others
    problems: list[str]
    ranks: list[HeapRank]
    sources: dict[str, Source]  # by file
    source_problems: list[SourceProblem]
    left_out: int  # nodes too small to show
    profile: HeapProfile
