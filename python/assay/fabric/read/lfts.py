"""Linear forwarding tables as dump_fts and dump_lfts print them, and as OpenSM writes them to opensm-lfts.dump.

Unicast lids [0x0-0x42] of switch DR path slid 0; dlid 0; 0,1,19,3 guid 0x0000000000200002 (leaf2):
0x0005 020 : (Channel Adapter portguid 0x0000000000100003: 'node001 HCA-1')
66 valid lids dumped                    the number of entries

Unicast lids [0-66] of switch Lid 2 guid 0x0000000000200000 ('leaf0'):
0x0005 002 # Channel Adapter portguid 0x0000000000100003: 'node001 HCA-1'
66 lids dumped                          the highest LID

dump_fts and ibroute read whole blocks of 64 LIDs up to the highest one, and leave that one out where a block would
begin with it (infiniband-diags 44).
"""

from __future__ import annotations

import re
from pathlib import Path

from assay.fabric.read.entries import TableBuilder
from assay.fabric.read.text import LineReader, is_harmless
from assay.fabric.tables import ForwardingTables
from assay.fabric.topology import Fabric

_HEAD = re.compile(
    r"Unicast lids \[(?:.*?-)?((?:0x)?[0-9a-fA-F]+)?\] of switch .*?\bguid (0x[0-9a-fA-F]{1,16}) \(.*\):\s*"
)
_ENTRY = re.compile(r"(0x[0-9a-fA-F]{1,4}) ([0-9]{3})(?:\s+[:#].*|\s*)")
_GUID = re.compile(r"portguid (0x[0-9a-fA-F]{1,16})")
_COUNT = re.compile(r"([0-9]+) (valid )?lids dumped\s*")
_IGNORED = re.compile(r"\s*$|\s+Lid\s+Out\s+Destination|\s+Port\s+Info|\*\*\* WARNING|#")
NO_PORT = 255


def looks_like(head: str) -> bool:
    return re.search(r"^Unicast lids \[", head, re.MULTILINE) is not None


def read(path: Path, fabric: Fabric) -> ForwardingTables:
    """Raises UserError with file and line."""
    text = LineReader(path)
    entries = TableBuilder(text, fabric)
    switch, listed, is_open = -1, 0, False  # is_open: the table's count of LIDs has not been read yet
    counts = False  # whether tables of this file end with a count
    is_diagnostic = False  # of dump_fts or ibroute, and not OpenSM's, which always writes all
    for number, line in text:
        if match := _HEAD.fullmatch(line):
            if is_open and counts:
                text.refuse(
                    number, "the table before this one has no end", "the file is damaged: take it again"
                )
            switch, listed, is_open = entries.begin_table(int(match[2], 16), number), 0, True
            top = match[1] or "0"
            entries.last_lid = int(top, 16 if top.startswith("0x") else 10) if top.isalnum() else 0
        elif match := _ENTRY.fullmatch(line):
            if switch < 0:
                text.refuse(number, "an entry before the first switch", "is the file complete?")
            listed += 1
            port = int(match[2])
            guid = _GUID.search(line)
            if port > NO_PORT:
                text.refuse(number, f"no port has the number {port}")
            if port != NO_PORT:
                entries.add_entry(switch, int(match[1], 16), port, number, int(guid[1], 16) if guid else 0)
        elif match := _COUNT.fullmatch(line):
            if is_open and match[2] and int(match[1]) != listed:
                text.refuse(
                    number,
                    f"{listed} entries, and {match[1]} were written",
                    "the file is damaged: take it again",
                )
            counts, is_open, is_diagnostic = True, False, bool(match[2])
        elif not _IGNORED.match(line) and not is_harmless(text, number, line):
            text.refuse(number, "not a line of forwarding tables", "give the output of dump_fts unchanged")
    if switch < 0:
        text.refuse(text.last, "no forwarding table", "give the output of dump_fts, or opensm-lfts.dump")
    if counts and is_open:
        text.refuse(text.last, "the file ends within a table", "it is cut short: take it again")
    return entries.finish(is_diagnostic)
