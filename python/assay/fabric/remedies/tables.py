"""Forwarding tables that avoid cables, spread the destinations evenly, and have no credit loop.

Routes go up and then down on shortest paths, so there is no credit loop. Entries of the given tables stay if they still
lead to their destination; the others use the port whose path has the least load on its fullest link. Then destinations
are moved off links with more than the least possible load, as long as that helps. The load of a link is its number of
flows in an all-to-all exchange of all hosts.

``lower_bound`` is the least load of the fullest link with any routing along these paths, even if each flow is split (a
linear programme). ``entry_bound`` is the same if all hosts of a switch share an entry for a destination, as in an
InfiniBand switch. With several LIDs for each host (an LMC above 0) there is a table for each LID, and hosts of a switch
that send to different LIDs use different paths: ``path_of`` says which LID a host sends to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from assay.errors import UserError
from assay.fabric.tables import FAR, NO_ENTRY, ForwardingTables, up_down_hops
from assay.fabric.topology import Fabric, Ints
from assay.records.padding import did_you_mean

Floats = NDArray[np.float64]

SWEEPS = 40  # over all destinations, at most
MAX_VARIABLES = 40_000  # of the linear programme; more take minutes


def without_cables(fabric: Fabric, links: Iterable[int]) -> Fabric:
    """The fabric without the cables of ``links``, both directions."""
    removed = np.array(sorted(links), np.int32)
    keep = np.ones(fabric.links, np.bool_)
    keep[removed] = False
    keep[fabric.reverse[removed]] = False
    lines = fabric.link_lines[keep] if len(fabric.link_lines) else fabric.link_lines
    return replace(
        fabric,
        link_from=fabric.link_from[keep],
        link_from_port=fabric.link_from_port[keep],
        link_to=fabric.link_to[keep],
        link_to_port=fabric.link_to_port[keep],
        link_width=fabric.link_width[keep],
        link_speed=[speed for speed, is_kept in zip(fabric.link_speed, keep, strict=True) if is_kept],
        link_lines=lines,
    )


def find_cable(fabric: Fabric, text: str) -> int:
    """The link that leaves switch and port of "leaf0:19"; a switch has its name or its description. Raises
    UserError."""
    name, colon, number = text.rpartition(":")
    if not colon or not (number.isascii() and number.isdigit()):
        raise UserError(f"'{text}' is not a switch and a port", "write --avoid leaf0:19")
    called = fabric.switch_names if name in fabric.switch_names else fabric.switch_texts
    if called.count(name) != 1:
        problem = "several switches have" if name in called else "no switch has"
        fix = did_you_mean([name], fabric.switch_names, "write its name or its description")
        raise UserError(f"{fabric.source}: {problem} the name '{name}'", fix)
    table, port = fabric.next_link, int(number)
    link = int(table[called.index(name), port]) if port < table.shape[1] else -1
    if link < 0:
        raise UserError(f"{fabric.source}: no cable is at port {port} of {name}")
    if not fabric.between_switches[link]:
        raise UserError(f"{text} is the only cable of a host", "name a cable between switches")
    return link


@dataclass(frozen=True)
class Repair:
    """Tables, one for each LID of a host, and the flows of their fullest link. ``changed``: entries that differ from
    the given tables."""

    paths: list[ForwardingTables]
    heaviest: int
    changed: int

    @property
    def tables(self) -> ForwardingTables:
        """The tables of the first LID; without an LMC there are no others."""
        return self.paths[0]


def path_of(fabric: Fabric, paths: int) -> Ints:
    """[H] which LID of its destinations a host sends to, counted from 0: hosts of a switch use them in turn."""
    order = np.argsort(fabric.host_switch, kind="stable")
    first = np.searchsorted(fabric.host_switch[order], fabric.host_switch[order], side="left")
    turn = np.empty(fabric.hosts, np.int32)
    turn[order] = (np.arange(fabric.hosts) - first) % paths
    return turn


def repair(fabric: Fabric, given_tables: ForwardingTables | None, paths: int = 1) -> Repair:
    """Tables for ``fabric``, which has no avoided cables. ``paths``: LIDs of a host. Raises UserError if hosts are cut
    off."""
    router = _Router(fabric, paths)
    ports = router.initial_ports(given_tables)
    target = entry_bound(fabric) if paths == 1 else split_bound(fabric)
    best, best_ports = router.heaviest(), ports.copy()
    for _ in range(SWEEPS):
        if best <= target:
            break
        if not router.relieve(ports, target):
            break
        if (load := router.heaviest()) < best:
            best, best_ports = load, ports.copy()
    changed = int((best_ports != given_tables.ports).sum()) if given_tables is not None else best_ports.size
    return Repair([ForwardingTables(table, "repaired") for table in best_ports], best, changed)


class _Router:
    """Chooses ports, and keeps the load of each link. ``load`` [L]: flows of all hosts to all other hosts."""

    def __init__(self, fabric: Fabric, paths: int) -> None:
        self.fabric = fabric
        self.hops, self.distance = up_down_hops(fabric)
        path = path_of(fabric, paths)
        self.senders = [
            np.bincount(
                fabric.host_switch[fabric.is_host & (fabric.host_switch >= 0) & (path == number)],
                minlength=fabric.switches,
            ).astype(np.int64)
            for number in range(paths)
        ]
        self.no_senders = np.zeros(fabric.switches, np.int64)
        self.load = np.zeros(fabric.links, np.int64)
        self.leaves = [
            (leaf, hosts, self.hops.candidates(self.distance, leaf), self._levels(leaf))
            for leaf, hosts in self.hops.hosts_of_leaves()
        ]
        _require_connected(fabric, self.distance.total)

    def senders_to(self, host: int, path: int) -> NDArray[np.int64]:
        """[S] flows that begin at each switch; none lead to aggregation nodes and routers."""
        return self.senders[path] if self.fabric.is_host[host] else self.no_senders

    def _levels(self, leaf: int) -> list[Ints]:
        """The switches at distance 1, 2, ... from a leaf switch."""
        total = self.distance.total[:, leaf]
        reached = total[total < FAR]
        return [np.flatnonzero(total == hops).astype(np.int32) for hops in range(1, int(reached.max()) + 1)]

    def initial_ports(self, given_tables: ForwardingTables | None) -> NDArray[np.uint16]:
        """[paths, S, H] ports. Keeps the given entries that still lead to their destination, and counts their loads
        before the other entries are chosen."""
        entries = self.hops.empty()
        rows = np.arange(self.fabric.switches)[:, None]
        for _, hosts, candidates, _ in self.leaves if given_tables is not None else []:
            assert given_tables is not None
            entry = given_tables.ports[:, hosts].astype(np.int64)
            known = entry < candidates.shape[1]
            valid = known & candidates[rows, np.where(known, entry, 0)]
            entries[:, hosts] = np.where(valid, entry, NO_ENTRY)
        ports = np.stack([entries] * len(self.senders))
        trees = [
            (candidates, levels, _Tree(self, table[:, host], levels, self.senders_to(host, number)))
            for _, hosts, candidates, levels in self.leaves
            for host in hosts
            for number, table in enumerate(ports)
        ]
        for candidates, levels, tree in trees:
            for switch in np.concatenate(levels) if levels else []:
                if tree.column[switch] == NO_ENTRY:
                    tree.column[switch] = tree.best_port(int(switch), candidates)[0]
                    tree.add_load(int(switch), 1)
        return np.stack([self.hops.with_last_hops(table, "").ports for table in ports])

    def relieve(self, ports: NDArray[np.uint16], target: int) -> bool:
        """Moves destinations off links with more than ``target`` flows, if another path is less full. Returns whether
        any was moved."""
        moved = False
        for leaf, hosts, candidates, levels in self.leaves:
            farthest_first = np.concatenate(levels[::-1]) if levels else np.zeros(0, np.int32)
            for host, number in product(hosts, range(len(ports))):
                if not self.fabric.is_host[host]:
                    continue
                column = ports[number, :, host]
                crowded = self._crowded(column, levels, target)
                crowded[self.fabric.edge_switches[leaf]] = False
                if not crowded.any():
                    continue
                tree = _Tree(self, column, levels, self.senders_to(host, number), is_counted=True)
                for switch in farthest_first[crowded[farthest_first]]:
                    moved |= tree.relieve(int(switch), candidates, target)
        return moved

    def _crowded(self, column: NDArray[np.uint16], levels: list[Ints], target: int) -> NDArray[np.bool_]:
        """[S] whether a switch's path crosses a link with more than ``target`` flows."""
        crowded = np.zeros(self.fabric.switches, np.bool_)
        for level in levels:
            port = column[level]
            crowded[level] = self.load[self.fabric.next_link[level, port]] > target
            crowded[level] |= crowded[self.hops.neighbour[level, port]]
        return crowded

    def heaviest(self) -> int:
        """The flows on the fullest link."""
        return int(self.load.max(initial=0))


class _Tree:
    """The paths to a destination. ``column`` [S]: the switches' ports, a view of the tables; ``flows`` [S]: flows that
    pass a switch. ``is_counted``: whether the router's loads include these paths already."""

    def __init__(
        self,
        router: _Router,
        column: NDArray[np.uint16],
        levels: list[Ints],
        senders: NDArray[np.int64],
        is_counted: bool = False,
    ) -> None:
        self.router = router
        self.column = column
        self.next_link, self.neighbour = router.fabric.next_link, router.hops.neighbour
        self.flows = senders.copy()
        for level in levels[::-1]:
            routed = level[column[level] != NO_ENTRY]
            port = column[routed]
            if not is_counted:
                np.add.at(router.load, self.next_link[routed, port], self.flows[routed])
            np.add.at(self.flows, self.neighbour[routed, port], self.flows[routed])

    def path(self, switch: int) -> Iterator[tuple[int, int]]:
        """Yields each link of the path from a switch, with the switch that it leads to."""
        while (port := int(self.column[switch])) != NO_ENTRY and self.neighbour[switch, port] >= 0:
            link, switch = int(self.next_link[switch, port]), int(self.neighbour[switch, port])
            yield link, switch

    def add_load(self, switch: int, sign: int) -> None:
        """Adds the flows that pass ``switch`` to the links of its path (``sign`` 1), or subtracts them (-1)."""
        flows = sign * int(self.flows[switch])
        for link, following in self.path(switch):
            self.router.load[link] += flows
            self.flows[following] += flows

    def best_port(self, switch: int, candidates: NDArray[np.bool_]) -> tuple[int, tuple[int, int]]:
        """Returns the port whose path has the least load on its fullest link, among equals the least sum of loads; and
        both loads."""
        paths = []
        for port in np.flatnonzero(candidates[switch]):
            loads = [int(self.router.load[self.next_link[switch, port]])]
            loads += [int(self.router.load[link]) for link, _ in self.path(int(self.neighbour[switch, port]))]
            paths.append(((max(loads), sum(loads)), int(port)))
        least, chosen = min(paths)
        return chosen, least

    def relieve(self, switch: int, candidates: NDArray[np.bool_], target: int) -> bool:
        """Moves the flows that pass ``switch`` to its best port if its path has a link with more than ``target`` flows
        and the best path's fullest link is less full. Returns whether they were moved."""
        before = [int(self.router.load[link]) for link, _ in self.path(switch)]
        if max(before, default=0) <= target:
            return False
        flows = int(self.flows[switch])
        self.add_load(switch, -1)
        port, (fullest, _) = self.best_port(switch, candidates)
        has_improved = fullest + flows < max(before)
        if has_improved:
            self.column[switch] = port
        self.add_load(switch, 1)
        return has_improved


def _require_connected(fabric: Fabric, total: Ints) -> None:
    detached = np.flatnonzero(fabric.host_switch < 0)
    if len(detached):
        raise UserError(f"host {fabric.host_names[detached[0]]} is attached to no switch")
    for leaf in range(len(fabric.edge_switches)):
        cut_off = np.flatnonzero((total[fabric.edge_switches, leaf] >= FAR) & fabric.must_reach[:, leaf])
        if len(cut_off):
            source, target_leaf = (
                fabric.switch_names[fabric.edge_switches[k]] for k in (int(cut_off[0]), leaf)
            )
            raise UserError(f"no way leads from {source} to {target_leaf}", "avoid fewer cables")


def entry_bound(fabric: Fabric) -> int:
    """Lower bound of the fullest link's flows with one entry for each destination in each switch: by the entries of a
    leaf switch for remote hosts, divided among its up cables, and by the flows to its hosts, divided among the same
    cables down."""
    counts = fabric.hosts_on[fabric.edge_switches]
    links = np.flatnonzero(fabric.between_switches)
    cables = np.bincount(fabric.link_from[links], minlength=fabric.switches)[fabric.edge_switches]
    remote = counts.sum() - counts
    crossing = (remote > 0) & (cables > 0)
    if not crossing.any():
        return 0
    up = counts[crossing] * -(-remote[crossing] // cables[crossing])
    down = -(-counts[crossing] * remote[crossing] // cables[crossing])
    return int(max(up.max(), down.max()))


def split_bound(fabric: Fabric) -> int:
    """Lower bound of the fullest link's flows if the flows of each leaf switch to remote hosts are spread evenly over
    its cables."""
    counts = fabric.hosts_on[fabric.edge_switches]
    links = np.flatnonzero(fabric.between_switches)
    cables = np.bincount(fabric.link_from[links], minlength=fabric.switches)[fabric.edge_switches]
    flows = counts * (counts.sum() - counts)
    return int((-(-flows[cables > 0] // cables[cables > 0])).max(initial=0))


def lower_bound(fabric: Fabric) -> float | None:
    """Flows of the fullest link if every flow is split optimally over all shortest paths up and down; None if the
    linear programme is too large. A variable is the flow to a leaf switch over a link; the last one is the largest
    load."""
    from scipy.optimize import linprog  # slow to import, rarely needed
    from scipy.sparse import coo_array

    hops, distance = up_down_hops(fabric)
    senders = fabric.hosts_on.astype(np.float64)
    columns: list[Ints] = []
    leaf_of: list[Ints] = []
    for number, _ in hops.hosts_of_leaves():
        switch, port = np.nonzero(hops.candidates(distance, number))
        crossed = fabric.next_link[switch, port]
        columns.append(crossed)
        leaf_of.append(np.full(len(crossed), number, np.int32))
    link, leaf = np.concatenate(columns), np.concatenate(leaf_of)
    count = len(link)
    if count > MAX_VARIABLES:
        return None
    if count == 0:
        return 0.0
    variable = np.arange(count)
    leave, arrive = (
        leaf * fabric.switches + fabric.link_from[link],
        leaf * fabric.switches + fabric.link_to[link],
    )
    size = len(fabric.edge_switches) * fabric.switches
    ones = np.ones(count)
    balance = coo_array(
        (np.concatenate([ones, -ones]), (np.concatenate([leave, arrive]), np.tile(variable, 2))),
        shape=(size, count + 1),
    ).tocsr()
    sent = np.outer(senders[fabric.edge_switches], senders).ravel()
    inner = np.ones(size, np.bool_)
    inner[np.arange(len(fabric.edge_switches)) * fabric.switches + fabric.edge_switches] = False  # sinks
    used, row = np.unique(link, return_inverse=True)
    loads = coo_array(
        (
            np.concatenate([ones, -np.ones(len(used))]),
            (
                np.concatenate([row, np.arange(len(used))]),
                np.concatenate([variable, np.full(len(used), count)]),
            ),
        ),
        shape=(len(used), count + 1),
    ).tocsr()
    cost = np.zeros(count + 1)
    cost[-1] = 1.0
    result = linprog(
        cost, A_ub=loads, b_ub=np.zeros(len(used)), A_eq=balance[inner], b_eq=sent[inner], method="highs"
    )
    if result.status != 0:
        raise UserError(f"the linear programme has no solution: {result.message}")
    return float(result.fun)
