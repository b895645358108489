"""A fabric: hosts, switches and directed links, as numpy arrays.

Nodes are numbered: switches 0 .. S-1, then end ports S .. S+H-1. An end port is one port of an adapter, of a router or
of an aggregation node. A host is a machine: it has one adapter or several (rails), and these have ports (``ports_of``).
Arrays of end ports are called ``host_...``. A cable is two directed links, one for each direction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from assay.errors import UserError
from assay.fabric.levels import connected_parts, find_leaves, find_levels
from assay.fabric.names import is_extender
from assay.records.padding import did_you_mean

Ints = NDArray[np.int32]
MAX_SHOWN = 8  # ports in a message
LAST_UNICAST_LID = 0xBFFF  # the number of ports that a subnet can address

# Kinds of node that have end ports. An aggregation node is the adapter within a switch that computes collective
# operations (SHARP). It and a router are ends of routes, and no hosts.
HOST, AGGREGATION_NODE, ROUTER = "host", "aggregation node", "router"
AGGREGATION = "Aggregation Node"  # in the description of such an adapter

# Signalling rate of one lane in bit/s, by the name that ibnetdiscover and ibdiagnet print (IBTA, volume 1; FDR10 is
# the vendor's), and of Omni-Path. The data rate is lower by the line code.
LANE_RATES = {
    "SDR": 2.5e9, "DDR": 5e9, "QDR": 10e9, "FDR10": 10.3125e9, "FDR": 14.0625e9, "EDR": 25.78125e9,
    "HDR": 53.125e9, "NDR": 106.25e9, "XDR": 212.5e9, "OPA12": 12.890625e9, "OPA25": 25.78125e9,
    "OPA100": 106.25e9,
}  # fmt: skip
# The same without the line code: 8b/10b up to QDR, then 64b/66b, from HDR on with forward error correction.
DATA_RATES = {
    "SDR": 2e9, "DDR": 4e9, "QDR": 8e9, "FDR10": 10e9, "FDR": 14.0625e9 * 64 / 66, "EDR": 25e9,
    "HDR": 50e9, "NDR": 100e9, "XDR": 200e9, "OPA12": 12.5e9, "OPA25": 25e9,
    "OPA100": 100e9,
}  # fmt: skip


@dataclass(frozen=True)
class Fabric:
    """S switches, H end ports, L directed links. All arrays of one kind have the same length and order."""

    switch_names: list[str]
    switch_guids: NDArray[np.uint64]  # [S]
    switch_lids: Ints  # [S], 0 where unknown
    switch_ports: Ints  # [S] ports of the switch, numbered from 1
    host_names: list[str]  # [H] of end ports; unique
    host_guids: NDArray[np.uint64]  # [H] GUIDs of ports
    host_lids: Ints  # [H], 0 where unknown
    link_from: Ints  # [L] node
    link_from_port: Ints  # [L]
    link_to: Ints  # [L] node
    link_to_port: Ints  # [L]
    link_width: Ints  # [L] lanes, 0 where unknown
    link_speed: list[str]  # [L] "EDR", empty where unknown
    source: str = ""  # the file, or the model
    # [L] bit/s that the port where a link begins supports, 0 where unknown; or empty
    link_max_rate: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    link_lines: Ints = field(default_factory=lambda: np.zeros(0, np.int32))  # [L] lines of the file, or empty
    node_lines: Ints = field(default_factory=lambda: np.zeros(0, np.int32))  # [S + H], or empty
    # [S + H] LMC of each node, which has 2**lmc LIDs; or empty
    node_lmc: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    machines: list[str] = field(
        default_factory=list
    )  # [H] hosts of end ports, empty for none; or empty: host_names
    switch_texts: list[str] = field(default_factory=list)  # [S] descriptions of switches; or empty
    host_texts: list[str] = field(default_factory=list)  # [H] descriptions of end ports; or empty
    host_kinds: list[str] = field(
        default_factory=list
    )  # [H] HOST, AGGREGATION_NODE or ROUTER; or empty: all hosts

    @property
    def switches(self) -> int:
        return len(self.switch_names)

    @property
    def hosts(self) -> int:
        return len(self.host_names)

    @property
    def links(self) -> int:
        return len(self.link_from)

    def node_name(self, node: int) -> str:
        return self.switch_names[node] if node < self.switches else self.host_names[node - self.switches]

    def link_name(self, link: int) -> str:
        """ "leaf2[19] -> spine0[3]": node and port of both ends."""
        ends = [
            f"{self.node_name(int(node[link]))}[{int(port[link])}]"
            for node, port in ((self.link_from, self.link_from_port), (self.link_to, self.link_to_port))
        ]
        return " -> ".join(ends)

    @cached_property
    def shared_descriptions(self) -> set[str]:
        """The descriptions that several switches have: what tells those apart is a number in their names."""
        return {text for text, count in Counter(self.switch_texts).items() if count > 1}

    def guids_of_numbered(self, nodes: Iterable[int]) -> list[str]:
        """ "leaf-2 is 0x0008f10500200002" for each of the nodes that is a switch whose description others have."""
        return [
            f"{self.switch_names[node]} is {int(self.switch_guids[node]):#018x}"
            for node in nodes
            if node < len(self.switch_texts) and self.switch_texts[node] in self.shared_descriptions
        ]

    @cached_property
    def next_link(self) -> Ints:
        """[S, ports + 1] the link that leaves a switch by a port, -1 where no cable is."""
        table = np.full((self.switches, int(self.switch_ports.max(initial=0)) + 1), -1, np.int32)
        leaving = np.flatnonzero(self.link_from < self.switches)
        table[self.link_from[leaving], self.link_from_port[leaving]] = leaving
        return table

    @cached_property
    def reverse(self) -> Ints:
        """[L] the link of the same cable in the other direction."""
        ends = {
            (int(n), int(p)): i
            for i, (n, p) in enumerate(zip(self.link_from, self.link_from_port, strict=True))
        }
        pairs = zip(self.link_to, self.link_to_port, strict=True)
        return np.array([ends[int(n), int(p)] for n, p in pairs], np.int32)

    @cached_property
    def uplink(self) -> Ints:
        """[H] the link from a host to its switch, -1 where it is on none."""
        table = np.full(self.hosts, -1, np.int32)
        leaving = np.flatnonzero(self.link_from >= self.switches)
        table[self.link_from[leaving] - self.switches] = leaving
        return table

    @cached_property
    def host_switch(self) -> Ints:
        """[H] the switch that a host is attached to, -1 where it is on none."""
        peer = np.where(self.uplink >= 0, self.link_to[self.uplink], -1)
        return np.where(peer < self.switches, peer, -1).astype(np.int32)  # hosts may be cabled back to back

    @cached_property
    def host_port(self) -> Ints:
        """[H] the port of that switch."""
        return np.where(self.host_switch >= 0, self.link_to_port[self.uplink], -1).astype(np.int32)

    @cached_property
    def is_host(self) -> NDArray[np.bool_]:
        """[H] whether an end port is one of a host, and no router's or aggregation node's."""
        return np.array([kind == HOST for kind in self.host_kinds or [HOST] * self.hosts], np.bool_)

    @cached_property
    def is_extender(self) -> NDArray[np.bool_]:
        """[S + H] whether a node is a long-haul extender. Only switches say so in their descriptions: a host may have
        any name."""
        texts = [*(self.switch_texts or self.switch_names), *[""] * self.hosts]
        guids = [*self.switch_guids.tolist(), *self.host_guids.tolist()]
        return np.array([is_extender(text, guid) for text, guid in zip(texts, guids, strict=True)], np.bool_)

    @cached_property
    def is_long_haul(self) -> NDArray[np.bool_]:
        """[L] whether a link is the line between two extenders."""
        return self.is_extender[self.link_from] & self.is_extender[self.link_to]

    @cached_property
    def is_aggregation(self) -> NDArray[np.bool_]:
        """[H] whether an end port is an aggregation node's. Its switch alone needs to reach it, and the switches of its
        tree, which is not part of the forwarding tables."""
        return np.array(
            [kind == AGGREGATION_NODE for kind in self.host_kinds or [HOST] * self.hosts], np.bool_
        )

    @cached_property
    def must_reach(self) -> NDArray[np.bool_]:
        """[E, E] the pairs of edge switches between which traffic flows: of hosts with hosts and routers."""
        ends = self.edge_of[(self.host_switch >= 0) & ~self.is_aggregation]
        has_ends = np.bincount(ends, minlength=len(self.edge_switches)) > 0
        has_hosts = self.hosts_on[self.edge_switches] > 0
        return np.asarray((has_hosts[:, None] & has_ends) | (has_ends[:, None] & has_hosts))

    @cached_property
    def edge_switches(self) -> Ints:
        """The switches with end ports of any kind, ascending. Routes begin and end there."""
        return np.unique(self.host_switch[self.host_switch >= 0]).astype(np.int32)

    @cached_property
    def edge_of(self) -> Ints:
        """[H] the position of a host's switch in ``edge_switches``."""
        return np.searchsorted(self.edge_switches, self.host_switch).astype(np.int32)

    @cached_property
    def hosts_on(self) -> NDArray[np.int64]:
        """[S] end ports of hosts on each switch; aggregation nodes and routers do not count."""
        return np.bincount(
            self.host_switch[self.is_host & (self.host_switch >= 0)], minlength=self.switches
        ).astype(np.int64)

    @cached_property
    def neighbours(self) -> list[set[int]]:
        """[S] the switches that each switch is cabled to, without itself."""
        near: list[set[int]] = [set() for _ in range(self.switches)]
        links = np.flatnonzero(self.between_switches & (self.link_from != self.link_to))
        for a, b in zip(self.link_from[links].tolist(), self.link_to[links].tolist(), strict=True):
            near[a].add(b)
        return near

    @cached_property
    def part_of(self) -> Ints:
        """[S] the number of the connected part of each switch."""
        part = np.zeros(self.switches, np.int32)
        for number, switches in enumerate(connected_parts(self.neighbours)):
            part[switches] = number
        return part

    @cached_property
    def leaves(self) -> Ints:
        """The leaf switches, ascending: those where hosts hang in bulk (``assay.fabric.levels``)."""
        return find_leaves(self.neighbours, self.hosts_on)

    @cached_property
    def between_switches(self) -> NDArray[np.bool_]:
        """[L] whether both ends of a link are switches."""
        return (self.link_from < self.switches) & (self.link_to < self.switches)

    @cached_property
    def levels(self) -> Ints:
        """[S] 0 for leaf switches, more above; UNREACHED where no path leads to a leaf switch."""
        return find_levels(self.neighbours, self.leaves)

    @cached_property
    def hosts_of_ports(self) -> list[str]:
        """[H] the host that an end port belongs to; empty where its description names none."""
        return self.machines or self.host_names

    @cached_property
    def ports_of(self) -> dict[str, list[int]]:
        """The end ports of each host, in the order of their names."""
        ports: dict[str, list[int]] = {}
        for number, (host, is_host) in enumerate(zip(self.hosts_of_ports, self.is_host, strict=True)):
            if host and is_host:
                ports.setdefault(host, []).append(number)
        return ports

    def count_text(self, ports: Iterable[int]) -> str:
        """ "2 hosts", or "2 hosts with 16 ports" where hosts have several of these end ports; and the ports whose
        descriptions name no host."""
        members = [self.hosts_of_ports[int(port)] for port in ports]
        hosts, named = set(members) - {""}, sum(map(bool, members))
        return (
            f"{len(hosts)} hosts"
            + (f" with {named} ports" if named != len(hosts) else "")
            + (f", {len(members) - named} ports of unknown hosts" if named != len(members) else "")
        )

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.host_names)}

    def find_ports(self, names: Iterable[str]) -> Ints:
        """The numbers of end ports by name: of a host all of its ports. Raises UserError for a name that is not in the
        fabric."""
        numbers: list[int] = []
        for name in names:
            if name in self._by_name:
                numbers.append(self._by_name[name])
            elif name in self.ports_of:
                numbers += self.ports_of[name]
            else:
                known = next(iter(self.ports_of), self.host_names[0])
                otherwise = f"name them as the topology does, such as {known}"
                raise UserError(
                    f"{self.source}: no host '{name}' in the fabric",
                    did_you_mean([name], [*self.ports_of, *self._by_name], otherwise),
                )
        return np.array(numbers, np.int32)

    def find_rails(self, name: str, rail: str = "") -> list[int]:
        """The end ports of a host, or the one of that name. ``rail``: only those of the adapters in this list, such as
        mlx5_0 or mlx5_0:1,mlx5_1:1. Raises UserError for a name that is not in the fabric, or a host with several ports
        of which none is in the list."""
        ports = [int(port) for port in self.find_ports([name])]
        if len(ports) == 1 or not rail:
            return ports
        chosen = [port for port in ports if any(self._is_on(port, adapter) for adapter in rail.split(","))]
        if not chosen:
            devices = [self.device_of(port) for port in ports]
            which = f"{len(devices)} ports in the fabric ({', '.join(devices[:MAX_SHOWN])})"
            raise UserError(
                f"{self.source}: host {name} has {which}, and 0 of them are {rail}",
                f"name the adapter that the hosts used: --rail {devices[0]}",
            )
        return chosen

    def device_of(self, port: int) -> str:
        """The adapter of an end port, of an adapter with several also the port: "mlx5_1", "mlx5_1:2". Empty for the
        only port of a host."""
        return self.host_names[port].removeprefix(self.hosts_of_ports[port]).strip()

    def _is_on(self, port: int, adapter: str) -> bool:
        """Whether ``port`` is of ``adapter``. Its number, as UCX writes it, is in the name only where the adapter has
        several."""
        device = self.device_of(port)
        if adapter in (device, device.partition(":")[0]):
            return True
        return adapter.endswith(":1") and adapter[:-2] == device
