"""Advice on a program's use of memory, each with its line and its cost. Limits are shares of what the program does
in all, so that small programs and long ones are treated alike."""

from __future__ import annotations

import re

from assay.profile.figures import Figures
from assay.profile.heap import HeapProfile, by_line
from assay.records.schema import Finding, Subject
from assay.records.units import format_quantity, format_share

LEAK_OF_PEAK = 0.01  # never freed, as a share of the peak
LEAST_LEAK = 4096  # bytes; less is the runtime's own
TEMPORARY_OF_ALL = 0.10  # of all allocations
LEAST_COUNT = 1000  # allocations; fewer cost nothing that anybody would notice
TINY = 1  # bytes
REALLOC_CHAIN = 8  # reallocations of one line for each block that it first asked for, or took over
ALIVE_AT_ONCE = 0.01  # of the copies that a line makes: fewer are made to be thrown away
EMPTY_OF_RESIDENT = 0.20  # on pages that live blocks keep, as a share of the memory that the process has
LEAST_EMPTY = 4 << 20  # bytes
PIN_OF_EMPTY = 0.20  # one stack's part of what is empty
MANY_PAGES = 20_000  # touched for the first time: some 10 ms and more
HUGE_LEAVES = 0.10  # of them: then huge pages are worth a try
TOUCHED_AGAIN = 4  # times the most that was there at once
LARGE_VARIABLE = 1 << 20  # bytes
VARIABLES_OF_PEAK = 0.10  # of what the process has in memory at most
PAGE = 4096  # bytes
MOST_SHOWN = 5
COPY = re.compile(r"::(\w+)\(std::(?:\w+::)*\1<.*> const&\)$")  # a copy constructor of the standard library
# An interpreter, or its library: what it does when it begins and ends is not the program's.
PYTHON = re.compile(r"(lib)?python\d[\d.]*[a-z]*(\.so[\d.]*)?$")
RUNTIME = ("libc.so", "libstdc++.so", "ld-linux", "libgcc_s.so")  # keeps buffers of its own to the end


def heap_advice(profile: HeapProfile, host: str) -> list[Finding]:
    """Findings of rule "heap", the most expensive of each kind first."""
    return [
        *_leaks(profile, host),
        *_temporary(profile, host),
        *_tiny(profile, host),
        *_reallocations(profile, host),
        *_copies(profile, host),
        *_fragments(profile, host),
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
    return f"{figures.place.function} ({figures.place.source})"


def _is_runtime(figures: Figures) -> bool:
    return figures.place.module.rpartition("/")[2].startswith(RUNTIME) or _is_interpreter(figures)


def _is_interpreter(figures: Figures) -> bool:
    return PYTHON.match(figures.place.module.rpartition("/")[2]) is not None


def _leaks(profile: HeapProfile, host: str) -> list[Finding]:
    if profile.process.left:
        return []  # what it has at some moment, it may still free
    least = max(LEAST_LEAK, LEAK_OF_PEAK * profile.totals.peak)
    found = [one for one in profile.by("leaked", by_line) if one.own >= least and not _is_runtime(one)]
    return [
        _finding(
            host,
            f"{_where(one)} asks for {format_quantity(one.own, 'B')} that are never freed",
            [f"{format_share(one.own / profile.totals.peak)} of the most that was in use at once"],
            "free them, or keep them on purpose: what is held until the end counts here too",
        )
        for one in found[:MOST_SHOWN]
    ]


def _temporary(profile: HeapProfile, host: str) -> list[Finding]:
    least = max(LEAST_COUNT, TEMPORARY_OF_ALL * profile.totals.count)
    found = [one for one in profile.by("temporary", by_line) if one.own >= least and not _is_interpreter(one)]
    return [
        _finding(
            host,
            f"{_where(one)} makes {one.own} blocks that are freed before the next allocation",
            [f"{format_share(one.own / profile.totals.count)} of all allocations"],
            "make it once, before the loop"
            if one.place.is_python
            else "keep one buffer over the loop, or put it on the stack",
        )
        for one in found[:MOST_SHOWN]
    ]


def _copies(profile: HeapProfile, host: str) -> list[Finding]:
    """Allocations that no line asks for in so many words: a container copied, used once, and thrown away."""
    counts: dict[object, tuple[Figures, str]] = {}
    for number, node in enumerate(profile.nodes):
        way = profile.handed_on(number)
        copied = COPY.search(way[-2].function) if len(way) > 1 and node.count else None
        if copied is None or node.own_peak > ALIVE_AT_ONCE * node.bytes:
            continue
        counts.setdefault(by_line(way[-1]), (Figures(way[-1]), copied[1]))[0].own += node.count
    return [
        _finding(
            host,
            f"{_where(one)} makes {one.own} copies of a {what} that do not live on",
            [f"{format_share(one.own / profile.totals.count)} of all allocations are made for them"],
            "take it by reference (const auto&), or move it",
        )
        for one, what in sorted(counts.values(), key=lambda f: -f[0].own)[:MOST_SHOWN]
        if one.own >= LEAST_COUNT
    ]


def _fragments(profile: HeapProfile, host: str) -> list[Finding]:
    pages = profile.fragments
    if pages is None or pages.empty < max(LEAST_EMPTY, EMPTY_OF_RESIDENT * pages.resident):
        return []
    lines: dict[object, Figures] = {}
    for pin in pages.pins:
        place = profile.asker(pin.node)
        one = lines.setdefault(by_line(place), Figures(place))
        one.own += pin.bytes
        one.total += pin.blocks
    return [
        _finding(
            host,
            f"{_where(one)} keeps {format_quantity(one.own, 'B')} of nearly empty pages with {one.total} blocks",
            [
                f"{format_share(one.own / pages.resident)} of what was resident",
                f"{pages.seconds:.2f} s after the start {format_quantity(pages.resident, 'B')} were resident "
                f"and {format_quantity(pages.live, 'B')} in use",
            ],
            "do not ask for blocks that live long in between those that do not: ask for them first, or from a pool",
        )
        for one in sorted(lines.values(), key=lambda f: -f.own)[:MOST_SHOWN]
        if one.own >= PIN_OF_EMPTY * pages.empty
    ]


def _first_touch(profile: HeapProfile, host: str) -> list[Finding]:
    """What malloc has saved and the first access has paid: one fault a page."""
    if profile.touches is None:
        return []
    lines: dict[object, tuple[Figures, list[int]]] = {}
    for stack in profile.touches.stacks:
        place = profile.asker(stack.node)
        one, sums = lines.setdefault(by_line(place), (Figures(place), [0, 0]))
        one.own += stack.pages
        sums[0] += stack.with_huge
        sums[1] += profile.nodes[stack.node].own_peak
    found = []
    for one, (with_huge, peak) in sorted(lines.values(), key=lambda pair: -pair[0].own):
        if one.own < MANY_PAGES:
            break
        if one.own * PAGE >= TOUCHED_AGAIN * peak:
            again = one.own * PAGE / max(1, peak)
            cause = f"blocks of {_where(one)} are touched anew: {one.own} page faults, {again:.0f} times their peak"
            fix = "keep the blocks, or have the allocator keep them (assay alloc tells which one does)"
        elif with_huge <= HUGE_LEAVES * one.own:
            cause = (
                f"blocks of {_where(one)} take {one.own} page faults; with huge pages it would be {with_huge}"
            )
            fix = "try huge pages: GLIBC_TUNABLES=glibc.malloc.hugetlb=1, or madvise(MADV_HUGEPAGE)"
        else:
            continue
        found.append(_finding(host, cause, [], fix))
    return found[:MOST_SHOWN]


def _variables(profile: HeapProfile, host: str) -> list[Finding]:
    resident = max((sample[2] for sample in profile.timeline.samples), default=0.0)
    least = max(LARGE_VARIABLE, VARIABLES_OF_PEAK * max(profile.totals.peak, resident))
    threads = max(1, len(profile.threads))
    found = []
    for one in profile.globals.variables:
        bytes_in_all = one.bytes * (threads if one.per_thread else 1)
        if bytes_in_all < least:
            continue
        at = (
            f" ({one.file.rpartition('/')[2]}:{one.line})"
            if one.file
            else f" ({one.object.rpartition('/')[2]})"
        )
        what = f", once for each of {threads} threads" if one.per_thread else ""
        touched = [] if one.resident is None else [f"{format_quantity(one.resident, 'B')} of it in memory"]
        found.append(
            _finding(
                host,
                f"the variable {one.name}{at} takes {format_quantity(one.bytes, 'B')}{what}",
                [
                    f"{format_share(bytes_in_all / max(profile.totals.peak, resident, bytes_in_all))} of its memory",
                    *touched,
                ],
                "it is there from beginning to end: ask for it when it is needed, as large as it is needed",
            )
        )
    return found[:MOST_SHOWN]


def _tiny(profile: HeapProfile, host: str) -> list[Finding]:
    counts: dict[object, Figures] = {}
    for number, node in enumerate(profile.nodes):
        if node.count and node.most <= TINY:
            place = profile.asker(number)
            counts.setdefault(by_line(place), Figures(place)).own += node.count
    return [
        _finding(
            host,
            f"{_where(one)} asks {one.own} times for {TINY} byte or none",
            [
                f"{format_share(one.own / profile.totals.count)} of all allocations",
                "each takes 32 bytes of glibc's heap",
            ],
            "is a size of zero meant? else put the byte where it belongs",
        )
        for one in sorted(counts.values(), key=lambda f: -f.own)[:MOST_SHOWN]
        if one.own >= LEAST_COUNT
    ]


def _reallocations(profile: HeapProfile, host: str) -> list[Finding]:
    first = {by_line(one.place): one.own for one in profile.by("count", by_line)}
    foreign = {by_line(one.place): one.own for one in profile.by("foreign_reallocations", by_line)}
    found = []
    for one in profile.by("reallocated", by_line):
        line = by_line(one.place)
        # Blocks that did not replace another, and those that came from elsewhere.
        fresh = first.get(line, 0) - one.own + foreign.get(line, 0)
        if one.own >= LEAST_COUNT and one.own >= REALLOC_CHAIN * max(1, fresh):
            found.append(
                _finding(
                    host,
                    f"{_where(one)} reallocates {one.own} times",
                    [
                        f"{one.own / max(1, fresh):.0f} times for each block",
                        f"{format_share(one.own / profile.totals.count)} of all allocations",
                    ],
                    "grow by a factor, or ask for the final size at once",
                )
            )
    return found[:MOST_SHOWN]
