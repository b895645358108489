#!/usr/bin/env python3
"""Conflicts of every shift on fat trees of radix 36: 512 nodes in two levels, 10,000 in three, tables included.

Each figure is that of a process of its own, so that its memory is known. The peer is the same count in plain Python,
one flow and one link after the other, on the same routes.
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
from figures import figure  # noqa: E402

from assay.fabric import Routes, conflicts, schedules, synthetic, tables  # noqa: E402

SMALL, LARGE = 512, 10_000
ROUNDS = 5  # of the small one
KNOWN = {SMALL: 2160}  # conflicts, in closed form


def count(nodes: int) -> dict[str, float]:
    """From the description to the conflicts of all shifts."""
    begun = time.monotonic()
    fabric = synthetic.build(synthetic.parse(f"radix=36,nodes={nodes}"))
    routes = Routes(fabric, tables.compute(fabric, "d-mod-k"))
    made = time.monotonic()
    found = conflicts.analyse(routes, schedules.shift(nodes), np.arange(nodes))
    ended = time.monotonic()
    if found.total != KNOWN.get(nodes, found.total):
        raise SystemExit(f"bench: {found.total} conflicts of {nodes} nodes, and {KNOWN[nodes]} are known")
    return {"total": found.total, "tables": made - begun, "conflicts": ended - made, "all": ended - begun}


def plain_seconds(nodes: int) -> float:
    """Walks every flow of every shift by dictionaries."""
    fabric = synthetic.build(synthetic.parse(f"radix=36,nodes={nodes}"))
    routes = Routes(fabric, tables.compute(fabric, "d-mod-k"))
    ports, link = routes.tables.ports.tolist(), fabric.next_link.tolist()
    ahead, on = fabric.link_to.tolist(), fabric.host_switch.tolist()
    begun, total = time.monotonic(), 0
    for shift in range(nodes):
        load: Counter[int] = Counter()
        for src in range(nodes):
            dst, switch = (src - shift) % nodes, on[src]
            while switch != on[dst]:
                crossed = link[switch][ports[switch][dst]]
                load[crossed] += 1
                switch = ahead[crossed]
        total += sum(value - 1 for value in load.values())
    if total != KNOWN[nodes]:
        raise SystemExit(f"bench: the plain count is {total}")
    return time.monotonic() - begun


def apart(nodes: int) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, str(nodes)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run() -> int:
    small = [apart(SMALL) for _ in range(ROUNDS)]
    peer = plain_seconds(SMALL)
    figure(
        "fabric.conflicts.seconds_of_512_nodes",
        [f["conflicts"] for f in small],
        0.5,
        "lower",
        "s",
        round(peer, 3),
    )
    large = apart(LARGE)
    print(f"bench: {LARGE} nodes: {large}", file=sys.stderr)
    figure("fabric.conflicts.seconds_of_10000_nodes", [large["all"]], 60.0, "lower", "s")
    figure("fabric.conflicts.memory_of_10000_nodes", [large["memory"]], 4.0 * 2**30, "lower", "B")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        result = count(int(sys.argv[1]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(result | {"memory": peak}))
        sys.exit(0)
    sys.exit(run())
