"""Advice on a program's use of memory, each with its line and its cost. Limits are shares of what the program does
in all, so that small programs and long ones are treated alike."""

from __future__ import annotations

from assay.profile.heap import Figures, HeapProfile, by_line
from assay.records.schema import Finding, Subject
from assay.records.units import format_quantity, format_share

LEAK_OF_PEAK = 0.01  # never freed, as a share of the peak
LEAST_LEAK = 4096  # bytes; less is the runtime's own
TEMPORARY_OF_ALL = 0.10  # of all allocations
LEAST_COUNT = 1000  # allocations; fewer cost nothing that anybody would notice
TINY = 1  # bytes
REALLOC_CHAIN = 8  # reallocations of one line for each block that it first asked for
MOST_SHOWN = 5
RUNTIME = ("libc.so", "libstdc++.so", "ld-linux", "libgcc_s.so")  # keeps buffers of its own to the end


def heap_advice(profile: HeapProfile, host: str) -> list[Finding]:
    """Findings of rule "heap", the most expensive of each kind first."""
    return [
        *_leaks(profile, host),
        *_temporary(profile, host),
        *_tiny(profile, host),
        *_reallocations(profile, host),
    ]


def _finding(host: str, cause: str, effect: float | None, details: list[str], remedy: str) -> Finding:
    return Finding(
        rule="heap",
        cause=cause,
        subject=Subject(host=host),
        side="node",
        severity="warning",
        effect=effect,
        details=details,
        remedy=remedy,
    )


def _where(figures: Figures) -> str:
    return f"{figures.place.function} ({figures.place.source})"


def _is_runtime(figures: Figures) -> bool:
    return figures.place.module.rpartition("/")[2].startswith(RUNTIME)


def _leaks(profile: HeapProfile, host: str) -> list[Finding]:
    least = max(LEAST_LEAK, LEAK_OF_PEAK * profile.totals.peak)
    found = [one for one in profile.by("leaked", by_line) if one.own >= least and not _is_runtime(one)]
    return [
        _finding(
            host,
            f"{_where(one)} asks for {format_quantity(one.own, 'B')} that are never freed",
            one.own / profile.totals.peak,
            [],
            "free them, or keep them on purpose: what is held until the end counts here too",
        )
        for one in found[:MOST_SHOWN]
    ]


def _temporary(profile: HeapProfile, host: str) -> list[Finding]:
    least = max(LEAST_COUNT, TEMPORARY_OF_ALL * profile.totals.count)
    found = [one for one in profile.by("temporary", by_line) if one.own >= least]
    return [
        _finding(
            host,
            f"{_where(one)} makes {one.own} blocks that are freed before the next allocation",
            one.own / profile.totals.count,
            [f"{format_share(one.own / profile.totals.count)} of all allocations"],
            "keep one buffer over the loop, or put it on the stack",
        )
        for one in found[:MOST_SHOWN]
    ]


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
            one.own / profile.totals.count,
            ["each takes 32 bytes of glibc's heap"],
            "is a size of zero meant? else put the byte where it belongs",
        )
        for one in sorted(counts.values(), key=lambda f: -f.own)[:MOST_SHOWN]
        if one.own >= LEAST_COUNT
    ]


def _reallocations(profile: HeapProfile, host: str) -> list[Finding]:
    first = {by_line(one.place): one.own for one in profile.by("count", by_line)}
    found = []
    for one in profile.by("reallocated", by_line):
        fresh = first.get(by_line(one.place), 0) - one.own  # blocks that did not replace another
        if one.own >= LEAST_COUNT and one.own >= REALLOC_CHAIN * max(1, fresh):
            found.append(
                _finding(
                    host,
                    f"{_where(one)} reallocates {one.own} times",
                    one.own / profile.totals.count,
                    [f"{one.own / max(1, fresh):.0f} times for each block"],
                    "grow by a factor, or ask for the final size at once",
                )
            )
    return found[:MOST_SHOWN]
