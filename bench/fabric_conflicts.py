#!/usr/bin/env python3
"""Conflicts of every shift on fat trees of radix 36: 512 nodes in two levels, 10,000 in three, tables included.

Each figure is measured in a subprocess, so that its peak memory is its own. The peer is the same count in plain Python,
flow by flow and link by link, on the same routes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import numpy as np  # noqa: E402
from figures import exit_code_of, figure  # noqa: E402

from assay.fabric import Routes, conflicts, schedules, synthetic, tables  # noqa: E402

SMALL_NODES, LARGE_NODES = 512, 10_000
ROUNDS = 5  # of the small fabric
KNOWN_CONFLICTS = {SMALL_NODES: 2160}  # by nodes; from the closed form


def count(nodes: int) -> dict[str, float]:
    """Builds the fabric and its tables and counts the conflicts of all shifts; returns the total and seconds."""
    start = time.monotonic()
    fabric = synthetic.build(synthetic.parse(f"radix=36,nodes={nodes}"))
    routes = Routes(fabric, tables.compute(fabric, "d-mod-k"))
    routed = time.monotonic()
    found = conflicts.analyse(routes, schedules.shift(nodes), np.arange(nodes))
    ended = time.monotonic()
    if found.total != KNOWN_CONFLICTS.get(nodes, found.total):
        raise SystemExit(
            f"bench: {found.total} conflicts of {nodes} nodes, and {KNOWN_CONFLICTS[nodes]} are known"
        )
    return {"total": found.total, "tables": routed - start, "conflicts": ended - routed, "all": ended - start}


def plain_seconds(nodes: int) -> float:
    """Seconds of the same count in plain Python, flow by flow and link by link."""
    fabric = synthetic.build(synthetic.parse(f"radix=36,nodes={nodes}"))
    routes = Routes(fabric, tables.compute(fabric, "d-mod-k"))
    ports, link = routes.tables.ports.tolist(), fabric.next_link.tolist()
    next_switch, switch_of = fabric.link_to.tolist(), fabric.host_switch.tolist()
    start, total = time.monotonic(), 0
    for shift in range(nodes):
        load: Counter[int] = Counter()
        for src in range(nodes):
            dst, switch = (src - shift) % nodes, switch_of[src]
            while switch != switch_of[dst]:
                link_number = link[switch][ports[switch][dst]]
                load[link_number] += 1
                switch = next_switch[link_number]
        total += sum(value - 1 for value in load.values())
    if total != KNOWN_CONFLICTS[nodes]:
        raise SystemExit(f"bench: the plain count is {total}")
    return time.monotonic() - start


def count_in_subprocess(nodes: int) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, str(nodes)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run() -> int:
    small = [count_in_subprocess(SMALL_NODES) for _ in range(ROUNDS)]
    peer = plain_seconds(SMALL_NODES)
    figure(
        "fabric.conflicts.seconds_of_512_nodes",
        [f["conflicts"] for f in small],
        0.5,
        "lower",
        "s",
        round(peer, 3),
    )
    large = count_in_subprocess(LARGE_NODES)
    print(f"bench: {LARGE_NODES} nodes: {large}", file=sys.stderr)
    figure("fabric.conflicts.seconds_of_10000_nodes", [large["all"]], 60.0, "lower", "s")
    figure("fabric.conflicts.memory_of_10000_nodes", [large["memory"]], 4.0 * 2**30, "lower", "B")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        result = count(int(sys.argv[1]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(result | {"memory": peak}))
        sys.exit(0)
    sys.exit(exit_code_of(run))
