"""A NUMA profile of one process, or of the ranks of an MPI program, as ``assay numa`` shows, exports and compares it.

It is made from a process's recordings (assay.numa.recording). Counts are accesses (loads and stores), amounts are
bytes, times are seconds since the process's start. Node -1 is an unknown node. ``METRICS`` and these structs are the
only definition: see assay.records.profile.

The call tree has figures for three kinds of stacks: those that access memory, those that touch pages first, and those
that allocate the accessed blocks.
"""

from __future__ import annotations

from msgspec import Struct

from assay.records.profile import Metric, Source, SourceProblem, Tree

METRICS: list[Metric] = [
    Metric("remote", "remote accesses", "1", "sum", listed=True),
    Metric("accesses", "accesses", "1", "sum", listed=True),
    Metric("local", "local accesses", "1", "sum"),
    Metric("unknown", "accesses with an unknown node", "1", "sum"),
    Metric("unpinned", "accesses by threads that no node is bound to", "1", "sum"),
    Metric("reads", "loads", "1", "sum"),
    Metric("writes", "stores", "1", "sum"),
    Metric("used_remote", "remote accesses to blocks allocated here", "1", "sum", listed=True),
    Metric("used", "accesses to blocks allocated here", "1", "sum"),
    Metric("allocated", "allocated", "B", "sum"),
    Metric("touched", "touched first", "B", "sum", listed=True),
    Metric("touched_remote", "touched first, placed on another node", "B", "sum"),
]


class NumaProcess(Struct):
    """``mode``: touch, sample, gcc, llvm or qemu. ``emulated``: the number of emulated nodes, 0 for the machine's
    own."""

    pid: int  # 0: a sum of several processes
    parent: int
    program: str
    rank: str  # of MPI_COMM_WORLD; empty for a program without MPI
    mode: str
    emulated: int
    page_bytes: int
    seconds: float
    complete: bool
    lost_events: int


class NumaNode(Struct):
    """``memory`` in bytes, 0 if unknown. A node without processors holds memory alone."""

    id: int
    processors: int
    memory: int
    distances: list[int]


class NumaCells(Struct):
    """A matrix: a row for each pair of a thread's node and a page's node that has a count."""

    thread_node: list[int]
    page_node: list[int]
    count: list[int]


class NumaObject(Struct):
    """All blocks that one stack allocated, or all memory of one kind. ``site`` is the location of the allocating line,
    -1 for memory that has none. ``accesses`` is None where they were not counted. ``resident``: bytes by node, in the
    order of the profile's nodes with the unknown ones last. ``parts``: by node of the thread, in the order of the
    profile's nodes, accesses to each of sixteen equal parts; empty where they were not counted."""

    name: str
    kind: str
    site: int
    bytes: int
    blocks: int
    accesses: NumaCells | None
    touched: NumaCells  # bytes
    resident: list[int]
    moved: int  # bytes that were found on another node than before
    parts: list[list[int]]


class NumaBinding(Struct):
    """``processors`` as the kernel writes them: "0-3,8". ``nodes`` belong to the memory policy."""

    seconds: float
    processors: str
    policy: str
    nodes: list[int]


class NumaThread(Struct):
    """``pinned``: bound to processors of one node all the time; None where bindings were not watched."""

    name: str
    accesses: NumaCells | None
    touched: NumaCells  # bytes
    pinned: bool | None
    bindings: list[NumaBinding]


class NumaFirstTouches(Struct):
    """A row for each object, touching line and thread: columns. ``object`` and ``thread`` count from 0."""

    object: list[int]
    location: list[int]
    thread: list[int]
    bytes: list[int]
    policy: list[str]
    huge: list[int]  # huge pages


class NumaSlices(Struct):
    """Sampled accesses, or first touches, in slices of ``width`` seconds. Empty where neither has a time. ``unknown``:
    those of which a node is not known."""

    seconds: list[float]  # of their begin
    width: float
    local: list[int]
    remote: list[int]
    unknown: list[int]


class NumaTimeline(Struct):
    """Resident bytes by node, in the order of the profile's nodes with the unknown ones last."""

    seconds: list[float]
    resident: list[list[int]]
    slices: NumaSlices


class NumaSampling(Struct):
    """How accesses were sampled: each count is of samples. ``attributed``: samples whose address lies in a block, a
    mapping, a variable or a stack. ``sources``: caches and memories; near is on the thread's node.
    ``samples_by_source``: in the order of ``sources``. ``throttled``: how often the kernel suppressed samples."""

    events: str
    period: int
    samples: int
    attributed: int
    sources: list[str]
    samples_by_source: list[int]
    throttled: int


class NumaAdvice(Struct):
    """Another placement of an object. ``action``: spread, bind, interleave or replicate; ``nodes``: for "spread" the
    node of each of the object's equal parts, else the nodes to use. ``before``, ``predicted``: remote shares of the
    object's accesses. ``assumed``: the prediction assumes an even use by all nodes. ``toucher``: the location that
    touches it first, -1 if unknown. ``gain``: remote accesses that it saves, or bytes that it moves in a profile
    without accesses."""

    object: int
    action: str
    nodes: list[int]
    before: float
    predicted: float
    assumed: bool
    toucher: int
    gain: int
    fix: str


class NumaApplied(Struct):
    """A placement that was applied to this run. ``measured`` is None where the object was not found again, or its
    accesses were not counted."""

    name: str
    action: str
    before: float
    predicted: float
    measured: float | None
    assumed: bool


class NumaAbsent(Struct):
    """A view that this profile has no figures for, and the reason."""

    view: str
    reason: str


class NumaProfile(Struct):
    process: NumaProcess
    problems: list[str]
    nodes: list[NumaNode]
    accesses: NumaCells | None  # None: not counted
    touched: NumaCells  # bytes
    objects: list[NumaObject]
    threads: list[NumaThread]
    first_touches: NumaFirstTouches
    timeline: NumaTimeline
    sampling: NumaSampling | None  # None: accesses were not sampled
    advice: list[NumaAdvice]
    applied: list[NumaApplied]
    absent: list[NumaAbsent]
    tree: Tree


class NumaRank(Struct):
    """One rank of a merged profile."""

    name: str
    pid: int
    remote_share: float | None
    amount: int  # accesses, or bytes touched first
    seconds: float


class NumaPage(Struct, tag="numa", tag_field="kind"):
    """One line of the report's embedded data."""

    title: str  # tells the process from the run's others
    ranks: list[NumaRank]
    sources: dict[str, Source]  # by file
    source_problems: list[SourceProblem]
    left_out: int  # nodes of the call tree, objects and first touches too small to show
    profile: NumaProfile
