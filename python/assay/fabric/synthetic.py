"""Builds fat trees from a short description: parallel ports generalized fat trees, PGFT(h; m; w; p) of Zahavi (2010).

The tree has h levels of switches. A switch of level l has m[l] children; each child has w[l] parents of level l, and
p[l] parallel cables to each parent. The description is "key=value" pairs, on the command line separated by commas, in a
file one a line:

    radix=36          ports of a switch: half of them go down, half up; the tree has as many levels as are needed
    nodes=45          hosts, which fill the leaf switches in order; default: as many as there is room for
    levels=2          of switches; default: the fewest with room for the nodes
    per-leaf=18       hosts on a leaf switch; default: half of the radix
    spines=2          switches of the top level of a tree with two levels; each leaf has its up ports spread over them
    missing=3;7       places of hosts that stay empty, counted from 0 over all leaf switches
    rate=4xHDR        lanes and speed of every cable; default: unknown
    dead=leaf0:19     cables that are missing, each by one of its ends: switch and port

``missing`` and ``dead`` may be given several times in a file. Text after # is a comment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from assay.errors import UserError
from assay.fabric.read.cables import WIDTHS
from assay.fabric.read.text import LineReader, printable
from assay.fabric.topology import LANE_RATES, LAST_UNICAST_LID, Fabric, Ints
from assay.records.foreign import Wanted

MAX_LEVELS = 6
GUID_OF_SWITCHES, GUID_OF_HOSTS = 0x0002000000000000, 0x0001000000000000


@dataclass(frozen=True)
class FatTree:
    """A described fat tree: a switch of level l has ``down[l]`` children; each child has ``up[l]`` parents of level l
    and ``cables[l]`` cables to each.

    Level 0 is that of the leaf switches; their children are hosts. ``places``: the occupied places of hosts.
    """

    down: tuple[int, ...]
    up: tuple[int, ...]
    cables: tuple[int, ...]
    places: tuple[int, ...]
    dead: tuple[tuple[str, int], ...] = ()
    name: str = "fat tree"
    width: int = 0  # lanes of every cable; 0 where unknown
    speed: str = ""  # one of LANE_RATES


def parse(text: str, source: str = "--fat-tree") -> FatTree:
    """A description, "radix=36,nodes=45" or lines of a file. Raises UserError with the line."""
    values: dict[str, str] = {}
    dead: list[tuple[str, int]] = []
    missing: list[int] = []
    width, speed = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{source}:{number}" if "\n" in text.strip() else source
        for pair in filter(None, (part.strip() for part in line.partition("#")[0].split(","))):
            key, equals, value = (part.strip() for part in printable(pair).partition("="))
            if not equals or key not in KEYS:
                raise UserError(f"{where}: '{printable(pair)}' is not understood", "write radix=36,nodes=45")
            if key == "dead":
                dead += [_parse_end(end, where) for end in value.split(";")]
            elif key == "missing":
                missing += [_parse_number(place, where, key, 0) for place in value.split(";")]
            elif key in values or (key == "rate" and speed):
                raise UserError(f"{where}: {key} is given twice")
            elif key == "rate":
                width, speed = _parse_rate(value, where)
            else:
                _parse_number(value, where, key, 1)
                values[key] = value
    if "radix" not in values:
        raise UserError(f"{source}: the radix of the switches is missing", "write radix=36,nodes=45")
    tree = _fat_tree({key: int(value) for key, value in values.items()}, missing, dead, source)
    return replace(tree, width=width, speed=speed)


MAX_VALUES = {"radix": 254, "levels": MAX_LEVELS}  # of other keys: LAST_UNICAST_LID
FILE = Wanted("a description of a fat tree", "write radix=36 and nodes=45, a line each")
KEYS = ("radix", "nodes", "levels", "per-leaf", "spines", "rate", "missing", "dead")


def read(path: Path) -> FatTree:
    """A description in a file. Raises UserError."""
    lines = [line for _, line in LineReader(path, FILE)]
    return parse("\n".join(lines), str(path))


def _parse_number(text: str, where: str, key: str, least: int) -> int:
    maximum = MAX_VALUES.get(key, LAST_UNICAST_LID)
    shown = f"{key}={text[:20]}{'...' if len(text) > 20 else ''}"
    if not (text.isascii() and text.isdigit()) or (len(text) < 8 and int(text) < least):
        raise UserError(f"{where}: {shown} is not a whole number of at least {least}")
    if len(text) > 7 or int(text) > maximum:
        raise UserError(f"{where}: {shown} is more than {maximum}")
    return int(text)


def _parse_rate(text: str, where: str) -> tuple[int, str]:
    width, _, speed = text.partition("x")
    if width not in map(str, WIDTHS) or speed not in LANE_RATES:
        raise UserError(
            f"{where}: rate={text} is not a rate", f"write rate=4xHDR; speeds: {', '.join(LANE_RATES)}"
        )
    return int(width), speed


def _parse_end(text: str, where: str) -> tuple[str, int]:
    switch, colon, port = text.strip().rpartition(":")
    if not colon or not switch:
        raise UserError(f"{where}: '{text}' is not a switch and a port", "write dead=leaf0:19")
    return switch, _parse_number(port, where, "dead", 1)


def _fat_tree(
    values: dict[str, int], missing: list[int], dead: list[tuple[str, int]], source: str
) -> FatTree:
    radix = values["radix"]
    half, per_leaf = radix // 2, values.get("per-leaf", radix // 2)
    if values.get("levels") == 1:
        if "per-leaf" in values:
            raise UserError(f"{source}: per-leaf is for a leaf switch, and one level is one switch")
        per_leaf = radix
    elif per_leaf >= radix:
        raise UserError(f"{source}: per-leaf={per_leaf} leaves no port of {radix} to go up")
    if radix % 2 or not 4 <= radix <= 254:
        raise UserError(f"{source}: radix={radix} is not an even number from 4 to 254")
    up_ports = radix - per_leaf if "per-leaf" in values else half
    absent = set(missing)
    levels = values.get("levels") or _levels(values.get("nodes", 1) + len(absent), per_leaf, radix)
    places = _places(values.get("nodes"), absent, levels, radix, _room(levels, per_leaf, radix), source)
    spines = values.get("spines", up_ports)
    if "spines" in values and levels != 2:
        raise UserError(f"{source}: spines is for two levels, and there are {levels}")
    if up_ports % spines:
        raise UserError(f"{source}: {up_ports} up ports of a leaf do not spread over {spines} spines evenly")
    down = [per_leaf, *[half] * (levels - 1)]
    down[-1] = -(-(places[-1] + 1) // int(np.prod(down[:-1]))) if levels > 1 else per_leaf
    up = [1, *([spines] if levels > 1 else []), *[half] * (levels - 2)]
    cables = [1, *([up_ports // spines] if levels > 1 else []), *[1] * (levels - 2)]
    name = f"fat tree of {len(places)} nodes, radix {radix}"
    if levels > 1 and down[-1] * cables[-1] > radix:
        raise UserError(
            f"{source}: a spine needs {down[-1] * cables[-1]} ports and has {radix}", "give more spines"
        )
    return FatTree(tuple(down), tuple(up), tuple(cables), places, tuple(dead), name)


def _places(
    host_count: int | None, absent: set[int], levels: int, radix: int, room: int, source: str
) -> tuple[int, ...]:
    """The first ``host_count`` places that are not absent; all of them if it is None. ``room``: number of places."""
    outside = [place for place in absent if place >= room]
    if outside:
        raise UserError(f"{source}: missing={min(outside)}: the last of {room} places is {room - 1}")
    nodes = room - len(absent) if host_count is None else host_count
    if nodes > room:
        raise UserError(
            f"{source}: {nodes} nodes do not fit: {levels} levels of radix {radix} have room for {room}",
            "give more levels, or a larger radix",
        )
    if nodes > LAST_UNICAST_LID:
        raise UserError(f"{source}: {nodes} nodes are more than a subnet has addresses: {LAST_UNICAST_LID}")
    if not 0 < nodes <= room - len(absent):
        raise UserError(f"{source}: no room is left for {nodes} nodes with {len(absent)} places empty")
    return tuple(place for place in range(nodes + len(absent)) if place not in absent)[:nodes]


def _room(levels: int, per_leaf: int, radix: int) -> int:
    """The number of places for hosts. Switches of the top level have no up ports."""
    return radix if levels == 1 else per_leaf * (radix // 2) ** (levels - 2) * radix


def _levels(nodes: int, per_leaf: int, radix: int) -> int:
    levels = 2
    while _room(levels, per_leaf, radix) < nodes and levels < MAX_LEVELS:
        levels += 1
    return levels


def build(tree: FatTree) -> Fabric:
    """The fabric of a description. Raises UserError if it has no cable that is described as dead.

    A switch of level l is numbered by its subtree, and by its copy: its number among the switches of the level that
    have the same subtree below them.
    """
    height = len(tree.down)
    subtrees = [_subtrees(tree, level) for level in range(height)]
    copies = [int(np.prod(tree.up[1 : level + 1])) for level in range(height)]
    first = np.concatenate([[0], np.cumsum([s * c for s, c in zip(subtrees, copies, strict=True)])])
    names = [
        f"{_level_name(level, height)}{i}"
        for level in range(height)
        for i in range(subtrees[level] * copies[level])
    ]
    switches = int(first[-1])
    if switches + len(tree.places) > LAST_UNICAST_LID:
        raise UserError(
            f"{tree.name}: with {switches} switches more than a subnet has addresses: {LAST_UNICAST_LID}"
        )
    ends: list[tuple[int, int, int, int]] = []
    for number, place in enumerate(tree.places):
        ends.append((switches + number, 1, place // tree.down[0], place % tree.down[0] + 1))
    for level in range(height - 1):
        ends += _cables(tree, level, subtrees[level], copies[level], int(first[level]), int(first[level + 1]))
    radix = max(max(e[1] for e in ends), max(e[3] for e in ends))
    ends = _without_dead(ends, tree.dead, names, tree.name)
    return _fabric(tree, names, ends, radix)


def _subtrees(tree: FatTree, level: int) -> int:
    """The number of subtrees of a level, up to the last one that holds a host."""
    size = int(np.prod(tree.down[: level + 1]))
    return 1 if level == len(tree.down) - 1 else tree.places[-1] // size + 1


def _level_name(level: int, height: int) -> str:
    if level == 0:
        return "leaf"
    return "spine" if level == height - 1 else "middle" if height == 3 else f"level{level}-"


def _cables(
    tree: FatTree, level: int, subtrees: int, copies: int, first: int, above: int
) -> list[tuple[int, int, int, int]]:
    """Cables from the switches of a level to the next: (node, port, node, port)."""
    parents, cables, children = tree.up[level + 1], tree.cables[level + 1], tree.down[level + 1]
    lowest = tree.down[level]  # ports that go down come first
    if level:
        lowest *= tree.cables[level]
    ends = []
    for subtree in range(subtrees):
        for copy in range(copies):
            for parent in range(parents):
                upper = above + subtree // children * copies * parents + copy + copies * parent
                for cable in range(cables):
                    up_port = lowest + 1 + parent + parents * cable
                    down_port = 1 + subtree % children + children * cable
                    ends.append((first + subtree * copies + copy, up_port, upper, down_port))
    return ends


def _without_dead(
    ends: list[tuple[int, int, int, int]], dead: tuple[tuple[str, int], ...], names: list[str], source: str
) -> list[tuple[int, int, int, int]]:
    numbers = {name: number for number, name in enumerate(names)}
    cable_at = {end: cable for cable in ends for end in (cable[:2], cable[2:])}
    gone: set[tuple[int, int, int, int]] = set()
    for switch, port in dead:
        cable = cable_at.get((numbers.get(switch, -1), port))
        if cable is None or cable in gone:
            raise UserError(f"{source}: no cable is at port {port} of {switch}, so it cannot be dead")
        gone.add(cable)
    return [cable for cable in ends if cable not in gone]


def _fabric(tree: FatTree, names: list[str], ends: list[tuple[int, int, int, int]], radix: int) -> Fabric:
    hosts = len(tree.places)
    cables = np.array(ends, np.int32).reshape(-1, 4)
    links = np.concatenate([cables, cables[:, [2, 3, 0, 1]]])
    switches = len(names)
    width = len(str(max(hosts - 1, 0)))
    link_columns: list[Ints] = [np.ascontiguousarray(links[:, column]) for column in range(4)]
    return Fabric(
        switch_names=names,
        switch_guids=np.arange(switches, dtype=np.uint64) + np.uint64(GUID_OF_SWITCHES),
        switch_lids=np.arange(1 + hosts, 1 + hosts + switches, dtype=np.int32),
        switch_ports=np.full(switches, radix, np.int32),
        host_names=[f"node{number:0{width}d}" for number in range(hosts)],
        host_guids=np.arange(hosts, dtype=np.uint64) + np.uint64(GUID_OF_HOSTS),
        host_lids=np.arange(1, 1 + hosts, dtype=np.int32),
        link_from=link_columns[0],
        link_from_port=link_columns[1],
        link_to=link_columns[2],
        link_to_port=link_columns[3],
        link_width=np.full(len(links), tree.width, np.int32),
        link_speed=[tree.speed] * len(links),
        source=tree.name,
        link_max_rate=np.full(len(links), tree.width * LANE_RATES.get(tree.speed, 0.0)),
    )
