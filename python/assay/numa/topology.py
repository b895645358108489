"""A machine's NUMA nodes from an hwloc synthetic string ("numa:4 core:8 pu:2"), as libhwloc reads it."""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from xml.etree import ElementTree

from assay.errors import UserError

LIBRARY = "libhwloc.so.15"
EXAMPLE = "for example 'numa:4 core:8 pu:1', or with a node of memory alone '[numa] pack:2 [numa] pu:8'"
MAX_LENGTH = 1000  # characters
MAX_OBJECTS = 1 << 16


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
    def memory_nodes(self) -> list[int]:
        return [node for node, members in enumerate(self.processors) if not members]


def synthetic(text: str) -> Topology:
    """Raises UserError for a string that hwloc does not read, a file, and where there is no hwloc."""
    if text.endswith(".xml") or os.path.isfile(text):
        raise UserError(
            f"'{text[:60]}' is a file, not a synthetic string",
            f"give what 'lstopo -i {text[:60]} --of synthetic --no-io' prints",
        )
    size = math.prod(int(number) for number in re.findall(r":\s*(\d{1,9})", text))
    if len(text) > MAX_LENGTH or size > MAX_OBJECTS or re.search(r"\d{10}|\0", text):
        raise UserError(f"the topology '{text[:60]}' is too large", f"at most {MAX_OBJECTS} processors")
    nodes = [
        (
            int(node.attrib["os_index"]),
            _members(node.attrib["cpuset"]),
            int(node.attrib.get("local_memory", "0")),
        )
        for node in ElementTree.fromstring(_xml(text)).iter("object")
        if node.attrib.get("type") == "NUMANode"
    ]
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
