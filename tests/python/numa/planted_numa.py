"""Recordings of programs whose accesses and first touches are planted: an array that threads use in equal parts."""

from __future__ import annotations

import json

from assay.numa.profile import Location, Profile
from assay.numa.recording import PARTS, parse_recording

PAGES = 1600  # of the array, each with 512 numbers
USES_PER_NUMBER = 20  # accesses to each number, after the one that initialises it


def planted_profile(
    threads: int,
    nodes: int = 2,
    is_serial: bool = True,
    bound: bool = True,
    mode: str = "gcc",
    rank: str = "",
    policy: int = 0,
) -> Profile:
    """``threads`` workers on as many processors, of which each node has as many, use equal parts of one array. It is
    touched first by the main thread on processor 0, or by its users."""
    home = [k * nodes // threads for k in range(threads)]  # the node of processor k and of worker k
    rows: list[list[object]] = [["process", 1, mode, 100, 1, 4096, nodes, "./a\x00", rank]]
    rows += [["node", n, [k for k in range(threads) if home[k] == n], 0, []] for n in range(nodes)]
    rows += [["thread", k, 100 + k, "a"] for k in range(threads + 1)]
    if bound:
        rows += [["binding", k, k, [max(0, k - 1)], 0, []] for k in range(threads + 1)]
    rows += [
        ["stack", 1, [10]],
        ["stack", 2, [20]],
        ["stack", 3, [30]],
        ["object", 0, "heap", "", 1, PAGES * 4096, 1],
    ]
    pages = PAGES // PARTS
    for part in range(PARTS):
        worker = part * threads // PARTS
        toucher, page_node = (0, 0) if is_serial else (worker + 1, home[worker])
        rows.append(["touch", 0, 2, toucher, page_node, page_node, policy, pages, 0])
        initialise, use = (toucher, page_node, 2, 1), (worker + 1, home[worker], 3, USES_PER_NUMBER)
        for thread, node, stack, count in (initialise, use):
            rows.append(["part", 0, part, thread, node, page_node, count * pages * 512])
            rows.append(["access", 0, stack, thread, node, page_node, 0, count * pages * 512])
    rows.append(["end", 5_000_000, 0, 0])
    recording = parse_recording([json.dumps(row).encode() + b"\n" for row in rows], "planted")
    places = [
        Location(name, "/src/a.c", line, "/bin/a") for name, line in (("make", 3), ("init", 9), ("use", 14))
    ]
    return Profile(
        recording, [*places, Location("main", "/src/a.c", 20, "/bin/a")], {1: [0, 3], 2: [1, 3], 3: [2, 3]}
    )
