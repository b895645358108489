"""Packs a fabric for the report's picture of it: switches, cables, forwarding tables and the schedule, as one text.

From these the page computes the load of every link in any step, so that no load is stored. The text is base64 of zlib
of JSON; ``web/src/data/plan.ts`` reads it. An entry of a table is a character: ENTRY + the output port, or ENTRY alone
where there is none. A step of a schedule is a row of characters: ENTRY + 1 + the destination, ENTRY for an idle rank.
"""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
from numpy.typing import NDArray

from assay.fabric.routes import Routes
from assay.fabric.schedules import Schedule
from assay.fabric.tables import NO_ENTRY
from assay.fabric.topology import UNREACHED, Fabric, Ints

ENTRY = 35  # "#": no control character and no quote
FORMULAS = ("shift", "xor")  # schedules that the page computes by itself
MAX_STEPS_KEPT = 1 << 21  # steps times ranks of other schedules
MAX_ENTRIES = 1 << 25  # switches times ranks; a page of more takes too long to open


def packed(routes: Routes, schedule: Schedule, members: NDArray[np.integer]) -> str:
    """Empty where the fabric is too large, or its schedule too long to be kept."""
    fabric, members = routes.fabric, np.asarray(members, np.int32)
    if fabric.switches * len(members) > MAX_ENTRIES:
        return ""
    if schedule.name not in FORMULAS and schedule.steps * schedule.ranks > MAX_STEPS_KEPT:
        return ""
    links = np.flatnonzero(fabric.between_switches)
    real = members >= 0
    level = np.where(fabric.levels == UNREACHED, -1, fabric.levels)
    host_switches = np.where(real, fabric.host_switch[members], -1)
    ports = np.where(real, routes.tables.ports[:, members], NO_ENTRY)
    plan = {
        "hosts": [fabric.host_names[host] if host >= 0 else "" for host in members],
        "host_switches": host_switches.tolist(),
        "switches": fabric.switch_names,
        "levels": level.tolist(),
        "groups": groups(fabric).tolist(),
        "links": [
            column[links].tolist()
            for column in (fabric.link_from, fabric.link_from_port, fabric.link_to, fabric.link_to_port)
        ],
        "tables": [_text(np.where(row == NO_ENTRY, 0, row)) for row in ports],
        "schedule": schedule.name,
        "steps": [] if schedule.name in FORMULAS else [_text(step + 1) for step in schedule],
    }
    text = json.dumps(plan, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", errors="replace"), 6)).decode("ascii")


def _text(numbers: NDArray[np.integer]) -> str:
    return (numbers.astype(np.uint32) + ENTRY).tobytes().decode("utf-32-le")


def groups(fabric: Fabric) -> Ints:
    """[S] the part of the fabric that a switch is drawn with where it is too large for single switches.

    Switches below the top level that reach each other without it are one (a pod); so are those of the top level with
    the same neighbours.
    """
    from scipy.sparse import coo_array  # slow to import, rarely needed
    from scipy.sparse.csgraph import connected_components

    known = np.where(fabric.levels == UNREACHED, -1, fabric.levels)
    top = int(known.max(initial=0))
    links = np.flatnonzero(fabric.between_switches)
    ends = fabric.link_from[links], fabric.link_to[links]
    below = (known[ends[0]] != top) & (known[ends[1]] != top)
    size = fabric.switches
    graph = coo_array((np.ones(below.sum(), np.int8), (ends[0][below], ends[1][below])), shape=(size, size))
    _, part = connected_components(graph, directed=False)
    same_peers: dict[bytes, int] = {}
    order = np.lexsort((ends[1], ends[0]))
    starts = np.searchsorted(ends[0][order], np.arange(size + 1))
    for switch in np.flatnonzero(known == top):
        peers = np.unique(ends[1][order[starts[switch] : starts[switch + 1]]])
        part[switch] = part[same_peers.setdefault(peers.tobytes(), int(switch))]
    _, number = np.unique(part, return_inverse=True)
    return number.astype(np.int32)
