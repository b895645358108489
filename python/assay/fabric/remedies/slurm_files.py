"""Reads a topology of Slurm: topology.conf with its whole grammar (topology.conf(5): continued lines, comments,
Include, keys in any case, quoted values), or topology.yaml with its list of trees, blocks and flat topologies. Only
trees can be compared with a fabric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from ClusterShell.NodeSet import NodeSet, NodeSetException

from assay.errors import UserError
from assay.fabric.read.text import open_file, printable
from assay.fabric.remedies.slurm import Switch
from assay.records.foreign import HEAD, text_kind

MAX_BYTES = 64 << 20
MAX_NAMES = 1 << 20
MAX_INCLUDES = 64
KEYS = (
    "switchname", "nodes", "switches", "linkspeed", "blockname", "blocksizes", "aggregatedblock", "ringname",
)  # fmt: skip
# "scontrol show topology" also prints these, and of a switch above others all hosts below it.
SHOWN_KEYS = ("level", "blockindex", "blocksize")
_PAIR = re.compile(r'\s*([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_CONF = re.compile(
    r"^\s*(?:(?:SwitchName|BlockName|BlockSizes|AggregatedBlock|RingName)\s*=|Include\s+\S)",
    re.MULTILINE | re.IGNORECASE,
)
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*", re.IGNORECASE)
NO_TOPOLOGY = "neither topology.conf nor topology.yaml of Slurm"
BLOCKS = "a topology of blocks: only trees are compared"
RINGS = "a topology of rings: only trees are compared"
NONE_SHOWN = "No topology information available"  # by "scontrol show topology"


@dataclass(frozen=True)
class Topology:
    """The switches of a file, and a line for each part of it that is not compared. ``elsewhere``: the nodes of other
    topologies of the file, which a partition may use instead."""

    switches: list[Switch]
    left_out: list[str]
    elsewhere: frozenset[str] = frozenset()


def read_topology(path: Path) -> Topology:
    """Reads topology.conf or topology.yaml; the content tells which. Raises UserError with file and line."""
    text = _text(path)
    if text.strip() == NONE_SHOWN:
        raise UserError(
            f"{path}: Slurm has no topology: {NONE_SHOWN}", "set TopologyPlugin=topology/tree in slurm.conf"
        )
    if text.strip() and not re.sub(r"#.*", "", text).strip():
        raise UserError(
            f"{path}: no switch in it, only comments", "give topology.conf or topology.yaml of Slurm"
        )
    topology = _read_conf(path, text) if _CONF.search(text) else _read_yaml(path, text)
    if not topology.switches:
        raise UserError(f"{path}: no switch in it", "give topology.conf or topology.yaml of Slurm")
    seen: set[str] = set()
    for switch in topology.switches:
        if switch.name in seen:
            raise UserError(f"{switch.place}: switch {switch.name} is defined twice")
        seen.add(switch.name)
    return topology


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
    kind = text_kind(content[:HEAD].decode(errors="replace"))
    if kind is not None and kind.key not in ("topology.conf", "topology.yaml"):
        raise UserError(f"{path}: {kind.name}, no topology of Slurm", "give topology.conf or topology.yaml")
    return "\n".join(printable(line.expandtabs()) for line in lines)


def _read_conf(path: Path, text: str) -> Topology:
    switches: list[Switch] = []
    others: list[str] = []  # lines of blocks and rings
    for where, line in _lines(path, text, [path.resolve()]):
        values = _pairs(where, line)
        if "level" in values and values.get("switches"):
            values.pop("nodes", None)
        if values.keys() & {"blockname", "blocksizes", "aggregatedblock", "ringname"}:
            others.append(f"{where}: {RINGS if 'ringname' in values else BLOCKS}")
            continue
        if "switchname" not in values or ("nodes" in values) == ("switches" in values):
            raise UserError(f"{where}: a switch needs SwitchName, and either Nodes or Switches")
        switches.append(
            _switch(where, values["switchname"], values.get("nodes", ""), values.get("switches", ""))
        )
    if others and not switches:
        raise UserError(others[0], "give a topology.conf with SwitchName lines")
    return Topology(switches, others[:1])


def _lines(path: Path, text: str, opened: list[Path]) -> Iterator[tuple[str, str]]:
    """The lines with their place, without comments, continued lines joined, included files in their place. ``opened``:
    the files that are open, and were."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        content = re.sub(r"(?<!\\)#.*", "", line).rstrip()
        first = first or number
        if (len(content) - len(content.rstrip("\\"))) % 2:  # the last backslash is not escaped
            joined += content[:-1] + " "
            continue
        joined, where, first = joined + content, f"{path}:{first}", 0
        if match := _INCLUDE.fullmatch(joined):
            yield from _included(where, path.parent / match[1], opened)
        elif joined.strip():
            yield where, joined
        joined = ""
    if joined.strip():
        yield f"{path}:{first}", joined


def _included(where: str, path: Path, opened: list[Path]) -> Iterator[tuple[str, str]]:
    if path.resolve() in opened or len(opened) > MAX_INCLUDES:
        raise UserError(f"{where}: {path} is included already", "include each file once")
    opened.append(path.resolve())
    try:
        text = _text(path)
    except UserError as error:
        raise UserError(f"{where}: Include: {error.what}", "put that file there, or its lines here") from None
    yield from _lines(path, text, opened)


def _pairs(where: str, line: str) -> dict[str, str]:
    """The values of a line by key in small letters."""
    values: dict[str, str] = {}
    position = 0
    while line[position:].strip():
        match = _PAIR.match(line, position)
        if match is None or match[1].lower() not in KEYS + SHOWN_KEYS:
            word = line[position:].split()[0]
            raise UserError(f"{where}: '{word}' is not understood", "write SwitchName=s0 Nodes=n[0-3]")
        key = match[1].lower()
        if key in values:
            raise UserError(f"{where}: {match[1]} is given twice in one line")
        values[key] = match[2] if match[2] is not None else match[3]
        position = match.end()
    return values


def _read_yaml(path: Path, text: str) -> Topology:
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UserError(f"{where}: {NO_TOPOLOGY}") from None
    entries = [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []
    if not entries:
        raise UserError(f"{path}: {NO_TOPOLOGY}", "give one that has switches")
    trees = [entry for entry in entries if isinstance(entry.get("tree"), dict)]
    compared = next(
        (entry for entry in trees if entry.get("cluster_default") is True),
        trees[0] if len(trees) == 1 else None,
    )
    left_out = [f"{path}: {_left_out(entry)}" for entry in entries if entry is not compared]
    if not trees:
        raise UserError(left_out[0], "give a topology.yaml with a tree")
    if compared is None:
        raise UserError(
            f"{path}: {len(trees)} trees in it, none of them the cluster's default",
            "write cluster_default: true in the one that is meant",
        )
    if not isinstance(compared["tree"].get("switches"), list):
        raise UserError(f"{path}: a tree without switches", "give a topology.yaml with a tree")
    switches = []
    for entry in compared["tree"]["switches"]:
        name = entry.get("switch") if isinstance(entry, dict) else None
        if not isinstance(name, str) or ("nodes" in entry) == ("children" in entry):
            raise UserError(
                f"{path}: a switch needs 'switch', and either 'nodes' or 'children': {entry!r:.80}"
            )
        name = printable(name)  # YAML has escapes
        switches.append(
            _switch(
                f"{path}: switch {name}", name, str(entry.get("nodes", "")), str(entry.get("children", ""))
            )
        )
    others = (entry for entry in entries if entry is not compared)
    return Topology(switches, left_out, frozenset(node for entry in others for node in _nodes(path, entry)))


def _nodes(path: Path, entry: dict[str, object]) -> Iterator[str]:
    """The nodes of the blocks or switches of a topology."""
    for kind, parts in (("tree", "switches"), ("block", "blocks"), ("ring", "rings")):
        content = entry.get(kind)
        listed = content.get(parts) if isinstance(content, dict) else None
        for part in listed if isinstance(listed, list) else ():
            nodes = part.get("nodes") if isinstance(part, dict) else None
            yield from _expand(str(path), printable(nodes)) if isinstance(nodes, str) else ()


def _left_out(entry: dict[str, object]) -> str:
    """Why a topology is not compared."""
    kinds = [str(key) for key in entry if key not in ("topology", "cluster_default")]
    if "tree" in kinds:
        why = "a second tree: that of the cluster's default is compared"
    elif "block" in kinds:
        why = BLOCKS
    else:
        why = f"{printable(', '.join(kinds))[:80] or 'without a type'}: only trees are compared"
    return f"topology {printable(str(entry.get('topology', '')))[:80]}: {why}"


def _switch(where: str, name: str, nodes: str, children: str) -> Switch:
    name, nodes, children = map(printable, (name, nodes, children))
    return Switch(name, _expand(where, nodes), _expand(where, children), where)


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
