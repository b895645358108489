"""Writes forwarding tables for OpenSM (``opensm -R file -U FILE``), in the format of its opensm-lfts.dump.

OpenSM also needs entries for the switches themselves (management); these follow shortest paths. OpenSM matches an entry
to its port by the GUID, so the LIDs of the fabric may have changed meanwhile. Tables for several LIDs of each host need
unchanged LIDs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.errors import UserError
from assay.fabric.tables import NO_ENTRY, ForwardingTables, NextHops
from assay.fabric.topology import Fabric, Ints


def write_lfts(fabric: Fabric, tables: Sequence[ForwardingTables]) -> str:
    """The text of the file. ``tables``: for the first LID of each host, the second and so on. Raises UserError if LIDs
    or GUIDs are unknown, or a host has fewer LIDs than there are tables."""
    _require_lids(fabric, len(tables))
    if not fabric.switch_lids.all() or not fabric.host_lids.all():
        raise UserError(
            f"{fabric.source}: not every switch and host has a LID", "take a dump of a routed fabric"
        )
    if not fabric.switch_guids.all() or not fabric.host_guids.all():
        raise UserError(
            f"{fabric.source}: not every switch and host has a GUID", "take the output of ibnetdiscover"
        )
    to_switches = _ports_to_switches(fabric)
    host_lids = [fabric.host_lids + path for path in range(len(tables))]
    lids = np.concatenate([fabric.switch_lids, *host_lids])
    order = np.argsort(lids, kind="stable")
    lines = []
    for switch in range(fabric.switches):
        lines.append(
            f"Unicast lids [0-{lids.max()}] of switch Lid {fabric.switch_lids[switch]} guid "
            f"{int(fabric.switch_guids[switch]):#018x} ('{_quoted(fabric.switch_names[switch])}'):"
        )
        to_hosts = [table.ports[switch] for table in tables]
        ports = np.concatenate([to_switches[switch], *to_hosts])
        for number in order[ports[order] != NO_ENTRY]:
            node = (
                number
                if number < fabric.switches
                else (number - fabric.switches) % fabric.hosts + fabric.switches
            )
            lines.append(f"{lids[number]:#06x} {ports[number]:03d} # {_node_comment(fabric, int(node))}")
        lines.append("")
    return "\n".join(lines)


def _require_lids(fabric: Fabric, paths: int) -> None:
    lmc = fabric.node_lmc[fabric.switches :] if len(fabric.node_lmc) else np.zeros(fabric.hosts, np.int32)
    few = np.flatnonzero((1 << lmc) < paths)
    if len(few):
        bits = (paths - 1).bit_length()
        raise UserError(
            f"{fabric.source}: {fabric.host_names[few[0]]} has {1 << int(lmc[few[0]])} LID, and {paths} are needed",
            f"let the subnet manager give them (opensm --lmc {bits}), then take the dumps anew",
        )


def _node_comment(fabric: Fabric, node: int) -> str:
    if node < fabric.switches:
        kind, guid, name = "Switch", fabric.switch_guids[node], fabric.switch_names[node]
    else:
        host = node - fabric.switches
        kind, guid, name = "Channel Adapter", fabric.host_guids[host], fabric.host_names[host]
    return f"{kind} portguid {int(guid):#018x}: '{_quoted(name)}'"


def _quoted(name: str) -> str:
    """A name without characters that would end the line or the quotes."""
    return "".join(c if c.isprintable() and c != "'" else "?" for c in name)


def _ports_to_switches(fabric: Fabric) -> Ints:
    """[S, S] the lowest port of a switch on a shortest path to another switch; 0 to itself."""
    from scipy.sparse import csr_array  # slow to import, rarely needed
    from scipy.sparse.csgraph import shortest_path

    neighbour = NextHops(fabric).neighbour
    sources, port = np.nonzero(neighbour >= 0)
    size = fabric.switches
    ones = np.ones(len(sources), np.int8)
    distance = shortest_path(
        csr_array((ones, (sources, neighbour[sources, port])), shape=(size, size)), unweighted=True
    )
    ports = np.full((size, size), NO_ENTRY, np.int32)
    for switch in range(size):
        used_ports = np.flatnonzero(neighbour[switch] >= 0)
        closer = distance[neighbour[switch, used_ports]] == distance[switch] - 1  # [ports, S]
        is_reached = closer.any(axis=0)
        ports[switch, is_reached] = (
            used_ports[closer.argmax(axis=0)[is_reached]] if len(used_ports) else NO_ENTRY
        )
        ports[switch, switch] = 0
    return ports
