"""Routes: the directed links that a packet crosses from one host to another, for many pairs at once.

Forwarding depends on the destination alone, so all hosts of a switch share their route to a destination except for the
first link. ``Routes`` walks each route from a switch with hosts to a destination once, and keeps the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from assay.errors import UserError
from assay.fabric.levels import UNREACHED
from assay.fabric.tables import NO_ENTRY, ForwardingTables
from assay.fabric.topology import Fabric, Ints
from assay.records.memory import available_memory

Fault = Literal["loop", "black hole", "no cable", "wrong host"]
FAULTS: list[Fault] = ["black hole", "no cable", "wrong host", "loop"]  # codes 1, 2, ...
PAD = -1
# Memory while a route is walked: bytes for each hop (the column, its stacked copy, the copy without the last hop) and
# for each route.
BYTES_OF_HOP, BYTES_OF_ROUTE = 12, 40
MAX_SWITCHES = 64  # on a path; InfiniBand's management packets cross no more


@dataclass(frozen=True)
class BrokenRoute:
    """A route that does not arrive: from the hosts of ``leaf`` to ``host``, at switch ``switch``."""

    fault: Fault
    leaf: int
    host: int
    switch: int
    port: int
    text: str

    def __str__(self) -> str:
        return self.text


def _refuse_beyond_memory(fabric: Fabric) -> None:
    """Raises UserError where the routes of all leaf switches to all hosts do not fit the memory that is free."""
    hops = 2 * (1 + int(fabric.levels[fabric.levels != UNREACHED].max(initial=0)))
    needed = len(fabric.edge_switches) * fabric.hosts * (hops * BYTES_OF_HOP + BYTES_OF_ROUTE)
    free = available_memory()
    if needed > free:
        raise UserError(
            f"{fabric.source}: the routes of {fabric.hosts} hosts on {len(fabric.edge_switches)} leaf switches need "
            f"{needed / 2**30:.0f} GiB of memory, and {free / 2**30:.0f} GiB are free",
            "use a machine with more memory",
        )


class Routes:
    """The routes of a fabric under forwarding tables."""

    def __init__(self, fabric: Fabric, tables: ForwardingTables) -> None:
        self.fabric = fabric
        self.tables = tables

    def links(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> Ints:
        """[pairs, hops] directed links from hosts ``src`` to hosts ``dst``, padded with -1 at the end.

        The first is the link of the source to its switch, the last that to the destination; a pair of a host with
        itself has none. Raises UserError for a route that does not arrive, naming switch, LID and line.
        """
        src, dst = np.asarray(src, np.int32), np.asarray(dst, np.int32)
        self.require(src, dst)
        inner = self._walked[0][self.fabric.edge_of[src], dst]
        rows: Ints = np.concatenate([self.fabric.uplink[src][:, None], inner], axis=1)
        rows[src == dst] = PAD
        return rows

    def between_switches(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> Ints:
        """[pairs, hops] the links from switch to switch alone, padded with -1. Routes that do not arrive are not
        reported; ``require`` does that."""
        return np.asarray(self._inner[self.fabric.edge_of[src], dst])

    def all_between_switches(self) -> Ints:
        """[leaves, H, hops] the links from switch to switch from each leaf switch to each host, padded with -1."""
        return self._inner

    def require(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> None:
        """Raises UserError where a route does not arrive, or a host is on no switch."""
        used = np.concatenate([src, dst])
        detached = used[self.fabric.host_switch[used] < 0]
        if len(detached):
            raise UserError(
                f"{self.fabric.source}: host {self.fabric.host_names[detached[0]]} is attached to no switch"
            )
        leaf = self.fabric.edge_of[src]
        bad = np.flatnonzero((self._walked[1][leaf, dst] != 0) & (src != dst))
        if len(bad):
            raise UserError(self.broken(int(leaf[bad[0]]), int(dst[bad[0]])).text)

    def arrives(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> NDArray[np.bool_]:
        """[pairs] whether a packet from end port ``src`` arrives at ``dst``; both must be on a switch."""
        attached = (self.fabric.host_switch[src] >= 0) & (self.fabric.host_switch[dst] >= 0)
        leaf = np.where(attached, self.fabric.edge_of[src], 0)
        return np.asarray(attached & ((src == dst) | self.reachable()[leaf, dst]))

    def reachable(self) -> NDArray[np.bool_]:
        """[leaves, H] whether a packet from a leaf switch arrives at a host."""
        arrives: NDArray[np.bool_] = self._walked[1] == 0
        return arrives

    def ends(self) -> tuple[NDArray[np.uint8], Ints]:
        """[leaves, H]: 0, or 1 + the position in FAULTS where a route does not arrive; the switch where it ends."""
        return self._walked[1], self._walked[2]

    def broken(self, leaf: int, host: int) -> BrokenRoute:
        """Describes a route that does not arrive."""
        fabric, code = self.fabric, int(self._walked[1][leaf, host])
        switch = int(self._walked[2][leaf, host])
        port = int(self.tables.ports[switch, host])
        fault = FAULTS[code - 1]
        lid = int(fabric.host_lids[host])
        where = f"{self.tables.place(switch, host)}: switch {fabric.switch_names[switch]}"
        target = f"LID {lid} ({fabric.host_names[host]})" if lid else f"host {fabric.host_names[host]}"
        text = {
            "black hole": f"{where} has no entry for {target}",
            "no cable": f"{where} forwards {target} to port {port}, where no cable is",
            "wrong host": f"{where} forwards {target} to port {port}, which leads to another host",
            "loop": f"{where} forwards {target} to port {port}, in a loop",
        }[fault]
        if fabric.host_switch[host] < 0:
            text = f"{fabric.source}: host {fabric.host_names[host]} is attached to no switch"
        return BrokenRoute(fault, leaf, host, switch, port, text)

    @cached_property
    def _inner(self) -> Ints:
        """[leaves, H, hops] the links of ``_walked`` without the last one, which leads to the host."""
        links = self._walked[0]
        inner = np.where(self.fabric.between_switches[links] & (links >= 0), links, PAD)
        hops = int((inner >= 0).any(axis=(0, 1)).sum())
        return np.ascontiguousarray(inner[:, :, : max(hops, 1)])

    @cached_property
    def _walked(self) -> tuple[Ints, NDArray[np.uint8], Ints]:
        """[leaves, H, hops] links; [leaves, H] 0 or 1 + the position in FAULTS; the switch where a walk failed."""
        fabric, ports = self.fabric, self.tables.ports
        leaves, hosts = len(fabric.edge_switches), fabric.hosts
        _refuse_beyond_memory(fabric)
        target = np.tile(np.arange(hosts, dtype=np.int32), leaves)
        position = np.repeat(fabric.edge_switches, hosts).astype(np.int32)
        code = np.zeros(leaves * hosts, np.uint8)
        code[fabric.host_switch[target] < 0] = 1
        stopped = position.copy()
        active = np.flatnonzero(code == 0)
        columns: list[Ints] = []
        next_link = fabric.next_link
        while len(active) and len(columns) < min(fabric.switches + 1, MAX_SWITCHES):
            column = np.full(leaves * hosts, PAD, np.int32)
            switch, host = position[active], target[active]
            port = ports[switch, host].astype(np.int32)
            known = (port != NO_ENTRY) & (port < next_link.shape[1])
            link = np.where(known, next_link[switch, np.where(known, port, 0)], PAD)
            next_node = np.where(link >= 0, fabric.link_to[link], -1)
            fault = np.select(
                [
                    port == NO_ENTRY,
                    link < 0,
                    (next_node >= fabric.switches) & (next_node != host + fabric.switches),
                ],
                [1, 2, 3],
                0,
            )
            code[active], stopped[active] = fault, switch
            column[active] = np.where(fault == 0, link, PAD)
            columns.append(column)
            moving = (fault == 0) & (next_node < fabric.switches)
            active, next_node = active[moving], next_node[moving]
            position[active] = next_node
        code[active] = 1 + FAULTS.index("loop")
        stopped[active] = position[active]
        links = np.stack(columns, axis=1) if columns else np.full((leaves * hosts, 1), PAD, np.int32)
        shape = (leaves, hosts)
        return links.reshape(*shape, -1), code.reshape(shape), stopped.reshape(shape)
