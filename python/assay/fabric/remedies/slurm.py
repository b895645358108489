"""Writes a fabric as Slurm's topology/tree (topology.conf and topology.yaml), and compares a given file with a fabric.

Slurm needs a tree, but a fat tree has many roots. So all switches of a level that connect the same switches below
become one switch of Slurm's tree. Leaf switches keep their names, the others are "level1-0", "level1-1", ... A given
file is compared by the sets of hosts that its switches group; the names of its switches may differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from ClusterShell.NodeSet import NodeSet, NodeSetException

from assay.errors import UserError
from assay.fabric.levels import UNREACHED
from assay.fabric.names import natural_key
from assay.fabric.read.text import open_file, printable
from assay.fabric.topology import Fabric, Ints

SAFE = re.compile(r"[A-Za-z0-9_.-]+")
MAX_BYTES = 64 << 20
MAX_NAMES = 1 << 20


@dataclass(frozen=True)
class Switch:
    """A switch of Slurm's tree: a leaf has ``nodes`` (hosts), any other switch has ``children``. ``line``: of the file,
    0 where unknown."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    line: int = 0


def tree_of(fabric: Fabric) -> list[Switch]:
    """The switches of Slurm's tree, leaf switches first. Raises UserError for names that Slurm cannot read."""
    switches = [
        Switch(fabric.switch_names[leaf], tuple(sorted(_hosts_on(fabric, int(leaf)), key=natural_key)))
        for leaf in fabric.edge_switches
    ]
    _check_names(fabric, switches)
    below: list[tuple[str, int]] = [
        (switch.name, int(leaf)) for switch, leaf in zip(switches, fabric.edge_switches, strict=True)
    ]
    known = fabric.levels[fabric.levels != UNREACHED]
    for level in range(1, int(known.max(initial=0)) + 1):
        if len(below) == 1:
            break
        group = _connected_groups(fabric, level)
        parents: dict[int, list[tuple[str, int]]] = {}
        for child in below:
            parents.setdefault(int(group[child[1]]), []).append(child)
        if len(parents) == len(below):
            continue
        names = [f"level{level}-{number}" for number in range(len(parents))]
        groups = list(parents.values())
        switches += [
            Switch(name, children=tuple(child[0] for child in children))
            for name, children in zip(names, groups, strict=True)
        ]
        below = [(name, children[0][1]) for name, children in zip(names, groups, strict=True)]
    return switches


def _hosts_on(fabric: Fabric, switch: int) -> set[str]:
    return {fabric.host_names[host] for host in np.flatnonzero(fabric.host_switch == switch)}


def _check_names(fabric: Fabric, switches: list[Switch]) -> None:
    names = [switch.name for switch in switches]
    for name in [*names, *fabric.host_names]:
        if not SAFE.fullmatch(name):
            raise UserError(
                f"{fabric.source}: Slurm cannot read the name '{name}'",
                "rename the node description, or use a node-name map when the fabric is dumped",
            )
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise UserError(f"{fabric.source}: two switches are called '{duplicate}'", "rename one of them")


def _connected_groups(fabric: Fabric, level: int) -> Ints:
    """[S] number of the connected group of each switch, over the links between switches up to ``level``."""
    from scipy.sparse import csr_array  # slow to import, rarely needed
    from scipy.sparse.csgraph import connected_components

    links = fabric.between_switches & (fabric.levels[fabric.link_from % fabric.switches] <= level)
    links &= fabric.levels[fabric.link_to % fabric.switches] <= level
    ends = (fabric.link_from[links], fabric.link_to[links])
    graph = csr_array((np.ones(int(links.sum()), np.int8), ends), shape=(fabric.switches, fabric.switches))
    return np.asarray(connected_components(graph, directed=False)[1], np.int32)


def topology_conf(switches: list[Switch]) -> str:
    return "".join(
        f"SwitchName={s.name} "
        + (f"Nodes={_fold(s.nodes)}" if s.nodes else f"Switches={_fold(s.children)}")
        + "\n"
        for s in switches
    )


def topology_yaml(switches: list[Switch], name: str = "fabric") -> str:
    lines = ["---", f"- topology: {name}", "  cluster_default: true", "  tree:", "    switches:"]
    for switch in switches:
        lines.append(f"      - switch: {switch.name}")
        kind, members = ("nodes", switch.nodes) if switch.nodes else ("children", switch.children)
        lines.append(f"        {kind}: {_fold(members)}")
    return "\n".join(lines) + "\n"


def _fold(names: tuple[str, ...]) -> str:
    return str(NodeSet.fromlist(list(names)))


def read_topology(path: Path) -> list[Switch]:
    """Reads topology.conf or topology.yaml; the content tells which. Raises UserError with file and line."""
    text = _text(path)
    is_conf = re.search(r"^\s*SwitchName\s*=", text, re.MULTILINE | re.IGNORECASE)
    switches = _read_conf(path, text) if is_conf else _read_yaml(path, text)
    if not switches:
        raise UserError(f"{path}: no switch in it", "give topology.conf or topology.yaml of Slurm")
    names = [switch.name for switch in switches]
    for switch in switches:
        if names.count(switch.name) > 1:
            raise UserError(f"{_place(path, switch)}: switch {switch.name} is defined twice")
    return switches


def _text(path: Path) -> str:
    """The text of a file; control characters except ends of lines are replaced. Raises UserError."""
    try:
        with open_file(path) as file:
            content = file.read(MAX_BYTES + 1)
        lines = content.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"cannot read {path}: {reason}") from None
    if len(content) > MAX_BYTES:
        raise UserError(f"{path}: larger than 64 MiB, so no topology of Slurm")
    return "\n".join(printable(line.expandtabs()) for line in lines)


def _read_conf(path: Path, text: str) -> list[Switch]:
    switches = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        values = {}
        for field in fields:
            key, equals, value = field.partition("=")
            if not equals or key.lower() not in ("switchname", "nodes", "switches", "linkspeed"):
                raise UserError(
                    f"{path}:{number}: '{field}' is not understood", "write SwitchName=s0 Nodes=n[0-3]"
                )
            values[key.lower()] = value
        if "switchname" not in values or ("nodes" in values) == ("switches" in values):
            raise UserError(f"{path}:{number}: a switch needs SwitchName, and either Nodes or Switches")
        switches.append(
            _switch(path, number, values["switchname"], values.get("nodes", ""), values.get("switches", ""))
        )
    return switches


def _read_yaml(path: Path, text: str) -> list[Switch]:
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UserError(f"{where}: neither topology.conf nor topology.yaml of Slurm") from None
    topologies = content if isinstance(content, list) else []
    trees = [x["tree"] for x in topologies if isinstance(x, dict) and isinstance(x.get("tree"), dict)]
    if len(trees) != 1 or not isinstance(trees[0].get("switches"), list):
        raise UserError(
            f"{path}: {len(trees)} trees in it, expected one", "give a topology.yaml with one tree"
        )
    switches = []
    for entry in trees[0]["switches"]:
        name = entry.get("switch") if isinstance(entry, dict) else None
        if not isinstance(name, str) or ("nodes" in entry) == ("children" in entry):
            raise UserError(
                f"{path}: a switch needs 'switch', and either 'nodes' or 'children': {entry!r:.80}"
            )
        switches.append(_switch(path, 0, name, str(entry.get("nodes", "")), str(entry.get("children", ""))))
    return switches


def _switch(path: Path, line: int, name: str, nodes: str, children: str) -> Switch:
    name, nodes, children = map(printable, (name, nodes, children))  # YAML has escapes
    where = f"{path}:{line}" if line else f"{path}: switch {name}"
    return Switch(name, _expand(where, nodes), _expand(where, children), line)


def _expand(where: str, text: str) -> tuple[str, ...]:
    if re.search(r"[@&!^*?]", text):  # groups and set operations of ClusterShell, not of Slurm
        raise UserError(f"{where}: '{text}' is not a list of names", "write node[0-17]")
    if _most_names(text) > MAX_NAMES:
        raise UserError(f"{where}: too many names in one list: {text:.80}", "write node[0-17]")
    try:
        return tuple(NodeSet(text))
    except NodeSetException as error:
        raise UserError(f"{where}: '{text}' is not a list of names: {error}", "write node[0-17]") from None


def _most_names(text: str) -> int:
    """An upper bound of the names in a list, computed without expanding it: n[0-999999999] would fill the memory."""
    total = 0
    for name in re.sub(r"\[[^\]]*\]", lambda match: match[0].replace(",", ";"), text).split(","):
        count = 1
        for ranges in re.findall(r"\[([^\]]*)\]?", name):
            count *= sum(_size(part) for part in ranges.split(";"))
        total += count
    return total


def _size(part: str) -> int:
    match = re.match(r"0*([0-9]{1,18})-0*([0-9]{1,18})", part)
    if match is None:
        return MAX_NAMES + 1 if len(part) > 40 else 1
    return max(int(match[2]) - int(match[1]) + 1, 1)


def _place(path: Path, switch: Switch) -> str:
    return f"{path}:{switch.line}" if switch.line else f"{path}: switch {switch.name}"


def differences(path: Path, file_switches: list[Switch], fabric: Fabric) -> list[str]:
    """A line for each difference between a file and the fabric; none where they agree."""
    expected = tree_of(fabric)
    leaf_of = {node: switch.name for switch in expected for node in switch.nodes}
    lines: list[str] = []
    seen: dict[str, Switch] = {}
    for switch in file_switches:
        leaves_used = [leaf_of[node] for node in switch.nodes if node in leaf_of]
        main_leaf = max(sorted(set(leaves_used)), key=leaves_used.count) if leaves_used else ""
        for node in switch.nodes:
            where = _place(path, switch)
            if node in seen:
                lines.append(f"{where}: {node} is on {switch.name} and on {seen[node].name}")
            elif node not in leaf_of:
                lines.append(f"{where}: {node} is not in the fabric")
            elif leaf_of[node] != main_leaf:
                lines.append(
                    f"{where}: {node} is with hosts of {main_leaf}, the fabric has it on {leaf_of[node]}"
                )
            seen.setdefault(node, switch)
    lines += [f"{path}: {node} of {leaf} is missing" for node, leaf in leaf_of.items() if node not in seen]
    return lines + _split_leaves(path, file_switches, expected) + _wrong_groups(path, file_switches, expected)


def _split_leaves(path: Path, file_switches: list[Switch], expected: list[Switch]) -> list[str]:
    """A line for each leaf switch whose hosts the file puts on several switches."""
    lines = []
    for leaf in (switch for switch in expected if switch.nodes):
        leaves_used = [
            switch.name
            for switch in file_switches
            if len(set(switch.nodes) & set(leaf.nodes)) * 2 > len(switch.nodes)
        ]
        if len(leaves_used) > 1:
            lines.append(f"{path}: {', '.join(leaves_used)} are one switch in the fabric, {leaf.name}")
    return lines


def _wrong_groups(path: Path, file_switches: list[Switch], expected: list[Switch]) -> list[str]:
    """A line for each difference in the sets of hosts below the switches above the leaves."""
    lines = []
    names = {switch.name for switch in file_switches}
    for switch in file_switches:
        for child in switch.children:
            if child not in names:
                lines.append(f"{_place(path, switch)}: switch {child} of {switch.name} is not defined")
    fabric_groups, file_groups = _groups(expected), _groups(file_switches)
    present = set().union(*file_groups.values()) if file_groups else set()
    expected_sets = {
        frozenset(hosts & present): name for name, hosts in fabric_groups.items() if len(hosts & present)
    }
    for name, hosts in file_groups.items():
        switch = next(s for s in file_switches if s.name == name)
        if switch.children and frozenset(hosts) not in expected_sets:
            lines.append(
                f"{_place(path, switch)}: no part of the fabric has just the {len(hosts)} hosts of {name}"
            )
    file_sets = {frozenset(hosts) for hosts in file_groups.values()}
    lines += [
        f"{path}: no switch joins the {len(hosts)} hosts that the fabric joins at {name}"
        for hosts, name in expected_sets.items()
        if hosts not in file_sets and not any(s.name == name and s.nodes for s in expected)
    ]
    return lines


def _groups(switches: list[Switch]) -> dict[str, set[str]]:
    """The hosts below each switch. It ends even if the file has switches that contain each other."""
    below = {switch.name: set(switch.nodes) for switch in switches}
    changed = True
    while changed:
        changed = False
        for switch in switches:
            hosts = below[switch.name].union(*(below.get(child, set()) for child in switch.children))
            changed |= len(hosts) > len(below[switch.name])
            below[switch.name] = hosts
    return below
