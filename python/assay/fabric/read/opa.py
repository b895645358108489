"""Omni-Path: XML of FastFabric's opareport.

``opareport -o snapshot -r`` has everything: Node (NodeDesc, NodeGUID, NodeType_Int, NumPorts) with a PortInfo for each
port (PortNum, GUID, EndPortLID, LMC, active and supported lanes and speed), for a switch its LinearFDB (a Value for
each LID), and Link with From and To (NodeGUID, PortNum). ``opareport -o topology -x`` and ``-o links -x`` have the
cables alone: Link with a Rate and two Ports (NodeGUID, PortNum, NodeType, NodeDesc), and no LID, so forwarding tables
have to be computed. Not tested with a file of a real fabric: the names and meaning of the elements come from the
program that writes and reads them (FastFabric's Topology library).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from assay.fabric.read.cables import FabricBuilder, Node
from assay.fabric.read.entries import TableBuilder
from assay.fabric.read.text import EMPTY_DUMP, LineReader, open_file
from assay.fabric.tables import ForwardingTables
from assay.fabric.topology import LANE_RATES, Fabric

FI, SWITCH = 1, 2  # NodeType_Int
NAMES = {"FI": FI, "SW": SWITCH}  # NodeType
LANES = {1: 1, 2: 2, 4: 3, 8: 4}  # bits of LinkWidth
SPEEDS = {1: "OPA12", 2: "OPA25"}  # bits of LinkSpeed
RATES = {
    "12.5g": (1, "OPA12"),
    "25g": (1, "OPA25"),
    "50g": (2, "OPA25"),
    "75g": (3, "OPA25"),
    "100g": (4, "OPA25"),
    "200g": (2, "OPA100"),  # CN5000 has four lanes of 100 Gbit/s
    "300g": (3, "OPA100"),
    "400g": (4, "OPA100"),
}
NO_PORT, MAX_LMC = 255, 7
CHUNK = 1 << 16
MAX_DEPTH, LONGEST_VALUE = 32, 1 << 12


@dataclass
class Element:
    """An element of the XML file."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    values: dict[str, str] = field(
        default_factory=dict
    )  # texts of children without children, by tag; the last one
    children: list[Element] = field(default_factory=list)  # of the tags that the caller of _elements names


def looks_like(head: str) -> bool:
    return re.search(r"<(Report|Snapshot|Topology)\b", head) is not None and "<?xml" in head[:200]


def looks_like_tables(head: str) -> bool:
    return re.search(r"<Snapshot\b", head) is not None and "<?xml" in head[:200]


def read(path: Path) -> Fabric:
    """Raises UserError with file and line."""
    text = LineReader(path)
    cables = FabricBuilder(text)
    ports: dict[tuple[int, int], Element] = {}
    nodes_by_guid: dict[int, tuple[int, str, int]] = {}
    links = 0
    for element in _elements(text, {"Node", "Link"}, {"PortInfo", "From", "To", "Port"}):
        if element.tag == "Node" and element.children:
            _read_node(text, cables, element, nodes_by_guid, ports)
        elif element.tag == "Link":
            links += 1
            _read_link(text, cables, element, nodes_by_guid, ports)
    if not links:
        text.refuse(
            text.last, "no Link in it", "give the output of opareport -o snapshot -r, or -o topology -x"
        )
    linked = {node for node, _ in cables.ends}
    cables.hosts = {node: listed for node, listed in cables.hosts.items() if node in linked}
    return cables.build()


def read_tables(path: Path, fabric: Fabric) -> ForwardingTables:
    """Raises UserError with file and line."""
    text = LineReader(path)
    entries = TableBuilder(text, fabric)
    has_table = False
    for element in _elements(text, {"Node"}, {"SwitchData", "LinearFDB", "Value"}):
        tables = [child for data in element.children for child in data.children if child.tag == "LinearFDB"]
        for table in tables:
            has_table = True
            switch = entries.begin_table(_number_of(text, element, "NodeGUID"), table.line)
            for value in table.children:
                lid, port = (
                    _parse_int(text, value, value.attributes.get("LID", ""), "LID"),
                    _parse_int(text, value, value.text),
                )
                if port > NO_PORT:
                    text.refuse(value.line, f"no port has the number {port}")
                if port != NO_PORT:
                    entries.add_entry(switch, lid, port, value.line)
    if not has_table:
        text.refuse(text.last, "no LinearFDB in it", "take it with the routes: opareport -o snapshot -r")
    return entries.finish()


def _read_node(
    text: LineReader,
    cables: FabricBuilder,
    element: Element,
    nodes_by_guid: dict[int, tuple[int, str, int]],
    ports: dict[tuple[int, int], Element],
) -> None:
    guid, kind = _number_of(text, element, "NodeGUID"), _number_of(text, element, "NodeType_Int")
    name = element.values.get("NodeDesc", "")
    if guid in nodes_by_guid:
        text.refuse(
            element.line, f"node {guid:#018x} is listed twice, first on line {nodes_by_guid[guid][2]}"
        )
    if kind not in (FI, SWITCH):
        text.refuse(element.line, f"{kind} is not a type of node", "1 is an adapter, 2 a switch")
    nodes_by_guid[guid] = (kind, name, element.line)
    lid = 0
    for port in (child for child in element.children if child.tag == "PortInfo"):
        number = _number_of(text, port, "PortNum")
        if (guid, number) in ports:
            text.refuse(port.line, f"port {number} of {guid:#018x} is listed twice")
        ports[guid, number] = port
        port_lid = _number_of(text, port, "EndPortLID") if "EndPortLID" in port.values else 0
        lmc = _number_of(text, port, "LMC") if "LMC" in port.values else 0
        if lmc > MAX_LMC:
            text.refuse(port.line, f"{lmc} is no LMC")
        if kind == FI:
            cables.add_host(
                Node(guid, number), _number_of(text, port, "GUID"), name, port_lid, port.line, lmc
            )
        elif number == 0:
            lid = port_lid
    if kind == SWITCH:
        cables.add_switch(guid, name, _number_of(text, element, "NumPorts"), lid, element.line)


def _read_link(
    text: LineReader,
    cables: FabricBuilder,
    element: Element,
    nodes_by_guid: dict[int, tuple[int, str, int]],
    ports: dict[tuple[int, int], Element],
) -> None:
    ends = [child for child in element.children if child.tag in ("From", "To", "Port")]
    if len(ends) != 2:
        text.refuse(element.line, f"a Link with {len(ends)} ends", "is the file complete?")
    keys = [(_number_of(text, end, "NodeGUID"), _number_of(text, end, "PortNum")) for end in ends]
    is_snapshot = ends[0].tag == "From"
    for end, (guid, port) in zip(ends, keys, strict=True):
        if is_snapshot and (guid, port) not in ports:
            text.refuse(
                end.line, f"port {port} of {guid:#018x} is not among the nodes", "is the file complete?"
            )
        if not is_snapshot:
            _add_node(text, cables, end, guid, port, nodes_by_guid)
    nodes = [Node(guid, 0 if nodes_by_guid[guid][0] == SWITCH else port) for guid, port in keys]
    for near, far in ((0, 1), (1, 0)):
        if is_snapshot:
            width, speed, supported_rate = _rate(text, ports[keys[near]])
        else:
            width, speed = RATES.get(element.values.get("Rate", "").lower(), (0, ""))
            supported_rate = 0.0
        cables.add_end(
            nodes[near],
            keys[near][1],
            nodes[far],
            keys[far][1],
            width,
            speed,
            element.line,
            supported_rate,
        )


def _add_node(
    text: LineReader,
    cables: FabricBuilder,
    end: Element,
    guid: int,
    port: int,
    nodes_by_guid: dict[int, tuple[int, str, int]],
) -> None:
    """Adds the node at one end of a link. Such a file has no LIDs and no number of ports of a switch."""
    name, kind = end.values.get("NodeDesc", ""), NAMES.get(end.values.get("NodeType", ""))
    if kind is None:
        text.refuse(end.line, f"a port without a NodeType of {', '.join(NAMES)}", "is the file complete?")
    if guid in nodes_by_guid and nodes_by_guid[guid][0] != kind:
        text.refuse(end.line, f"{guid:#018x} is of another type on line {nodes_by_guid[guid][2]}")
    if guid not in nodes_by_guid:
        nodes_by_guid[guid] = (kind, name, end.line)
        if kind == SWITCH:
            cables.add_switch(guid, name, max(port, 1), 0, end.line)
    if kind == FI:
        port_guid = _number_of(text, end, "PortGUID") if "PortGUID" in end.values else guid
        cables.add_host(Node(guid, port), port_guid, name, 0, end.line)
    else:
        cables.switches[guid].ports = max(cables.switches[guid].ports, port)


def _rate(text: LineReader, port: Element) -> tuple[int, str, float]:
    """Lanes and speed in use, and bit/s that the port supports. The downgraded width leaves out failed lanes."""

    def bits(name: str) -> int:
        return _number_of(text, port, name) if name in port.values else 0

    width = bits("LinkWidthDowngradeTxActive_Int") or bits("LinkWidthActive_Int")
    lanes = max((count for bit, count in LANES.items() if bit & bits("LinkWidthSupported_Int")), default=0)
    speeds = [LANE_RATES[name] for bit, name in SPEEDS.items() if bit & bits("LinkSpeedSupported_Int")]
    return (
        LANES.get(width, 0),
        SPEEDS.get(bits("LinkSpeedActive_Int"), ""),
        lanes * max(speeds, default=0.0),
    )


def _number_of(text: LineReader, element: Element, name: str) -> int:
    if name not in element.values:
        text.refuse(element.line, f"{element.tag} without {name}", "is the file complete?")
    return _parse_int(text, element, element.values[name], name)


def _parse_int(text: LineReader, element: Element, value: str, name: str = "the value") -> int:
    if not re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}", value):
        text.refuse(element.line, f"{name} of {element.tag} is '{value[:40]}', which is not a number")
    return int(value, 0) if value.lower().startswith("0x") else int(value)


def _elements(text: LineReader, outer_tags: set[str], inner_tags: set[str]) -> Iterator[Element]:
    """The elements of ``outer_tags`` in order, with the elements of ``inner_tags`` that they contain. No other element
    is kept in memory. A document type is refused: its entities could expand a short file without end."""
    parser = expat.ParserCreate()
    stack: list[Element] = []
    ready: list[Element] = []

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) >= MAX_DEPTH:
            text.refuse(parser.CurrentLineNumber, f"elements more than {MAX_DEPTH} deep")
        stack.append(Element(tag, attributes, parser.CurrentLineNumber))

    def end(tag: str) -> None:
        element = stack.pop()
        element.text = element.text.strip()
        inside = any(outer.tag in outer_tags for outer in stack)
        if tag in outer_tags and not inside:
            ready.append(element)
        elif inside and tag in inner_tags:
            stack[-1].children.append(element)
        elif inside and not element.values:
            stack[-1].values[tag] = element.text

    def characters(data: str) -> None:
        if stack and len(stack[-1].text) + len(data) > LONGEST_VALUE:
            text.refuse(parser.CurrentLineNumber, f"a value of more than {LONGEST_VALUE} characters")
        if stack:
            stack[-1].text += data

    def refuse_type(*_: Any) -> None:
        text.refuse(parser.CurrentLineNumber, "a document type, which opareport does not write")

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = characters, refuse_type
    with open_file(text.path) as file:
        yield from _parse(text, parser, iter(lambda: file.read(CHUNK), b""), ready)


def _parse(text: LineReader, parser: Any, chunks: Iterator[bytes], ready: list[Element]) -> Iterator[Element]:
    try:
        for chunk in chunks:
            parser.Parse(chunk, False)
            yield from ready
            ready.clear()
        parser.Parse(b"", True)
    except LookupError as error:
        text.refuse(1, f"not XML as opareport writes it: {error}", "is it whole?")
    except expat.ExpatError as error:
        if error.lineno == 1 and error.offset == 0:
            text.refuse(1, "the file is empty", EMPTY_DUMP)
        text.refuse(
            error.lineno, f"not XML as opareport writes it: {expat.ErrorString(error.code)}", "is it whole?"
        )
    text.last = parser.CurrentLineNumber
    yield from ready
