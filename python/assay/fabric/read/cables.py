"""Collects switches, hosts and ends of cables as a file lists them, and makes a ``Fabric`` of them.

Every file that Assay reads lists a cable at both of its ends. A cable that is listed at one end only, a port with two
cables and a LID or GUID with two owners are refused: the file is damaged, or the fabric changed while it was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, NoReturn

import numpy as np

from assay.fabric.names import EndPort, name_ports, name_switches, natural_key
from assay.fabric.read.text import LineReader, clean
from assay.fabric.topology import (
    AGGREGATION,
    AGGREGATION_NODE,
    HOST,
    LANE_RATES,
    LAST_UNICAST_LID,
    ROUTER,
    Fabric,
)

MAX_PORTS = 254
WIDTHS = (1, 2, 4, 8, 12)  # lanes of a cable
OMNI_PATH, OMNI_PATH_WIDTHS = "OPA", (1, 2, 3, 4)  # 3 after a lane has failed
MAX_GUID = (1 << 64) - 1
PERMISSIVE_LID = 0xFFFF  # of a port to which no subnet manager has given one; others have 0 then


class Node(NamedTuple):
    """The key of a switch, or of one port of a channel adapter (``port``; 0 for a switch)."""

    guid: int
    port: int


def given_lid(lid: int) -> int:
    """A LID, 0 for none."""
    return 0 if lid == PERMISSIVE_LID else lid


def kind_of(description: str, is_router: bool) -> str:
    """The kind of a node with end ports. An adapter within a managed box ("MF0;gateway:MGA100-HS2/A1") leads to another
    network, as a router does."""
    if AGGREGATION in description:
        return AGGREGATION_NODE
    return ROUTER if is_router or re.match(r"MF[0-9]+;", description) else HOST


@dataclass
class _ListedNode:
    """A switch or host as a line of the file lists it."""

    name: str
    guid: int  # of the port, as in forwarding tables
    lid: int
    ports: int
    line: int
    lmc: int = 0
    kind: str = HOST


@dataclass(frozen=True)
class _CableEnd:
    peer: Node
    peer_port: int
    width: int
    speed: str
    line: int
    max_rate: float
    has_rate: bool  # in the file, also one that no cable has


@dataclass
class FabricBuilder:
    """Collects what a file lists; ``build`` checks it and makes the fabric. Errors name the file and the line."""

    text: LineReader
    switches: dict[int, _ListedNode] = field(default_factory=dict)
    hosts: dict[Node, _ListedNode] = field(default_factory=dict)
    ends: dict[tuple[Node, int], _CableEnd] = field(default_factory=dict)

    def add_switch(self, guid: int, name: str, ports: int, lid: int, line: int, lmc: int = 0) -> None:
        if guid in self.switches:
            self.text.refuse(line, f"switch {guid:#018x} is listed twice", "give one dump, not two")
        if not 1 <= ports <= MAX_PORTS:
            self.text.refuse(line, f"a switch of {ports} ports")
        self._check_guid(guid, line)
        self.switches[guid] = _ListedNode(clean(name), guid, given_lid(lid), ports, line, lmc)

    def add_host(
        self,
        node: Node,
        port_guid: int,
        name: str,
        lid: int,
        line: int,
        lmc: int = 0,
        is_router: bool = False,
    ) -> None:
        """Adds a port of an adapter or router. It may be listed several times with the same GUID and LID."""
        self._check_guid(port_guid, line)
        lid = given_lid(lid)
        earlier = self.hosts.get(node)
        if earlier is None:
            self.hosts[node] = _ListedNode(
                clean(name), port_guid, lid, 1, line, lmc, kind_of(name, is_router)
            )
        elif (earlier.guid, earlier.lid) != (port_guid, lid):
            self.text.refuse(
                line,
                f"port {node.port} of {node.guid:#018x} differs from line {earlier.line}",
                "take a new dump",
            )

    def add_end(
        self,
        node: Node,
        port: int,
        peer: Node,
        peer_port: int,
        width: int,
        speed: str,
        line: int,
        max_rate: float = 0.0,
    ) -> None:
        """Adds the end of a cable at a port of ``node``, which supports ``max_rate`` bit/s (0 where unknown); the other
        end is at a port of ``peer``."""
        if (node, port) in self.ends:
            earlier = self.ends[node, port].line
            self.text.refuse(
                line, f"port {port} of {self._name(node)} has a cable already, on line {earlier}"
            )
        if not (1 <= port <= MAX_PORTS and 1 <= peer_port <= MAX_PORTS):
            self.text.refuse(
                line, f"no port has the number {port if port > MAX_PORTS or port < 1 else peer_port}"
            )
        widths = OMNI_PATH_WIDTHS if speed.startswith(OMNI_PATH) else WIDTHS
        is_known = width in widths and speed in LANE_RATES
        self.ends[node, port] = _CableEnd(
            peer,
            peer_port,
            width if is_known else 0,
            speed if is_known else "",
            line,
            max_rate,
            bool(width or speed),
        )

    def _check_guid(self, guid: int, line: int) -> None:
        if not 0 < guid <= MAX_GUID:
            self.text.refuse(line, f"{guid:#x} is no GUID")

    def _name(self, node: Node) -> str:
        listed = self.switches.get(node.guid) if node.port == 0 else self.hosts.get(node)
        return listed.name if listed and listed.name else f"{node.guid:#018x}"

    def build(self) -> Fabric:
        """Makes the fabric, with hosts in the natural order of their names. Raises UserError if ends of cables do not
        match."""
        self._refuse_duplicates()
        self._refuse_lids()
        self._refuse_one_sided()
        self._share_rates()
        if not self.hosts:
            self.text.refuse(self.text.last, "the fabric has no host", "is the file complete?")
        if not self.switches:
            self._refuse_no_switch()
        switches = sorted(self.switches, key=lambda guid: (natural_key(self.switches[guid].name), guid))
        ports = [
            EndPort(listed.name, node.guid, listed.guid, node.port, listed.kind == HOST)
            for node, listed in self.hosts.items()
        ]
        names = dict(zip(self.hosts, zip(*name_ports(ports), strict=True), strict=True))
        hosts = sorted(self.hosts, key=lambda node: (natural_key(names[node][0]), node))
        node_numbers = {Node(guid, 0): index for index, guid in enumerate(switches)}
        node_numbers |= {node: len(switches) + index for index, node in enumerate(hosts)}
        shown = name_switches([self.switches[guid].name for guid in switches], switches)
        return self._arrays(switches, hosts, shown, [names[node] for node in hosts], node_numbers)

    def _arrays(
        self,
        switches: list[int],
        hosts: list[Node],
        switch_names: list[str],
        host_names: list[tuple[str, str]],
        node_numbers: dict[Node, int],
    ) -> Fabric:
        ends = sorted(self.ends.items(), key=lambda item: (node_numbers[item[0][0]], item[0][1]))
        links = np.array(
            [
                (node_numbers[node], port, node_numbers[e.peer], e.peer_port, e.width, e.line)
                for (node, port), e in ends
            ],
            np.int32,
        ).reshape(-1, 6)
        listed = [self.switches[guid] for guid in switches]
        nodes = [*listed, *(self.hosts[node] for node in hosts)]
        return Fabric(
            switch_names=switch_names,
            switch_guids=np.array(switches, np.uint64),
            switch_lids=np.array([s.lid for s in listed], np.int32),
            switch_ports=np.array([s.ports for s in listed], np.int32),
            host_names=[name for name, _ in host_names],
            machines=[host for _, host in host_names],
            switch_texts=[s.name for s in listed],
            host_texts=[self.hosts[node].name for node in hosts],
            host_guids=np.array([self.hosts[node].guid for node in hosts], np.uint64),
            host_lids=np.array([self.hosts[node].lid for node in hosts], np.int32),
            link_from=links[:, 0],
            link_from_port=links[:, 1],
            link_to=links[:, 2],
            link_to_port=links[:, 3],
            link_width=links[:, 4],
            link_speed=[e.speed for _, e in ends],
            source=str(self.text.path),
            link_max_rate=np.array([e.max_rate for _, e in ends], np.float64),
            link_lines=links[:, 5],
            node_lines=np.array([node.line for node in nodes], np.int32),
            node_lmc=np.array([node.lmc for node in nodes], np.int32),
            host_kinds=[self.hosts[node].kind for node in hosts],
        )

    def _refuse_one_sided(self) -> None:
        for (node, port), end in self.ends.items():
            is_known = end.peer.guid in self.switches if end.peer.port == 0 else end.peer in self.hosts
            if not is_known:
                self.text.refuse(
                    end.line,
                    f"port {port} of {self._name(node)} leads to {end.peer.guid:#018x}, which is not listed",
                    "is the file complete?",
                )
            if node.port == 0 and port > self.switches[node.guid].ports:
                self.text.refuse(
                    end.line, f"port {port} of {self._name(node)}, which has {self.switches[node.guid].ports}"
                )
            back = self.ends.get((end.peer, end.peer_port))
            if back is None or (back.peer, back.peer_port) != (node, port):
                peer = f"{self._name(end.peer)}[{end.peer_port}]"
                self.text.refuse(
                    end.line,
                    f"the cable from {self._name(node)}[{port}] to {peer} is not listed at its other end",
                    "take a new dump: this one is damaged, or the fabric changed meanwhile",
                )

    def _share_rates(self) -> None:
        """Gives an end without a rate that of the other end: both run at one (ibnetdiscover of 2006 has it at adapters
        alone)."""
        for key, end in self.ends.items():
            other = self.ends[end.peer, end.peer_port]
            if not end.has_rate and other.speed:
                self.ends[key] = replace(end, width=other.width, speed=other.speed)

    def _refuse_no_switch(self) -> NoReturn:
        for (node, _), end in self.ends.items():
            pair = f"{self._name(node)} and {self._name(end.peer)}"
            self.text.refuse(
                end.line,
                f"{pair} are cabled to each other: no switch is there, so nothing is to be routed",
                "measure such a pair with assay rdma or assay net",
            )
        self.text.refuse(self.text.last, "the fabric has no switch", "is the file complete?")

    def _refuse_lids(self) -> None:
        """Refuses what is no LID, and LIDs of one port among those of another, which has 2**LMC of them. A port without
        a cable has no LID to judge; readers leave such ports out."""
        listed = [*self.switches.values(), *self.hosts.values()]
        for node in listed:
            if not 0 <= node.lid <= LAST_UNICAST_LID:
                self.text.refuse(node.line, f"{node.lid} is no LID of a port")
        by_lid = sorted((node for node in listed if node.lid), key=lambda node: node.lid)
        for low, high in pairwise(by_lid):
            last = low.lid + (1 << low.lmc) - 1
            if high.lid <= last:
                self.text.refuse(
                    high.line,
                    f"LID {high.lid} of {high.name} is one of {low.lid} to {last} of {low.name} (LMC {low.lmc}, line "
                    f"{low.line})",
                    "let the subnet manager give LIDs anew, then take the file again",
                )

    def _refuse_duplicates(self) -> None:
        owners: dict[tuple[str, int], _ListedNode] = {}
        for listed in [*self.switches.values(), *self.hosts.values()]:
            for kind, value in (("LID", listed.lid), ("GUID", listed.guid)):
                earlier = owners.setdefault((kind, value), listed)
                if value and earlier is not listed:
                    shown = value if kind == "LID" else f"{value:#018x}"
                    self.text.refuse(
                        listed.line,
                        f"{kind} {shown} belongs to {earlier.name} already, on line {earlier.line}",
                    )
