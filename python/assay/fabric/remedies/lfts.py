"""Forwarding tables as OpenSM reads them back: ``opensm -R file -U FILE``, the form of its opensm-lfts.dump.

OpenSM also needs ways to the switches themselves (management): these are shortest paths. It matches an entry to its
port by the GUID, so that LIDs may have changed since.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from assay.errors import UserError
from assay.fabric.tables import NO_ENTRY, ForwardingTables, NextHops
from assay.fabric.topology import Fabric, Ints


def write_lfts(fabric: Fabric, tables: ForwardingTables) -> str:
    """Raises UserError where LIDs or GUIDs are unknown."""
    if not fabric.switch_lids.all() or not fabric.host_lids.all():
        raise UserError(
            f"{fabric.source}: not every switch and host has a LID", "take a dump of a routed fabric"
        )
    if not fabric.switch_guids.all() or not fabric.host_guids.all():
        raise UserError(
            f"{fabric.source}: not every switch and host has a GUID", "take the output of ibnetdiscover"
        )
    to_switches = _ports_to_switches(fabric)
    lids = np.concatenate([fabric.switch_lids, fabric.host_lids])
    order = np.argsort(lids, kind="stable")
    lines = []
    for switch in range(fabric.switches):
        lines.append(
            f"Unicast lids [0-{lids.max()}] of switch Lid {fabric.switch_lids[switch]} guid "
            f"{int(fabric.switch_guids[switch]):#018x} ('{_quoted(fabric.switch_names[switch])}'):"
        )
        for node in order:
            is_switch = node < fabric.switches
            port = to_switches[switch, node] if is_switch else tables.ports[switch, node - fabric.switches]
            if port != NO_ENTRY:
                lines.append(f"{lids[node]:#06x} {port:03d} # {_described(fabric, int(node))}")
        lines.append("")
    return "\n".join(lines)


def _described(fabric: Fabric, node: int) -> str:
    if node < fabric.switches:
        kind, guid, name = "Switch", fabric.switch_guids[node], fabric.switch_names[node]
    else:
        host = node - fabric.switches
        kind, guid, name = "Channel Adapter", fabric.host_guids[host], fabric.host_names[host]
    return f"{kind} portguid {int(guid):#018x}: '{_quoted(name)}'"


def _quoted(name: str) -> str:
    """A name that cannot end the line or the quotes."""
    return "".join(c if c.isprintable() and c != "'" else "?" for c in name)


def _ports_to_switches(fabric: Fabric) -> Ints:
    """[S, S] the port to another switch, the first on a shortest path; 0 to itself."""
    neighbour = NextHops(fabric).neighbour
    switch, port = np.nonzero(neighbour >= 0)
    size = fabric.switches
    ones = np.ones(len(switch), np.int8)
    distance = shortest_path(
        csr_array((ones, (switch, neighbour[switch, port])), shape=(size, size)), unweighted=True
    )
    ports = np.full((size, size), NO_ENTRY, np.int32)
    for here in range(size):
        own = np.flatnonzero(neighbour[here] >= 0)
        closer = distance[neighbour[here, own]] == distance[here] - 1  # [ports, S]
        has_way = closer.any(axis=0)
        ports[here, has_way] = own[closer.argmax(axis=0)[has_way]] if len(own) else NO_ENTRY
        ports[here, here] = 0
    return ports
