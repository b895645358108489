"""The order of ranks: opensm-ftree-ca-order.dump, or a list of hosts.

    0x0001<TAB>node000 HCA-1
    0xFFFF<TAB>DUMMY

DUMMY is an empty slot. A line without a LID is the name of a host, or a list of hosts such as node[0-15], in the order
in which they are written; or one port of a host with several, such as "node0 mlx5_1". Groups of hosts (@name) are
refused: looking one up runs commands of this machine.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice, product
from pathlib import Path

import numpy as np
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from assay.fabric.read.text import LineReader, clean
from assay.fabric.topology import Fabric, Ints
from assay.records.foreign import Wanted
from assay.records.padding import did_you_mean

EMPTY_SLOT = -1
FILE = Wanted("an order of hosts", "write a host or a list of hosts a line")
_LINE = re.compile(r"(0x[0-9a-fA-F]{1,4})\s+(.*)")
_COMMA = re.compile(r",(?![^\[]*\])")  # outside of brackets
_BRACKET = re.compile(r"\[([^\[\]]+)\]")
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
NO_LID = 0xFFFF
MAX_RANKS = 1 << 16  # empty slots included


def read(path: Path, fabric: Fabric) -> Ints:
    """[ranks] number of the host of each rank, -1 for an empty slot. Raises UserError with file and line."""
    text = LineReader(path, FILE)
    by_lid = {int(lid): host for host, lid in enumerate(fabric.host_lids) if lid}
    by_name = {name: [port] for name, port in zip(fabric.host_names, range(fabric.hosts), strict=True)}
    by_name |= fabric.ports_of
    turn: Counter[str] = Counter()
    order: list[int] = []
    seen: dict[int, int] = {}
    for number, line in text:
        line = line.partition("#")[0].strip()
        if not line:
            continue
        if match := _LINE.fullmatch(line):
            hosts = [_host_of_lid(text, number, fabric, by_lid, int(match[1], 16), clean(match[2]))]
        elif line == "DUMMY":
            hosts = [EMPTY_SLOT]
        else:
            names = [line] if line in by_name else _names(text, number, line)
            hosts = [_host_of_name(text, number, fabric, by_name, turn, name) for name in names]
        for host in hosts:
            if host != EMPTY_SLOT and host in seen:
                name = fabric.host_names[host]
                text.refuse(number, f"{name} comes twice, first on line {seen[host]}", "write each host once")
            seen[host] = number
            order.append(host)
        if len(order) > MAX_RANKS:
            text.refuse(number, f"more than {MAX_RANKS} ranks")
    if not seen.keys() - {EMPTY_SLOT}:
        text.refuse(text.last, "the file names no host", FILE.fix)
    return np.array(order, np.int32)


def _names(text: LineReader, number: int, line: str) -> list[str]:
    if any(int(last[:20]) - int(first[:20]) >= MAX_RANKS for first, last in _RANGE.findall(line)):
        text.refuse(number, f"more than {MAX_RANKS} hosts in one line")
    if "@" in line:
        text.refuse(number, "a group of hosts", "write the hosts themselves, such as node[0-15]")
    names: list[str] = []
    try:
        for part in split_list(line):
            nodes = NodeSet(part, resolver=RESOLVER_NOGROUP)
            if len(names) + len(nodes) > MAX_RANKS:
                text.refuse(number, f"more than {MAX_RANKS} hosts in one line")
            names += [str(name) for name in nodes]
    except NodeSetException:
        text.refuse(number, "not a list of hosts", "write a host, or node[0-15]")
    return names


def split_list(hosts: str) -> list[str]:
    """The parts of a list of hosts in their order, one range in each bracket. ClusterShell would sort them.

    "node[5,0-2],node4" gives "node[5]", "node[0-2]" and "node4".
    """
    parts: list[str] = []
    for part in _COMMA.split(hosts):
        fields = _BRACKET.split(part)  # names and ranges in turn
        choices = [
            [f"[{item}]" for item in field.split(",")] if index % 2 else [field]
            for index, field in enumerate(fields)
        ]
        parts += map("".join, islice(product(*choices), MAX_RANKS + 1))
    return parts


def _host_of_name(
    text: LineReader,
    number: int,
    fabric: Fabric,
    by_name: dict[str, list[int]],
    turn: Counter[str],
    name: str,
) -> int:
    """The end port of a name. A host with several ports that is named again stands for the next of them; ``turn``: how
    often each name came before."""
    if name not in by_name:
        alone = re.split(r"[\s:]", name)[0]  # without the slots of a machine file: "n1 slots=4", "n1:4"
        fix = did_you_mean([name, alone], by_name, FILE.fix)
        text.refuse(number, f"host {clean(name)} is not in {fabric.source}", fix)
    ports = by_name[name]
    turn[name] += 1
    return ports[min(turn[name], len(ports)) - 1]


def _host_of_lid(
    text: LineReader, number: int, fabric: Fabric, by_lid: dict[int, int], lid: int, name: str
) -> int:
    """The host of a LID. ``name`` must be that of the host: a fabric may assign LIDs differently when it restarts."""
    if lid == NO_LID:
        return EMPTY_SLOT
    if lid not in by_lid:
        text.refuse(number, f"LID {lid} belongs to no host of {fabric.source}", "take both at one time")
    host = by_lid[lid]
    known = fabric.host_names[host]
    if name != known and name.split()[:1] != known.split()[:1]:
        text.refuse(
            number, f"LID {lid} is {name} here and {known} in {fabric.source}", "take both at one time"
        )
    return host
