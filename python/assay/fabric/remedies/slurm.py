"""Writes a fabric as Slurm's topology/tree (topology.conf and topology.yaml).

Slurm needs a tree of hosts, each in one place. A fabric is none: a host may have several rails, and a fat tree has many
roots. So hosts that share a switch are one group, which has that switch's name; a rail's switches are joined by the
hosts on them. All switches of a level that connect the same groups become one switch of Slurm's tree, "level1-0",
"level1-1", ... Comments say what a name stands for, and which ports are in no group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from ClusterShell.NodeSet import NodeSet

from assay.errors import UserError
from assay.fabric.levels import UNREACHED
from assay.fabric.names import is_usable, natural_key
from assay.fabric.topology import Fabric, Ints


@dataclass(frozen=True)
class Switch:
    """A switch of Slurm's tree: a leaf has ``nodes`` (hosts), any other switch has ``children``. ``place``: file and
    line, where it comes from a file; ``stands_for``: the switches of the fabric."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    place: str = ""
    stands_for: tuple[str, ...] = field(default=(), compare=False)


def tree_of(fabric: Fabric) -> list[Switch]:
    """The switches of Slurm's tree, leaf switches first. Raises UserError if no host has a name."""
    groups = _groups_of_hosts(fabric)
    if not groups:
        raise UserError(
            f"{fabric.source}: no description of an adapter names a host",
            "set the node descriptions (rdma-ndd does), or use a node-name map when the fabric is dumped",
        )
    switches, below = [], []
    for members, hosts in groups:
        name = fabric.switch_names[members[0]]
        named = tuple(fabric.switch_names[switch] for switch in members)
        switches.append(Switch(name, tuple(hosts), stands_for=named))
        below.append((name, members[0]))
    known = fabric.levels[fabric.levels != UNREACHED]
    for level in range(int(known.max(initial=0)) + 1):  # 0: leaf switches that are cabled to each other
        if len(below) == 1:
            break
        part = _connected_parts(fabric, level)
        parents: dict[int, list[tuple[str, int]]] = {}
        for child in below:
            parents.setdefault(int(part[child[1]]), []).append(child)
        if len(parents) == len(below):
            continue
        below = []
        for number, (group, children) in enumerate(parents.items()):
            tops = np.flatnonzero((part == group) & (fabric.levels == level))
            joined_by = tuple(fabric.switch_names[switch] for switch in tops)
            name = f"level{level}-{number}"
            while name in fabric.switch_names:  # of a real switch
                name += "-top"
            switches.append(
                Switch(name, children=tuple(child for child, _ in children), stands_for=joined_by)
            )
            below.append((name, children[0][1]))
    return switches


def _groups_of_hosts(fabric: Fabric) -> list[tuple[list[int], list[str]]]:
    """The switches of each group of hosts, ascending, and its hosts in natural order; hosts that share a switch are in
    one group."""
    parent = list(range(fabric.switches))

    def root(switch: int) -> int:
        while parent[switch] != switch:
            parent[switch] = parent[parent[switch]]
            switch = parent[switch]
        return switch

    switches_of: dict[str, list[int]] = {}
    for host, ports in fabric.ports_of.items():
        used = [int(fabric.host_switch[port]) for port in ports if fabric.host_switch[port] >= 0]
        if not used or not is_usable(host):
            continue
        switches_of[host] = used
        for switch in used[1:]:
            low, high = sorted((root(used[0]), root(switch)))
            parent[high] = low
    groups: dict[int, tuple[set[int], list[str]]] = {}
    for host, used in switches_of.items():
        members, hosts = groups.setdefault(root(used[0]), (set(), []))
        members.update(used)
        hosts.append(host)
    return [
        (sorted(members), sorted(hosts, key=natural_key)) for _, (members, hosts) in sorted(groups.items())
    ]


def ports_left_out(fabric: Fabric) -> list[str]:
    """The names of hosts' end ports that are in no group: their description names no host, or they are on no switch."""
    grouped = {host for _, hosts in _groups_of_hosts(fabric) for host in hosts}
    return [
        name
        for name, host, is_host in zip(fabric.host_names, fabric.hosts_of_ports, fabric.is_host, strict=True)
        if is_host and host not in grouped
    ]


def _connected_parts(fabric: Fabric, level: int) -> Ints:
    """[S] number of the connected part of each switch, over the links between switches up to ``level``. Switches that
    share a host with several rails are joined too."""
    from scipy.sparse import csr_array  # slow to import, rarely needed
    from scipy.sparse.csgraph import connected_components

    low = fabric.levels <= level
    links = np.flatnonzero(fabric.between_switches)
    links = links[low[fabric.link_from[links]] & low[fabric.link_to[links]]]
    rails = [(group[0], other) for group, _ in _groups_of_hosts(fabric) for other in group[1:]]
    joined = np.array(rails, np.int32).reshape(-1, 2)
    ends = (
        np.concatenate([fabric.link_from[links], joined[:, 0]]),
        np.concatenate([fabric.link_to[links], joined[:, 1]]),
    )
    graph = csr_array((np.ones(len(ends[0]), np.int8), ends), shape=(fabric.switches, fabric.switches))
    return np.asarray(connected_components(graph, directed=False)[1], np.int32)


def comments(fabric: Fabric, switches: list[Switch]) -> list[str]:
    """What the names of a tree stand for where they are not the descriptions, and which ports are left out."""
    texts = dict(zip(fabric.switch_names, fabric.switch_texts or fabric.switch_names, strict=True))
    numbers = {name: number for number, name in enumerate(fabric.switch_names)}
    lines = []
    for switch in switches:
        shown = [texts[name] for name in switch.stands_for]
        if switch.nodes:
            shown += fabric.guids_of_numbered(numbers[name] for name in switch.stands_for)
        if switch.nodes and shown != [switch.name]:
            lines.append(f"# {switch.name}: {', '.join(shown)}")
    if left_out := ports_left_out(fabric):
        lines.append(
            f"# not in this file: {len(left_out)} ports whose description names no host, such as {left_out[0]}"
        )
    return lines


def topology_conf(switches: list[Switch], notes: list[str] | None = None) -> str:
    return "".join(f"{note}\n" for note in notes or []) + "".join(
        f"SwitchName={s.name} "
        + (f"Nodes={hostlist(s.nodes)}" if s.nodes else f"Switches={hostlist(s.children)}")
        + "\n"
        for s in switches
    )


def topology_yaml(switches: list[Switch], notes: list[str] | None = None, name: str = "fabric") -> str:
    lines = [
        *(notes or []),
        "---",
        f"- topology: {name}",
        "  cluster_default: true",
        "  tree:",
        "    switches:",
    ]
    for switch in switches:
        lines.append(f"      - switch: {switch.name}")
        kind, members = ("nodes", switch.nodes) if switch.nodes else ("children", switch.children)
        lines.append(f"        {kind}: {hostlist(members)}")
    return "\n".join(lines) + "\n"


def hostlist(names: tuple[str, ...]) -> str:
    """A list as every version of Slurm reads it: brackets at the end of a name alone, "r1n[0-1],r2n[0-1]". A name that
    goes on behind its number is written out: Slurm before 23.11 does not read "n[1-2]-ib" (slurm.conf(5), NodeName)."""
    numbered = NodeSet.fromlist([name for name in names if name[-1].isdigit()])
    numbered.fold_axis = (-1,)
    others = [name for name in names if not name[-1].isdigit()]
    return ",".join([*([str(numbered)] if numbered else []), *others])


def fold(names: tuple[str, ...] | list[str]) -> str:
    """node[00-17] for its members."""
    return str(NodeSet.fromlist(list(names)))
