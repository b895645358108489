"""A machine's NUMA nodes: of an hwloc synthetic string ("numa:4 core:8 pu:2"), as libhwloc reads it, or of an XML file.

The XML is read here: libhwloc 2 reads none of version 3, and has no synthetic string of an uneven machine.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from assay.errors import UserError
from assay.records.foreign import Wanted, read_text
from assay.records.notes import tell

LIBRARY = "libhwloc.so.15"
EXAMPLE = "for example 'numa:4 core:8 pu:1', or with a node of memory alone '[numa] pack:2 [numa] pu:8'"
MAX_LENGTH = 1000  # characters
MAX_PROCESSORS = 4096  # hwloc takes 4 s for these, and four times as long for twice as many
MAX_MASK = 1 << 16  # characters
# A level is "TYPE:COUNT", or a count alone. hwloc reads it as strtoul does with base 0.
COUNT = re.compile(r"(?:^|[\s:\])])\s*[+-]?(0[xX][0-9a-fA-F]+|\d+)")
MACHINE = Wanted("an hwloc XML", "give the file of 'lstopo FILE.xml', or a synthetic string", ("hwloc",))
EVERY = "0xf...f"  # hwloc's mask without an end


@dataclass(frozen=True)
class Topology:
    """``processors``: for each node the processors to which it is the closest. A node without processors holds memory
    alone. ``numbers``: those of the nodes, ascending; ``memory``: their bytes,
    0 where the string does not say."""

    processors: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...]
    memory: tuple[int, ...]

    def node_of(self, processor: int) -> int:
        return next(node for node, members in enumerate(self.processors) if processor in members)

    @property
    def all(self) -> list[int]:
        return sorted(processor for members in self.processors for processor in members)

    @property
    def by_node(self) -> list[int]:
        """The processors of the first node, then those of the next. A machine may number them otherwise: the nodes in
        turn, or the second threads of all cores behind the first ones."""
        return [processor for members in self.processors for processor in members]

    @property
    def memory_nodes(self) -> list[int]:
        return [node for node, members in enumerate(self.processors) if not members]


def topology_of(text: str) -> Topology:
    """Of a synthetic string, or of the name of an XML file. Raises UserError."""
    if text.endswith(".xml") or os.path.isfile(text):
        return _of_file(Path(text))
    return synthetic(text)


def synthetic(text: str) -> Topology:
    """Raises UserError for a string that hwloc does not read, and where there is no hwloc."""
    if len(text) > MAX_LENGTH or _processors(text) > MAX_PROCESSORS or re.search(r"\d{10}|\0", text):
        raise UserError(f"the topology '{text[:60]}' is too large", f"at most {MAX_PROCESSORS} processors")
    return _topology(_nodes(ElementTree.fromstring(_xml(text))))


def _processors(text: str) -> int:
    """At most so many processors are in a synthetic string; what is in parentheses are sizes and numbers."""
    counts = COUNT.findall(re.sub(r"\([^)]*\)", " ", text))
    return math.prod(max(1, int(count, 16 if count[:2] in ("0x", "0X") else 10)) for count in counts)


def _of_file(path: Path) -> Topology:
    """Versions 1 to 3 have the same objects. A machine of version 1 without NUMA nodes is one node."""
    try:
        root = ElementTree.fromstring(read_text(path, MACHINE))
        if root.tag != "topology":
            raise UserError(f"{path}: not {MACHINE.name}: <{root.tag}>", MACHINE.fix)
        if (machines := len(_objects(root, "Machine"))) > 1:
            raise UserError(
                f"{path}: {machines} machines in it, as hwloc 1 joins those of a cluster",
                "give the file of one: lstopo FILE.xml there",
            )
        machine = next(root.iter("object")).attrib
        units = {int(unit.attrib["os_index"]) for unit in _objects(root, "PU")}
        units &= _allowed(machine.get("allowed_cpuset", EVERY), units)
        every_node = _nodes(root)
        allowed = _allowed(machine.get("allowed_nodeset", EVERY), {number for number, _, _ in every_node})
        nodes = [
            (number, [member for member in members if member in units], size)
            for number, members, size in every_node
            if number in allowed
        ]
        if not every_node:
            nodes = [(0, sorted(units), int(machine.get("local_memory", "0")))]
    except ElementTree.ParseError as error:
        raise UserError(f"{path}: not XML: {error}", MACHINE.fix) from None
    except (LookupError, ValueError, StopIteration):
        raise UserError(f"{path}: its processors or NUMA nodes cannot be read", MACHINE.fix) from None
    placed = {member for _, members, _ in nodes for member in members}
    if not placed:
        raise UserError(f"{path}: no NUMA node with processors in it", MACHINE.fix)
    if len(placed) < len(units):
        count = f"{len(units - placed)} of {len(units)}"
        tell(f"{path}: {count} processors without memory of their own left out")
    return _topology(nodes)


def _allowed(mask: str, known: set[int]) -> set[int]:
    return known if mask == EVERY else set(_members(mask))


def _objects(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [node for node in root.iter("object") if node.attrib.get("type") == kind]


def _nodes(root: ElementTree.Element) -> list[tuple[int, list[int], int]]:
    """The number, the processors and the bytes of each NUMA node."""
    return [
        (
            int(node.attrib["os_index"]),
            _members(node.attrib["cpuset"]),
            int(node.attrib.get("local_memory", "0")),
        )
        for node in _objects(root, "NUMANode")
    ]


def _topology(nodes: list[tuple[int, list[int], int]]) -> Topology:
    closest: dict[int, tuple[int, int]] = {}  # by processor: how many share the node, the node
    nodes.sort()
    for number, (_, members, _) in enumerate(nodes):
        for processor in members:
            closest[processor] = min(closest.get(processor, (len(members), number)), (len(members), number))
    processors: list[list[int]] = [[] for _ in nodes]
    for processor, (_, number) in sorted(closest.items()):
        processors[number].append(processor)
    numbers, _, memory = zip(*nodes, strict=True)
    return Topology(tuple(tuple(of_node) for of_node in processors), numbers, memory)


def _members(mask: str) -> list[int]:
    """The bits of "0x00000001,0x0000000f", in which the first word is the highest."""
    if len(mask) > MAX_MASK:
        raise ValueError(mask[:60])
    value = 0
    for word in mask.split(","):
        value = value << 32 | int(word or "0", 16)
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


def _xml(text: str) -> bytes:
    with _loaded(text) as (hwloc, topology):
        buffer, length = ctypes.c_char_p(), ctypes.c_int()
        if hwloc.hwloc_topology_export_xmlbuffer(
            topology, ctypes.byref(buffer), ctypes.byref(length), ctypes.c_ulong(0)
        ):
            raise UserError("hwloc did not write the topology", "install libhwloc 2")
        content = ctypes.string_at(buffer, length.value - 1)
        hwloc.hwloc_free_xmlbuffer(topology, buffer)
        return content


@contextmanager
def _loaded(text: str) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
    try:
        hwloc = ctypes.CDLL(LIBRARY)
    except OSError:
        raise UserError(f"no {LIBRARY}", "Debian: apt-get install libhwloc15") from None
    topology = ctypes.c_void_p()
    if hwloc.hwloc_topology_init(ctypes.byref(topology)):
        raise UserError("hwloc cannot start", "check the memory limit: ulimit -v")
    try:
        is_wrong = hwloc.hwloc_topology_set_synthetic(topology, text.encode())
        if is_wrong or hwloc.hwloc_topology_load(topology):
            raise UserError(f"hwloc reads no topology in '{text}'", EXAMPLE)
        yield hwloc, topology
    finally:
        hwloc.hwloc_topology_destroy(topology)
