"""Forwarding tables: the output port of each switch for each host.

They come from files (``assay.fabric.read``) or are computed:

    d-mod-k    the up port of each level is a digit of the destination's number; packets to a destination come down by
               the cable that packets from it take up (Zahavi, JPDC 2012). Shifts on complete fat trees have no
               contention
    min-hop    a shortest path; among several the port with the fewest destinations so far
    up/down    min-hop among paths that go up first and then only down; free of credit loops
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assay.errors import UserError
from assay.fabric.levels import UNREACHED, connected_parts
from assay.fabric.topology import Fabric, Ints

NO_ENTRY = 0xFFFF
FAR = np.int32(1 << 20)  # hops; more than any path

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ForwardingTables:
    """``ports[s, h]``: the port by which switch s forwards to host h; NO_ENTRY where it has none."""

    ports: NDArray[np.uint16]
    source: str = ""  # the file, or the engine
    # [S, H] lines of the file, or empty
    lines: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    is_computed: bool = False  # by an engine here, so that they say nothing about a fabric's own tables

    def place(self, switch: int, host: int) -> str:
        """The source of an entry: its line in the file, as "lfts.txt:123", or the engine's name."""
        if not self.lines.size or not self.lines[switch, host]:
            return self.source
        return f"{self.source}:{self.lines[switch, host]}"


def compute(fabric: Fabric, engine: str) -> ForwardingTables:
    """Tables of one of ``ENGINES``. Raises UserError for another name."""
    if engine not in ENGINES:
        raise UserError(f"no routing engine '{engine}'", f"one of {', '.join(ENGINES)}")
    return ENGINES[engine](fabric)


def d_mod_k(fabric: Fabric) -> ForwardingTables:
    """The tables of d-mod-k, by the numbers of the hosts among the hosts. Raises UserError where the fabric is no
    complete tree, for which alone d-mod-k is defined."""
    topology = NextHops(fabric)
    distance = topology.up_down_distances()
    _require_tree(topology, distance)
    ups = topology.up_ports()
    fanout = _parents_by_level(topology.levels, ups)
    below = np.concatenate([[1], np.cumprod(fanout)]).astype(np.int64)  # positions that share an up port
    divisor = below[np.minimum(topology.levels, len(below) - 1)]
    ports = topology.empty()
    number_up = (ups > 0).sum(1)
    numbers = np.maximum(np.cumsum(fabric.is_host) - 1, 0)
    for leaf, hosts in topology.hosts_of_leaves():
        candidates = topology.candidates(distance, leaf)
        order, count = _sorted_ports(candidates)
        for host in hosts:
            quotient = numbers[host] // divisor
            choice = order[np.arange(fabric.switches), quotient % np.maximum(count, 1)]
            preferred = ups[np.arange(fabric.switches), quotient % np.maximum(number_up, 1)]
            shortest = topology.reversed_ports(preferred) & candidates & topology.goes_down(distance, leaf)
            chosen = np.where(shortest.any(1), shortest.argmax(1), choice)
            ports[:, host] = np.where(count > 0, chosen, NO_ENTRY)
    return topology.with_last_hops(ports, "d-mod-k")


def _require_tree(topology: NextHops, distance: Distances) -> None:
    """Raises UserError with the reason why a fabric is no complete tree. A described tree may lack cables: its
    description says which."""
    if reason := _why_no_tree(topology, distance):
        raise UserError(
            f"{topology.fabric.source}: no complete tree, which d-mod-k needs: {reason}",
            "take the tables of the fabric (--tables), or --routing up/down",
        )


def _why_no_tree(topology: NextHops, distance: Distances) -> str:
    """Empty for a complete tree."""
    fabric, levels, names = topology.fabric, topology.levels, topology.fabric.switch_names
    high = np.flatnonzero(fabric.is_host & (fabric.host_switch >= 0) & (levels[fabric.host_switch] > 0))
    if len(high):
        host = int(high[0])
        return f"{fabric.host_names[host]} is on {names[fabric.host_switch[host]]}, above the leaf switches"
    ends = fabric.link_from[topology.links], fabric.link_to[topology.links]
    step = np.abs(levels[ends[0]].astype(np.int64) - levels[ends[1]])
    for a, b in zip(ends[0][step != 1].tolist(), ends[1][step != 1].tolist(), strict=True):
        if a == b:
            return f"{names[a]} has a cable to itself"
        return f"{names[a]} and {names[b]} are neighbours and not one level apart"
    lacking = np.argwhere(_lacking(topology, distance))
    if len(lacking):
        a, b = (names[fabric.edge_switches[k]] for k in lacking[0])
        return f"no way up and then down leads from {a} to {b}"
    return _uneven_level(topology) if len(fabric.node_lines) else ""


def _uneven_level(topology: NextHops) -> str:
    """Names a switch with fewer cables up than others of its level; empty where there is none."""
    count, levels = (topology.up_ports() > 0).sum(1), topology.levels
    bottom = np.isin(np.arange(len(levels)), topology.fabric.leaves)
    for level in np.unique(levels[levels != UNREACHED]):
        switches = np.flatnonzero((levels == level) & (bottom | (level > 0)))
        most = int(count[switches].max(initial=0))
        for switch in switches[count[switches] < most]:
            name = topology.fabric.switch_names[switch]
            return f"{name} has {count[switch]} cables up, and others of its level have {most}"
    return ""


def min_hop(fabric: Fabric) -> ForwardingTables:
    topology = NextHops(fabric)
    return topology.with_last_hops(_least_loaded(topology, topology.distances()), "min-hop")


def up_down(fabric: Fabric) -> ForwardingTables:
    topology, distances = up_down_hops(fabric)
    return topology.with_last_hops(_least_loaded(topology, distances), "up/down")


def up_down_hops(fabric: Fabric) -> tuple[NextHops, Distances]:
    """The next hops and distances of up/down routing. "Up" is away from the hosts.

    Hosts on spines do not reach each other so: their way goes down and up again. One switch that all of them are cabled
    to then counts as the top, so that they turn there. If that does not connect all hosts, "up" is towards one switch
    in the middle.
    """
    topology = NextHops(fabric)
    distances = topology.up_down_distances()
    for raised in (_with_a_turn, _towards_the_middle):
        lacking = _lacking(topology, distances)
        if not lacking.any():
            break
        topology = NextHops(fabric, raised(topology, lacking))
        distances = topology.up_down_distances()
    return topology, distances


def _lacking(topology: NextHops, distances: Distances) -> Bools:
    """[E, E] the pairs of edge switches with traffic that cables join and allowed paths do not."""
    fabric = topology.fabric
    joined = topology.distances().total[fabric.edge_switches] < FAR
    return np.asarray(joined & fabric.must_reach & (distances.total[fabric.edge_switches] >= FAR))


def _with_a_turn(topology: NextHops, lacking: Bools) -> Ints:
    """[S] levels in which one common neighbour of the switches that do not reach each other is the top."""
    fabric = topology.fabric
    apart = fabric.edge_switches[lacking.any(axis=0) | lacking.any(axis=1)]
    common = set.intersection(*(fabric.neighbours[switch] for switch in apart))
    levels = topology.levels.copy()
    if common:
        known = levels[levels != UNREACHED]
        levels[min(common)] = known.max(initial=0) + 1
    return levels


def _towards_the_middle(topology: NextHops, lacking: Bools) -> Ints:
    """[S] levels, all different, which rise towards the root of each connected part: the switch with the least distance
    to its farthest edge switch. Every switch then has a path up to the root."""
    total = topology.distances().total
    farthest = np.where(total < FAR, total, 0).max(axis=1, initial=0)
    away = np.zeros(len(total), np.int32)
    for part in connected_parts(topology.fabric.neighbours):
        root = min(part, key=lambda switch: (farthest[switch], switch))
        away[part] = topology.distances_to(root)[part]
    rank = np.empty(len(away), np.int32)
    rank[np.lexsort((np.arange(len(away)), -away))] = np.arange(len(away))
    return rank


ENGINES: dict[str, Callable[[Fabric], ForwardingTables]] = {
    "d-mod-k": d_mod_k,
    "min-hop": min_hop,
    "up/down": up_down,
}


@dataclass(frozen=True)
class Distances:
    """[S, E]: hops to each leaf switch on allowed paths, and on paths that only go down."""

    total: Ints
    down: Ints | None = None  # None: every shortest path is allowed


class NextHops:
    """The switches' neighbours as [S, ports + 1] arrays, -1 where the other end is not a switch."""

    def __init__(self, fabric: Fabric, levels: Ints | None = None) -> None:
        self.fabric = fabric
        self.levels = fabric.levels if levels is None else levels  # a link to a higher one goes up
        link = fabric.next_link
        is_switch = (link >= 0) & (fabric.link_to[link] < fabric.switches)
        self.neighbour = np.where(is_switch, fabric.link_to[link], -1)
        self.neighbour_port = np.where(is_switch, fabric.link_to_port[link], -1)
        self.links = np.flatnonzero(fabric.between_switches)

    def empty(self) -> NDArray[np.uint16]:
        return np.full((self.fabric.switches, self.fabric.hosts), NO_ENTRY, np.uint16)

    def hosts_of_leaves(self) -> list[tuple[int, Ints]]:
        return [
            (leaf, np.flatnonzero(self.fabric.host_switch == switch).astype(np.int32))
            for leaf, switch in enumerate(self.fabric.edge_switches)
        ]

    def up_ports(self) -> Ints:
        """[S, ports + 1] the ports to switches of the next higher level, ascending, then zeros."""
        is_up = (self.neighbour >= 0) & (self.levels[self.neighbour] > self.levels[:, None])
        order, count = _sorted_ports(is_up)
        return np.where(np.arange(order.shape[1]) < count[:, None], order, 0).astype(np.int32)

    def distances(self) -> Distances:
        source, target = self.fabric.link_from[self.links], self.fabric.link_to[self.links]
        return Distances(self._shortest_distances(self._initial_distances(), source, target))

    def distances_to(self, switch: int) -> Ints:
        """[S] hops to one switch; FAR where there is no path."""
        distance = np.full((self.fabric.switches, 1), FAR, np.int32)
        distance[switch] = 0
        source, target = self.fabric.link_from[self.links], self.fabric.link_to[self.links]
        return self._shortest_distances(distance, source, target)[:, 0]

    def up_down_distances(self) -> Distances:
        """A switch with paths down to a leaf switch uses the shortest of them; any other switch goes up to the nearest
        switch that has one."""
        source, target = self.fabric.link_from[self.links], self.fabric.link_to[self.links]
        descends = self.levels[source] > self.levels[target]
        climbs = self.levels[source] < self.levels[target]
        down = self._shortest_distances(self._initial_distances(), source[descends], target[descends])
        fixed = down < FAR
        total = down
        while True:
            above = self._nearest(total, source[climbs], target[climbs])
            following = np.where(fixed, down, np.minimum(total, above + 1))
            if np.array_equal(following, total):
                return Distances(total, down)
            total = following

    def _initial_distances(self) -> Ints:
        distance = np.full((self.fabric.switches, len(self.fabric.edge_switches)), FAR, np.int32)
        distance[self.fabric.edge_switches, np.arange(len(self.fabric.edge_switches))] = 0
        return distance

    def _shortest_distances(self, distance: Ints, source: Ints, target: Ints) -> Ints:
        """Shortest distances over the links from source to target (Bellman and Ford, all leaves at once)."""
        while True:
            following = np.minimum(distance, self._nearest(distance, source, target) + 1)
            if np.array_equal(following, distance):
                return distance
            distance = following

    def _nearest(self, distance: Ints, source: Ints, target: Ints) -> Ints:
        """[S, E] the least distance among each switch's targets."""
        nearest = np.full_like(distance, FAR)
        order = np.argsort(source, kind="stable")
        sources, first = np.unique(source[order], return_index=True)
        if len(sources):
            nearest[sources] = np.minimum.reduceat(distance[target[order]], first, axis=0)
        return np.minimum(nearest, FAR - 1)

    def candidates(self, distance: Distances, leaf: int) -> Bools:
        """[S, ports + 1] the ports on allowed shortest paths to a leaf switch."""
        total = distance.total[:, leaf]
        closer = (self.neighbour >= 0) & (total[self.neighbour] == total[:, None] - 1)
        closer &= (total < FAR)[:, None]
        if distance.down is None:
            return np.asarray(closer)
        down = distance.down[:, leaf]
        descends = self.levels[self.neighbour] < self.levels[:, None]
        closer_down = (down[self.neighbour] == down[:, None] - 1) & descends
        climbs = self.levels[self.neighbour] > self.levels[:, None]
        return np.asarray(closer & np.where((down < FAR)[:, None], closer_down, climbs))

    def goes_down(self, distance: Distances, leaf: int) -> Bools:
        """[S, 1] switches that reach a leaf switch by going down."""
        assert distance.down is not None
        return np.asarray(distance.down[:, leaf] < FAR)[:, None]

    def reversed_ports(self, preferred: Ints) -> Bools:
        """[S, ports + 1] the far ends of the cables at port ``preferred[s]`` of each switch; 0: no port."""
        mask = np.zeros_like(self.neighbour, np.bool_)
        switches = np.flatnonzero(preferred > 0)
        mask[
            self.neighbour[switches, preferred[switches]], self.neighbour_port[switches, preferred[switches]]
        ] = True
        return mask

    def with_last_hops(self, ports: NDArray[np.uint16], source: str) -> ForwardingTables:
        """The tables, completed by the last hops, from the leaf switches to their hosts."""
        attached = np.flatnonzero(self.fabric.host_switch >= 0)
        ports[self.fabric.host_switch[attached], attached] = self.fabric.host_port[attached]
        return ForwardingTables(ports, source, is_computed=True)


def _parents_by_level(levels: Ints, ups: Ints) -> list[int]:
    """The number of up ports at each level: the most frequent among its switches."""
    counts = (ups > 0).sum(1)
    known = levels[levels != UNREACHED]
    depth = int(known.max(initial=0))
    return [int(np.bincount(counts[levels == level]).argmax()) or 1 for level in range(depth)]


def _sorted_ports(mask: Bools) -> tuple[Ints, Ints]:
    """The columns of each row, first those that are True, each ascending; and the number of True columns."""
    return np.argsort(~mask, axis=1, kind="stable").astype(np.int32), mask.sum(1).astype(np.int32)


def _least_loaded(topology: NextHops, distance: Distances) -> NDArray[np.uint16]:
    ports = topology.empty()
    rows = np.arange(topology.fabric.switches)
    load = np.zeros(topology.neighbour.shape, np.int64)
    for leaf, hosts in topology.hosts_of_leaves():
        candidates = topology.candidates(distance, leaf)
        routed = candidates.any(1)
        for host in hosts:
            chosen = np.where(candidates, load, np.iinfo(np.int64).max).argmin(1)
            load[rows[routed], chosen[routed]] += 1
            ports[:, host] = np.where(routed, chosen, NO_ENTRY)
    return ports
