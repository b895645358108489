"""Packs a fabric for its picture in the HTML report: switches, cables, forwarding tables and the schedule, as one text.

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

from assay.fabric.levels import UNREACHED
from assay.fabric.routes import Routes
from assay.fabric.schedules import Schedule
from assay.fabric.tables import NO_ENTRY
from assay.fabric.topology import Fabric, Ints

ENTRY = 35  # "#": no control character and no quote
FORMULAS = ("shift", "xor")  # schedules that the page computes by itself
MAX_STEPS_KEPT = 1 << 21  # steps times ranks of a schedule that is stored
MAX_ENTRIES = 1 << 25  # switches times ranks; a page of more takes too long to open


def pack_picture(routes: Routes, schedule: Schedule, members: NDArray[np.integer]) -> str:
    """The text; empty if the fabric is too large, or its schedule too long to be stored."""
    fabric, members = routes.fabric, np.asarray(members, np.int32)
    if fabric.switches * len(members) > MAX_ENTRIES:
        return ""
    if schedule.name not in FORMULAS and schedule.steps * schedule.ranks > MAX_STEPS_KEPT:
        return ""
    links = np.flatnonzero(fabric.between_switches)
    is_host = members >= 0
    level = np.where(fabric.levels == UNREACHED, -1, fabric.levels)
    switch_of_rank = np.where(is_host, fabric.host_switch[members], -1)
    ports = np.where(is_host, routes.tables.ports[:, members], NO_ENTRY)
    plan = {
        "hosts": [fabric.host_names[host] if host >= 0 else "" for host in members],
        "host_switches": switch_of_rank.tolist(),
        "switches": fabric.switch_names,
        "levels": level.tolist(),
        "groups": groups(fabric).tolist(),
        "links": [
            column[links].tolist()
            for column in (fabric.link_from, fabric.link_from_port, fabric.link_to, fabric.link_to_port)
        ],
        "tables": [_encode(np.where(row == NO_ENTRY, 0, row)) for row in ports],
        "schedule": schedule.name,
        "steps": [] if schedule.name in FORMULAS else [_encode(step + 1) for step in schedule],
    }
    text = json.dumps(plan, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", errors="replace"), 6)).decode("ascii")


def _encode(numbers: NDArray[np.integer]) -> str:
    return (numbers.astype(np.uint32) + ENTRY).tobytes().decode("utf-32-le")


def groups(fabric: Fabric) -> Ints:
    """[S] number of the group of each switch. A picture of a large fabric shows groups instead of switches.

    Switches below the top level that reach each other without it are a group (a pod); so are switches of the top level
    with the same neighbours.
    """
    from scipy.sparse import coo_array  # slow to import, rarely needed
    from scipy.sparse.csgraph import connected_components

    level = np.where(fabric.levels == UNREACHED, -1, fabric.levels)
    top = int(level.max(initial=0))
    links = np.flatnonzero(fabric.between_switches)
    ends = fabric.link_from[links], fabric.link_to[links]
    is_below_top = (level[ends[0]] != top) & (level[ends[1]] != top)
    size = fabric.switches
    graph = coo_array(
        (np.ones(is_below_top.sum(), np.int8), (ends[0][is_below_top], ends[1][is_below_top])),
        shape=(size, size),
    )
    _, part = connected_components(graph, directed=False)
    same_peers: dict[bytes, int] = {}
    order = np.lexsort((ends[1], ends[0]))
    starts = np.searchsorted(ends[0][order], np.arange(size + 1))
    for switch in np.flatnonzero(level == top):
        peers = np.unique(ends[1][order[starts[switch] : starts[switch + 1]]])
        part[switch] = part[same_peers.setdefault(peers.tobytes(), int(switch))]
    _, number = np.unique(part, return_inverse=True)
    return number.astype(np.int32)
