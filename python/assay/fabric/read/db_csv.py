"""ibdiagnet2.db_csv: sections of comma-separated values, START_NAME to END_NAME, a heading first.

The reader uses three sections, by the names of their columns: NODES (NodeDesc, NumPorts, NodeType, NodeGUID), PORTS
(NodeGuid, PortGuid, PortNum, LID, LinkWidthActv, LinkSpeedActv, optionally LMC, LinkWidthSup, LinkSpeedSup) and LINKS
(NodeGuid1, PortNum1, NodeGuid2, PortNum2). A cable is listed once. The columns and codes were read off a file of
ibdiagnet 2.10 from an NDR fabric, which is not in the repository. A speed has a bit for each range of PortInfo that has
one: a switch's port at NDR says 2052, its NDR and, for managers that know no faster speed, QDR.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from assay.fabric.read.cables import FabricBuilder, Node, given_lid
from assay.fabric.read.text import LineReader, clean
from assay.fabric.topology import LANE_RATES, Fabric
from assay.records.notes import tell

WIDTHS = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
SPEEDS = {
    1: "SDR", 2: "DDR", 4: "QDR", 1 << 8: "FDR", 2 << 8: "EDR", 4 << 8: "HDR", 8 << 8: "NDR", 1 << 16: "FDR10",
    1 << 24: "XDR",
}  # fmt: skip
MAX_LMC = 7
ACTIVE = "4"  # PortState
SHOWN = 8  # ports in a note
CA, SWITCH, ROUTER = 1, 2, 3
COLUMNS = {
    "NODES": ("NodeDesc", "NumPorts", "NodeType", "NodeGUID"),
    "PORTS": ("NodeGuid", "PortGuid", "PortNum", "LID", "LinkWidthActv", "LinkSpeedActv"),
    "LINKS": ("NodeGuid1", "PortNum1", "NodeGuid2", "PortNum2"),
}
_ROW = re.compile(r'(0x[0-9a-fA-F]+|".*"),')
Row = tuple[int, dict[str, str]]


def looks_like(head: str) -> bool:
    return re.search(r"^START_[A-Z_0-9]+\s*$", head, re.MULTILINE) is not None


def read(path: Path) -> Fabric:
    """Raises UserError with file and line."""
    text = LineReader(path)
    sections = _sections(text)
    cables = FabricBuilder(text)
    nodes_by_guid: dict[int, tuple[int, str, int, int]] = {}  # by node: type, name, ports, line
    for line, row in sections["NODES"]:
        guid = _parse_number(text, line, row, "NodeGUID")
        ports, kind = (_parse_number(text, line, row, column) for column in ("NumPorts", "NodeType"))
        if guid in nodes_by_guid:
            text.refuse(line, f"node {guid:#018x} is listed twice, first on line {nodes_by_guid[guid][3]}")
        if kind not in (CA, SWITCH, ROUTER):
            text.refuse(line, f"{kind} is not a type of node", "1 is an adapter, 2 a switch, 3 a router")
        nodes_by_guid[guid] = (kind, row["NodeDesc"], ports, line)
    rates = _read_ports(text, cables, nodes_by_guid, sections["PORTS"])
    for line, row in sections["LINKS"]:
        ends = [
            (
                _parse_number(text, line, row, f"NodeGuid{side}"),
                _parse_number(text, line, row, f"PortNum{side}"),
            )
            for side in (1, 2)
        ]
        for guid, port in ends:
            if guid not in nodes_by_guid or (guid, port) not in rates:
                text.refuse(
                    line, f"port {port} of {guid:#018x} is not among the PORTS", "is the file complete?"
                )
        nodes = [(Node(guid, 0 if nodes_by_guid[guid][0] == SWITCH else port), port) for guid, port in ends]
        for (node, port), (peer, peer_port), key in zip(nodes, reversed(nodes), ends, strict=True):
            width, speed, max_rate = rates[key]
            cables.add_end(node, port, peer, peer_port, width, speed, line, max_rate)
    _tell_unlinked(path, nodes_by_guid, sections["PORTS"], cables)
    linked = {node for node, _ in cables.ends}
    cables.hosts = {node: listed for node, listed in cables.hosts.items() if node in linked}
    return cables.build()


def _tell_unlinked(
    path: Path, nodes_by_guid: dict[int, tuple[int, str, int, int]], rows: list[Row], cables: FabricBuilder
) -> None:
    """Says which ports are active without a cable: the LINKS are incomplete, or a node did not answer."""
    unlinked = []
    for _, row in rows:
        if row.get("PortState") != ACTIVE or row["PortNum"] == "0":
            continue
        guid, port = (_parse_number(cables.text, 0, row, column) for column in ("NodeGuid", "PortNum"))
        kind, name, _, _ = nodes_by_guid[guid]
        if (Node(guid, 0 if kind == SWITCH else port), port) not in cables.ends:
            unlinked.append(f"{clean(name) or f'{guid:#018x}'} port {port}")
    if unlinked:
        more = f" and {len(unlinked) - SHOWN} more" if len(unlinked) > SHOWN else ""
        tell(f"{path}: active ports without a cable in LINKS: {', '.join(unlinked[:SHOWN])}{more}")


def _read_ports(
    text: LineReader,
    cables: FabricBuilder,
    nodes_by_guid: dict[int, tuple[int, str, int, int]],
    rows: list[Row],
) -> dict[tuple[int, int], tuple[int, str, float]]:
    """Adds switches and hosts; returns lanes, speed and the supported rate by node and port. A switch has its LID at
    port 0."""
    rates: dict[tuple[int, int], tuple[int, str, float]] = {}
    for line, row in rows:
        guid, port_guid, port, lid, width, speed = (
            _parse_number(text, line, row, column) for column in COLUMNS["PORTS"]
        )
        if guid not in nodes_by_guid:
            text.refuse(line, f"{guid:#018x} is not among the NODES", "is the file complete?")
        kind, name, ports, _ = nodes_by_guid[guid]
        if (guid, port) in rates:
            text.refuse(line, f"port {port} of {guid:#018x} is listed twice")
        rates[guid, port] = (WIDTHS.get(width, 0), _speed(speed), _supported_rate(text, line, row))
        if kind != SWITCH:
            lmc = _parse_number(text, line, row, "LMC") if "LMC" in row else 0
            if lmc > MAX_LMC:
                text.refuse(line, f"{lmc} is no LMC")
            cables.add_host(Node(guid, port), port_guid, name, lid, line, lmc, is_router=kind == ROUTER)
        elif guid not in cables.switches:
            cables.add_switch(guid, name, ports, lid, line)
        elif port == 0:
            cables.switches[guid].lid = given_lid(lid)
    return rates


def _speed(code: int) -> str:
    """The fastest of the speeds whose bits are set; empty where one is not known."""
    names = [SPEEDS.get(1 << bit) for bit in range(code.bit_length()) if code >> bit & 1]
    return max((name or "" for name in names), key=LANE_RATES.__getitem__) if names and all(names) else ""


def _supported_rate(text: LineReader, line: int, row: dict[str, str]) -> float:
    """The rate that a port supports, bit/s: the highest width and speed whose bits are set; 0 where the file does not
    say."""
    widths, speeds = (
        _parse_number(text, line, row, column) if column in row else 0
        for column in ("LinkWidthSup", "LinkSpeedSup")
    )
    lanes = max((number for bit, number in WIDTHS.items() if bit & widths), default=0)
    return lanes * max((LANE_RATES[name] for bit, name in SPEEDS.items() if bit & speeds), default=0.0)


def _sections(text: LineReader) -> dict[str, list[Row]]:
    """The rows of the sections that are read, with their lines."""
    rows_by_section: dict[str, list[Row]] = {}
    heading: list[str] = []
    name = ""
    for number, line in _lines(text):
        if line.startswith("START_"):
            if name:
                text.refuse(number, f"section {name} has no end before this one")
            name, heading = line[len("START_") :], []
            if name in COLUMNS:
                if name in rows_by_section:
                    text.refuse(number, f"a second section {name}", "give one dump, not two")
                rows_by_section[name] = []
        elif line.startswith("END_"):
            if line != f"END_{name}":
                text.refuse(number, f"the end of {line[len('END_') :]} within {name or 'no section'}")
            name = ""
        elif not name and _ROW.match(line):
            text.refuse(number, "a row outside of the sections", "the file is damaged: take it again")
        elif name in COLUMNS:
            values = _split(text, number, line)
            if not heading:
                heading = values
                missing = [column for column in COLUMNS[name] if column not in heading]
                if missing:
                    text.refuse(number, f"section {name} has no column {missing[0]}")
            elif len(values) != len(heading):
                text.refuse(number, f"{len(values)} values under {len(heading)} columns")
            else:
                rows_by_section[name].append((number, dict(zip(heading, values, strict=True))))
    if name:
        text.refuse(text.last, f"the file ends within section {name}", "it is cut short: take it again")
    for name in COLUMNS:
        if name not in rows_by_section:
            text.refuse(
                text.last,
                f"the file has no section {name}",
                "it is cut short, or a section was taken out: run ibdiagnet again",
            )
    return rows_by_section


def _lines(text: LineReader) -> Iterator[tuple[int, str]]:
    for number, line in text:
        line = line.strip()
        if line and not line.startswith("#"):
            yield number, line


def _split(text: LineReader, number: int, line: str) -> list[str]:
    """The values of a line. ibdiagnet writes a description between quotes as the node gives it: a quote within it is
    not doubled, so the value ends at the quote that a comma or the line's end follows."""
    values, parts = [], list[str]()  # parts: of a value that is not closed yet
    for part in line.split(","):
        if not parts and not part.lstrip().startswith('"'):
            values.append(part.strip())
            continue
        parts.append(part)
        if part.rstrip().endswith('"') and (len(parts) > 1 or len(part.strip()) > 1):
            values.append(",".join(parts).strip()[1:-1].strip())
            parts = []
    if parts:
        text.refuse(number, "a quote is not closed", "is the file complete, and unchanged?")
    return values


def _parse_number(text: LineReader, line: int, row: dict[str, str], column: str) -> int:
    value = row[column]
    if value == "N/A":
        return 0
    try:
        if not value.isascii() or value.startswith("-") or "_" in value or len(value) > 20:
            raise ValueError
        return int(value, 16) if value.lower().startswith("0x") else int(value)
    except ValueError:
        text.refuse(line, f"{column} is '{value}', which is not a number")
