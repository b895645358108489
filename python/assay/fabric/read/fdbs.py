"""Forwarding databases: opensm.fdbs and ibdiagnet's .fdbs.

    dump_ucast_routes: Switch 0x0000000000200000
    LID    : Port : Hops : Optimal
    0x0001 : 001  : 01   : yes
    0x0002 : UNREACHABLE

Older OpenSM and ibdiagnet begin with osm_ucast_mgr_dump_ucast_routes. Newer ibdiagnet adds "PLFT_NUM: 0"; switches
with several private tables are refused.
"""

from __future__ import annotations

import re
from pathlib import Path

from assay.fabric.read.entries import TableBuilder
from assay.fabric.read.text import LineReader
from assay.fabric.tables import ForwardingTables
from assay.fabric.topology import Fabric

_HEAD = re.compile(r"(?:\w*dump_ucast_routes: )Switch (0x[0-9a-fA-F]{1,16})\s*")
# A port is of three digits, or something follows: "01" at the end of a file is the begin of a port.
_ENTRY = re.compile(r"(0x[0-9a-fA-F]{1,4})\s*:\s*([0-9]{3}|[0-9]{1,2}(?=\s*:)|UNREACHABLE)\b.*")
_IGNORED = re.compile(r"\s*$|LID\s+: Port|#|PLFT_NUM: 0\s*$")
NO_PORT = 255


def looks_like(head: str) -> bool:
    return re.search(r"^\w*dump_ucast_routes: Switch 0x", head, re.MULTILINE) is not None


def read(path: Path, fabric: Fabric) -> ForwardingTables:
    """Raises UserError with file and line."""
    text = LineReader(path)
    entries = TableBuilder(text, fabric)
    switch = -1
    for number, line in text:
        if match := _HEAD.fullmatch(line):
            switch = entries.begin_table(int(match[1], 16), number)
        elif match := _ENTRY.fullmatch(line):
            if switch < 0:
                text.refuse(number, "an entry before the first switch", "is the file complete?")
            if match[2] == "UNREACHABLE":
                continue
            if int(match[2]) > NO_PORT:
                text.refuse(number, f"no port has the number {match[2]}")
            if int(match[2]) != NO_PORT:
                entries.add_entry(switch, int(match[1], 16), int(match[2]), number)
        elif not _IGNORED.match(line):
            if line.startswith("PLFT_NUM"):
                text.refuse(
                    number, "a switch with several private tables", "Assay reads fabrics with one table each"
                )
            text.refuse(number, "not a line of a forwarding database", "give the file as the tool wrote it")
    if switch < 0:
        text.refuse(text.last, "no forwarding table")
    return entries.finish()
