"""Advice on a program's use of memory; each finding names its line and its cost. Limits are shares of the program's
totals, so that small and long programs are treated alike."""

from __future__ import annotations

import re

from assay.profile.figures import Figures
from assay.profile.heap import HeapProfile
from assay.profile.tree import by_line
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
MIN_PAGES = 20_000  # touched for the first time; they cost some 10 ms
MAX_LEFT_WITH_HUGE = 0.10  # of these pages; then huge pages are worth a try
MIN_RETOUCHES = 4  # touched bytes over peak bytes of a line
MIN_VARIABLE = 1 << 20  # bytes
MIN_VARIABLES_OF_PEAK = 0.10  # of the process's largest memory
PAGE = 4096  # bytes
MAX_FINDINGS = 5
COPY_CONSTRUCTOR = re.compile(r"::(\w+)\(std::(?:\w+::)*\1<.*> const&\)$")  # of the standard library
# An interpreter or its library; what it does at its start and end is not the program's.
PYTHON = re.compile(r"(lib)?python\d[\d.]*[a-z]*(\.so[\d.]*)?$")
RUNTIME = ("libc.so", "libstdc++.so", "ld-linux", "libgcc_s.so")  # these keep buffers to the end


def heap_advice(profile: HeapProfile, host: str) -> list[Finding]:
    """Findings of rule "heap"; within a kind the most expensive first."""
    return [
        *_leaks(profile, host),
        *_temporary(profile, host),
        *_tiny(profile, host),
        *_reallocations(profile, host),
        *_copies(profile, host),
        *_fragmentation(profile, host),
        *_first_touch(profile, host),
        *_variables(profile, host),
    ]


def _finding(host: str, cause: str, details: list[str], fix: str) -> Finding:
    return Finding(
        rule="heap",
        cause=cause,
        subject=Subject(host=host),
        side="node",
        severity="warning",
        details=details,
        fix=fix,
    )


def _where(figures: Figures) -> str:
    return f"{figures.location.function} ({figures.location.source})"


def _is_runtime(figures: Figures) -> bool:
    return figures.location.module.rpartition("/")[2].startswith(RUNTIME) or _is_interpreter(figures)


def _is_interpreter(figures: Figures) -> bool:
    return PYTHON.match(figures.location.module.rpartition("/")[2]) is not None


def _leaks(profile: HeapProfile, host: str) -> list[Finding]:
    if profile.process.detached:
        return []  # a process that goes on may still free its blocks
    limit = max(MIN_LEAK, MIN_LEAK_OF_PEAK * profile.totals.peak)
    leaks = [
        figures
        for figures in profile.by("leaked", by_line)
        if figures.exclusive >= limit and not _is_runtime(figures)
    ]
    return [
        _finding(
            host,
            f"{_where(figures)} allocates {format_quantity(figures.exclusive, 'B')} that are never freed",
            [f"{format_share(figures.exclusive / profile.totals.peak)} of the peak"],
            "free them; blocks that are kept on purpose until the end count here too",
        )
        for figures in leaks[:MAX_FINDINGS]
    ]


def _temporary(profile: HeapProfile, host: str) -> list[Finding]:
    limit = max(MIN_COUNT, MIN_TEMPORARY_SHARE * profile.totals.count)
    lines = [
        figures
        for figures in profile.by("temporary", by_line)
        if figures.exclusive >= limit and not _is_interpreter(figures)
    ]
    return [
        _finding(
            host,
            f"{_where(figures)} allocates {figures.exclusive} blocks that are freed before the next allocation",
            [f"{format_share(figures.exclusive / profile.totals.count)} of all allocations"],
            "allocate once, before the loop"
            if figures.location.is_python
            else "reuse one buffer in the loop, or put it on the stack",
        )
        for figures in lines[:MAX_FINDINGS]
    ]


def _copies(profile: HeapProfile, host: str) -> list[Finding]:
    """Implicit allocations: a container is copied, used once and destroyed."""
    counts: dict[object, tuple[Figures, str]] = {}
    for number, node in enumerate(profile.nodes):
        path = profile.path_to_allocation_site(number)
        constructor = COPY_CONSTRUCTOR.search(path[-2].function) if len(path) > 1 and node.count else None
        if constructor is None or node.exclusive_peak > MAX_LIVE_COPIES * node.bytes:
            continue
        counts.setdefault(by_line(path[-1]), (Figures(path[-1]), constructor[1]))[0].exclusive += node.count
    return [
        _finding(
            host,
            f"{_where(figures)} makes {figures.exclusive} short-lived copies of a {type_name}",
            [f"{format_share(figures.exclusive / profile.totals.count)} of all allocations"],
            "take it by reference (const auto&), or move it",
        )
        for figures, type_name in sorted(counts.values(), key=lambda f: -f[0].exclusive)[:MAX_FINDINGS]
        if figures.exclusive >= MIN_COUNT
    ]


def _fragmentation(profile: HeapProfile, host: str) -> list[Finding]:
    fragmentation = profile.fragmentation
    if fragmentation is None or fragmentation.empty < max(
        MIN_EMPTY, MIN_EMPTY_OF_RESIDENT * fragmentation.resident
    ):
        return []
    lines: dict[object, Figures] = {}
    for pin in fragmentation.pins:
        site = profile.allocation_site(pin.node)
        figures = lines.setdefault(by_line(site), Figures(site))
        figures.exclusive += pin.bytes
        figures.inclusive += pin.blocks
    return [
        _finding(
            host,
            f"{_where(figures)} keeps {format_quantity(figures.exclusive, 'B')} of nearly empty pages "
            f"with {figures.inclusive} blocks",
            [
                f"{format_share(figures.exclusive / fragmentation.resident)} of the resident memory",
                f"{fragmentation.seconds:.2f} s after the start "
                f"{format_quantity(fragmentation.resident, 'B')} were resident and "
                f"{format_quantity(fragmentation.live, 'B')} in use",
            ],
            "allocate long-lived blocks before short-lived ones, or from a pool",
        )
        for figures in sorted(lines.values(), key=lambda f: -f.exclusive)[:MAX_FINDINGS]
        if figures.exclusive >= MIN_PIN_OF_EMPTY * fragmentation.empty
    ]


def _first_touch(profile: HeapProfile, host: str) -> list[Finding]:
    """Page faults of first touches: the time that malloc saved."""
    if profile.touches is None:
        return []
    lines: dict[object, tuple[Figures, list[int]]] = {}
    for stack in profile.touches.stacks:
        site = profile.allocation_site(stack.node)
        figures, sums = lines.setdefault(by_line(site), (Figures(site), [0, 0]))
        figures.exclusive += stack.pages
        sums[0] += stack.with_huge
        sums[1] += profile.nodes[stack.node].exclusive_peak
    findings = []
    for figures, (with_huge, peak) in sorted(lines.values(), key=lambda pair: -pair[0].exclusive):
        if figures.exclusive < MIN_PAGES:
            break
        if figures.exclusive * PAGE >= MIN_RETOUCHES * peak:
            times = figures.exclusive * PAGE / max(1, peak)
            cause = (
                f"blocks of {_where(figures)} are touched anew: "
                f"{figures.exclusive} page faults, {times:.0f} times their peak"
            )
            fix = "reuse the blocks, or use an allocator that keeps freed memory (see assay alloc)"
        elif with_huge <= MAX_LEFT_WITH_HUGE * figures.exclusive:
            cause = (
                f"blocks of {_where(figures)} take {figures.exclusive} page faults; "
                f"with huge pages it would be {with_huge}"
            )
            fix = "try huge pages: GLIBC_TUNABLES=glibc.malloc.hugetlb=1, or madvise(MADV_HUGEPAGE)"
        else:
            continue
        findings.append(_finding(host, cause, [], fix))
    return findings[:MAX_FINDINGS]


def _variables(profile: HeapProfile, host: str) -> list[Finding]:
    resident = max((sample[2] for sample in profile.timeline.samples), default=0.0)
    limit = max(MIN_VARIABLE, MIN_VARIABLES_OF_PEAK * max(profile.totals.peak, resident))
    threads = max(1, len(profile.threads))
    findings = []
    for variable in profile.globals.variables:
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


def _tiny(profile: HeapProfile, host: str) -> list[Finding]:
    counts: dict[object, Figures] = {}
    for number, node in enumerate(profile.nodes):
        if node.count and node.max_size <= TINY_SIZE:
            site = profile.allocation_site(number)
            counts.setdefault(by_line(site), Figures(site)).exclusive += node.count
    return [
        _finding(
            host,
            f"{_where(figures)} allocates {figures.exclusive} blocks of {TINY_SIZE} byte or none",
            [
                f"{format_share(figures.exclusive / profile.totals.count)} of all allocations",
                "each takes 32 bytes of glibc's heap",
            ],
            "check for sizes of zero; else store the byte in its owner",
        )
        for figures in sorted(counts.values(), key=lambda f: -f.exclusive)[:MAX_FINDINGS]
        if figures.exclusive >= MIN_COUNT
    ]


def _reallocations(profile: HeapProfile, host: str) -> list[Finding]:
    allocations = {by_line(figures.location): figures.exclusive for figures in profile.by("count", by_line)}
    foreign = {
        by_line(figures.location): figures.exclusive
        for figures in profile.by("foreign_reallocations", by_line)
    }
    findings = []
    for figures in profile.by("reallocated", by_line):
        line = by_line(figures.location)
        # Blocks that replaced no other, and blocks that were allocated elsewhere.
        blocks = allocations.get(line, 0) - figures.exclusive + foreign.get(line, 0)
        if figures.exclusive >= MIN_COUNT and figures.exclusive >= MIN_REALLOCS_PER_BLOCK * max(1, blocks):
            findings.append(
                _finding(
                    host,
                    f"{_where(figures)} reallocates {figures.exclusive} times",
                    [
                        f"{figures.exclusive / max(1, blocks):.0f} times for each block",
                        f"{format_share(figures.exclusive / profile.totals.count)} of all allocations",
                    ],
                    "grow by a factor, or allocate the final size at once",
                )
            )
    return findings[:MAX_FINDINGS]
