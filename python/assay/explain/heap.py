"""Advice on a program's use of memory; each finding names its line and its cost. Limits are shares of the program's
totals, so that small and long programs are treated alike."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from assay.explain.evidence import Evidence
from assay.profile.heap import HeapProfile
from assay.profile.tree import CallTree, Figures, Location
from assay.records.schema import Finding, Subject
from assay.records.units import format_quantity, format_share

MIN_LEAK_OF_PEAK = 0.01  # never freed, as a share of the peak
MIN_LEAK = 4096  # bytes; the runtime leaks less
MIN_TEMPORARY_SHARE = 0.10  # of all allocations
MIN_COUNT = 1000  # allocations; fewer cost no noticeable time
TINY_SIZE = 1  # bytes
MIN_REALLOCS_PER_BLOCK = 8  # reallocations at a line, for each block that it allocated or took over
MAX_LIVE_COPIES = 0.01  # of all bytes of a line's copies: with a smaller peak they are short-lived
MIN_EMPTY_OF_RESIDENT = 0.20  # empty bytes of pages with live blocks, as a share of resident memory
MIN_EMPTY = 4 << 20  # bytes
MIN_PIN_OF_EMPTY = 0.20  # one stack's share of the empty bytes
MIN_PAGES = 20_000  # touched for the first time; they cost about 10 ms
MAX_LEFT_WITH_HUGE = 0.10  # huge pages are advised if at most this share of the page faults remains with them
MIN_RETOUCHES = 4  # touched bytes over peak bytes of a line
MIN_VARIABLE = 1 << 20  # bytes
MIN_VARIABLES_OF_PEAK = 0.10  # of the process's largest memory
PAGE = 4096  # bytes
MAX_FINDINGS = 5
COPY_CONSTRUCTOR = re.compile(r"::(\w+)\(std::(?:\w+::)*\1<.*> const&\)$")  # of the standard library
# A Python interpreter or its library. Its allocations at start and end are not the program's.
PYTHON = re.compile(r"(lib)?python\d[\d.]*[a-z]*(\.so[\d.]*)?$")
RUNTIME = ("libc.so", "libstdc++.so", "ld-linux", "libgcc_s.so")  # libraries that never free some buffers


Advice = Callable[[HeapProfile, str], list[Finding]]


def _rule(advice: Advice) -> Callable[[Evidence], list[Finding]]:
    """Makes a rule of a function of a heap profile and its host. Without a profile it finds nothing."""

    def rule(evidence: Evidence) -> list[Finding]:
        profile = evidence.heap
        return [] if profile is None else advice(profile, evidence.hosts[0] if evidence.hosts else "")

    return rule


def _finding(rule: str, host: str, cause: str, details: list[str], fix: str) -> Finding:
    return Finding(
        rule=rule,
        cause=cause,
        subject=Subject(host=host),
        side="node",
        severity="warning",
        details=details,
        fix=fix,
    )


def _is_runtime(location: Location) -> bool:
    return location.module.rpartition("/")[2].startswith(RUNTIME) or _is_interpreter(location)


def _is_interpreter(location: Location) -> bool:
    return PYTHON.match(location.module.rpartition("/")[2]) is not None


def _leaks(profile: HeapProfile, host: str) -> list[Finding]:
    if profile.process.detached or profile.trace.cut_off:
        return []  # the blocks may be freed later
    limit = max(MIN_LEAK, MIN_LEAK_OF_PEAK * profile.totals.peak)
    gap = [f"doubtful: {profile.gap}, and frees may be what is missing"] if profile.gap else []
    leaks = [
        figures
        for figures in profile.by("leaked", "line")
        if figures.exclusive >= limit and not _is_runtime(figures.location)
    ]
    return [
        _finding(
            "heap_leak",
            host,
            f"{figures.location.place} allocates {format_quantity(figures.exclusive, 'B')} that are never freed",
            [f"{format_share(figures.exclusive / profile.totals.peak)} of the peak", *gap],
            "free them; blocks that are kept on purpose until the end count here too",
        )
        for figures in leaks[:MAX_FINDINGS]
    ]


def _temporary(profile: HeapProfile, host: str) -> list[Finding]:
    limit = max(MIN_COUNT, MIN_TEMPORARY_SHARE * profile.totals.count)
    lines = [
        figures
        for figures in profile.by("temporary", "line")
        if figures.exclusive >= limit and not _is_interpreter(figures.location)
    ]
    return [
        _finding(
            "heap_temporary",
            host,
            f"{figures.location.place} allocates {figures.exclusive:.0f} blocks "
            "that are freed before the next allocation",
            [f"{format_share(figures.exclusive / profile.totals.count)} of all allocations"],
            "allocate once, before the loop"
            if figures.location.is_python
            else "reuse one buffer in the loop, or put it on the stack",
        )
        for figures in lines[:MAX_FINDINGS]
    ]


def _tiny(profile: HeapProfile, host: str) -> list[Finding]:
    tree = profile.calls
    counts = tree.of_stacks("count") * (tree.of_stacks("max_size") <= TINY_SIZE)
    return [
        _finding(
            "heap_tiny",
            host,
            f"{figures.location.place} allocates {figures.exclusive:.0f} blocks of {TINY_SIZE} byte or none",
            [
                f"{format_share(figures.exclusive / profile.totals.count)} of all allocations",
                "each takes 32 bytes of glibc's heap",
            ],
            "check for sizes of zero; else store the byte in its owner",
        )
        for figures in tree.lines_of(counts)[:MAX_FINDINGS]
        if figures.exclusive >= MIN_COUNT
    ]


def _reallocations(profile: HeapProfile, host: str) -> list[Finding]:
    tree = profile.calls
    new_blocks = tree.exclusive("line", "new_blocks")
    findings = []
    for line, times in sorted(tree.exclusive("line", "reallocated").items(), key=lambda item: -item[1]):
        blocks = max(1, new_blocks[line])
        if times >= MIN_COUNT and times >= MIN_REALLOCS_PER_BLOCK * blocks:
            findings.append(
                _finding(
                    "heap_reallocation",
                    host,
                    f"{tree.locations[line].place} reallocates {times:.0f} times",
                    [
                        f"{times / blocks:.0f} times for each block",
                        f"{format_share(times / profile.totals.count)} of all allocations",
                    ],
                    "grow by a factor, or allocate the final size at once",
                )
            )
    return findings[:MAX_FINDINGS]


def _copies(profile: HeapProfile, host: str) -> list[Finding]:
    """Lines that copy a container of the standard library for a short use."""
    tree = profile.calls
    matches = [COPY_CONSTRUCTOR.search(location.function) for location in tree.locations]
    types = [match[1] if match else "" for match in matches]
    callees = _callees_of_sites(tree)
    short_lived = tree.of_stacks("peak") <= MAX_LIVE_COPIES * tree.of_stacks("bytes")
    counts = tree.of_stacks("count") * short_lived
    findings: list[tuple[Figures, str]] = []
    for type_name in sorted(set(types) - {""}):
        is_copy = np.array([name == type_name for name in types])[callees] & (callees != tree.stack_site)
        findings += [(figures, type_name) for figures in tree.lines_of(counts * is_copy)]
    return [
        _finding(
            "heap_copies",
            host,
            f"{figures.location.place} makes {figures.exclusive:.0f} short-lived copies of a {type_name}",
            [f"{format_share(figures.exclusive / profile.totals.count)} of all allocations"],
            "take it by reference (const auto&), or move it",
        )
        for figures, type_name in sorted(findings, key=lambda matches: -matches[0].exclusive)[:MAX_FINDINGS]
        if figures.exclusive >= MIN_COUNT
    ]


def _callees_of_sites(tree: CallTree) -> np.ndarray:
    """[stack] the location that the stack's allocation site called, or the site itself if it allocates directly."""
    is_frame = np.array([location.is_allocator_frame for location in tree.locations], bool)
    node = tree.stack_node.astype(np.int64)
    while True:  # walks up the frames of the allocator, one per turn
        caller = tree.parent[node]
        goes_on = (caller >= 0) & is_frame[tree.location[node]] & is_frame[tree.location[caller]]
        if not goes_on.any():
            return np.asarray(tree.location[node])
        node = np.where(goes_on, caller, node)


def _fragmentation(profile: HeapProfile, host: str) -> list[Finding]:
    fragmentation = profile.fragmentation
    if fragmentation is None:
        return []
    empty = max(0, fragmentation.pages * fragmentation.page_bytes - fragmentation.live)
    if empty < max(MIN_EMPTY, MIN_EMPTY_OF_RESIDENT * fragmentation.resident):
        return []
    pins = zip(fragmentation.pin_site, fragmentation.pin_bytes, fragmentation.pin_blocks, strict=True)
    return [
        _finding(
            "heap_fragmentation",
            host,
            f"{profile.calls.locations[site].place} keeps {format_quantity(size, 'B')} of nearly empty pages "
            f"with {blocks} blocks",
            [
                f"{format_share(size / fragmentation.resident)} of the resident memory",
                f"{fragmentation.seconds:.2f} s after the start "
                f"{format_quantity(fragmentation.resident, 'B')} were resident and "
                f"{format_quantity(fragmentation.live, 'B')} in use",
            ],
            "allocate long-lived blocks before short-lived ones, or from a pool",
        )
        for site, size, blocks in list(pins)[:MAX_FINDINGS]
        if size >= MIN_PIN_OF_EMPTY * empty
    ]


def _first_touch(profile: HeapProfile, host: str) -> list[Finding]:
    """Lines whose blocks cause many page faults when they are first touched."""
    touches = profile.touches
    if touches is None:
        return []
    peaks = profile.calls.exclusive("line", "peak")
    bound = "at least " if profile.trace.lost_faults else ""
    findings = []
    for site, pages, with_huge in zip(touches.site, touches.site_pages, touches.site_with_huge, strict=True):
        where, peak = profile.calls.locations[site].place, peaks.get(site, 0)
        if pages < MIN_PAGES:
            break
        if pages * PAGE >= MIN_RETOUCHES * peak:
            times = pages * PAGE / max(1, peak)
            cause = f"blocks of {where} are touched anew: {bound}{pages} page faults, {times:.0f} times their peak"
            fix = "reuse the blocks, or use an allocator that keeps freed memory (see assay alloc)"
        elif with_huge <= MAX_LEFT_WITH_HUGE * pages:
            cause = f"blocks of {where} take {bound}{pages} page faults; with huge pages it would be {bound}{with_huge}"
            fix = "try huge pages: GLIBC_TUNABLES=glibc.malloc.hugetlb=1, or madvise(MADV_HUGEPAGE)"
        else:
            continue
        findings.append(_finding("heap_first_touch", host, cause, [], fix))
    return findings[:MAX_FINDINGS]


def _variables(profile: HeapProfile, host: str) -> list[Finding]:
    resident = max(profile.timeline.resident, default=0.0)
    limit = max(MIN_VARIABLE, MIN_VARIABLES_OF_PEAK * max(profile.totals.peak, resident))
    threads = max(1, len(profile.threads))
    findings = []
    for variable in profile.variables:
        total_bytes = variable.bytes * (threads if variable.per_thread else 1)
        if total_bytes < limit:
            continue
        source = (
            f" ({variable.file.rpartition('/')[2]}:{variable.line})"
            if variable.file
            else f" ({variable.object.rpartition('/')[2]})"
        )
        per_thread = f", once for each of {threads} threads" if variable.per_thread else ""
        touched = (
            []
            if variable.resident is None
            else [f"{format_quantity(variable.resident, 'B')} of it in memory"]
        )
        findings.append(
            _finding(
                "heap_variable",
                host,
                f"the variable {variable.name}{source} takes {format_quantity(variable.bytes, 'B')}{per_thread}",
                [
                    f"{format_share(total_bytes / max(profile.totals.peak, resident, total_bytes))} of its memory",
                    *touched,
                ],
                "it takes memory for the whole run: allocate it when it is needed, as large as needed",
            )
        )
    return findings[:MAX_FINDINGS]


heap_leak = _rule(_leaks)
heap_temporary = _rule(_temporary)
heap_tiny = _rule(_tiny)
heap_reallocation = _rule(_reallocations)
heap_copies = _rule(_copies)
heap_fragmentation = _rule(_fragmentation)
heap_first_touch = _rule(_first_touch)
heap_variable = _rule(_variables)
