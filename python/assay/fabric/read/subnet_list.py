"""opensm-subnet.lst: a line for each direction of each cable.

    { SW Ports:24 SystemGUID:.. NodeGUID:.. PortGUID:.. VenID:.. DevID:.. Rev:.. {leaf0} LID:0002 PN:13 } {
    the other end } PHY=4x LOG=ACT SPD=2.5

A cable carries data only in the state ACT. All numbers except width and speed are hexadecimal. The speed is that of a
lane, in Gbit/s. OpenSM writes "Rt" for a router, and "??" for a width or speed that it does not know
(opensm/osm_dump.c); before 2006 it wrote no speed. ibdiagnet2.lst has comments at its start, and each cable once.
"""

from __future__ import annotations

import re
from pathlib import Path

from assay.fabric.read.cables import FabricBuilder, Node, given_lid
from assay.fabric.read.text import LineReader
from assay.fabric.topology import Fabric

_SIDE = (
    r"\{ (CA|SW|R[Tt]|\*\*)(?:-SM)? Ports:([0-9A-Fa-f]{2}) SystemGUID:[0-9A-Fa-f]+ NodeGUID:([0-9A-Fa-f]{1,16}) "
    r"PortGUID:([0-9A-Fa-f]{1,16}) VenID:[0-9A-Fa-f]+ DevID:[0-9A-Fa-f]+ Rev:[0-9A-Fa-f]+ \{(.*?)\} "
    r"LID:([0-9A-Fa-f]{1,4}) PN:([0-9A-Fa-f]{2}) \}"
)
_LINE = re.compile(
    _SIDE + " " + _SIDE + r" PHY=(?:([0-9]{1,2})x|\?\?) LOG=(\w+)(?: SPD=([0-9.A-Z]+|\?\?))?\s*"
)
SPEEDS = {
    "2.5": "SDR", "5": "DDR", "10": "QDR", "FDR10": "FDR10", "14": "FDR", "25": "EDR", "50": "HDR", "100": "NDR",
    "200": "XDR",
}  # fmt: skip


def looks_like(head: str) -> bool:
    return re.search(r"^\{ (CA|SW|R[Tt])", head, re.MULTILINE) is not None


def read(path: Path) -> Fabric:
    """Raises UserError with file and line."""
    text = LineReader(path)
    cables = FabricBuilder(text)
    is_of_ibdiagnet = False
    for number, line in text:
        if line.startswith("#"):
            is_of_ibdiagnet |= "IBDIAG" in line
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            text.refuse(number, "not a line of opensm-subnet.lst", "is the file complete, and unchanged?")
        sides = [match.groups()[:7], match.groups()[7:14]]
        (node, port), (peer, peer_port) = (_read_side(cables, side, number) for side in sides)
        if match[16] != "ACT":
            ends = " and ".join(f"{side[4]} port {int(side[6] or '0', 16)}" for side in sides)
            text.refuse(
                number,
                f"the cable of {ends} is in state {match[16]}, and carries no data",
                "activate or unplug it, or take the file anew when opensm says SUBNET UP",
            )
        width, speed = int(match[15] or 0), SPEEDS.get(match[17] or "", "")
        cables.add_end(node, port, peer, peer_port, width, speed, number)
        if is_of_ibdiagnet:
            cables.add_end(peer, peer_port, node, port, width, speed, number)
    return cables.build()


def _read_side(cables: FabricBuilder, side: tuple[str | None, ...], line: int) -> tuple[Node, int]:
    kind, ports, guid, port_guid, name, lid, port = (part or "" for part in side)
    number = int(port, 16)
    if kind == "SW":
        node = Node(int(guid, 16), 0)
        earlier = cables.switches.get(node.guid)
        if earlier is None:
            cables.add_switch(node.guid, name, int(ports, 16), int(lid, 16), line)
        elif (earlier.ports, earlier.lid) != (int(ports, 16), given_lid(int(lid, 16))):
            cables.text.refuse(
                line,
                f"LID or ports of switch {earlier.name} differ from line {earlier.line}",
                "take a new dump",
            )
    else:
        node = Node(int(guid, 16), number)
        cables.add_host(node, int(port_guid, 16), name, int(lid, 16), line, is_router=kind in ("RT", "Rt"))
    return node, number
