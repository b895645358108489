"""Collects forwarding tables as a file lists them, and checks them against the fabric.

A table of an unknown switch, a switch without a table, a LID that the fabric does not have and a LID of another port
are refused: the tables and the topology were not taken at the same time, or are incomplete.
"""

from __future__ import annotations

import numpy as np

from assay.fabric.read.text import LineReader
from assay.fabric.tables import NO_ENTRY, ForwardingTables
from assay.fabric.topology import LAST_UNICAST_LID, Fabric

LIDS = LAST_UNICAST_LID + 1
BLOCK = 64  # LIDs that a switch tells at once
FIX_MISMATCH = (
    "dump the topology and the tables again, both at the same time: they differ, or one is truncated"
)
FIX_UNKNOWN_LID = (
    f"{FIX_MISMATCH}; LIDs of virtual ports (SR-IOV) are like those of missing hosts, and not read"
)


class TableBuilder:
    """Builds the tables while a file is read: ``begin_table`` begins a table, ``add_entry`` adds an entry to it."""

    def __init__(self, text: LineReader, fabric: Fabric) -> None:
        self.text = text
        self.fabric = fabric
        self._switches = {int(guid): number for number, guid in enumerate(fabric.switch_guids)}
        self._host = np.full(LIDS, -1, np.int32)  # by LID; -1: not a host's LID, or not its first one
        self._host[fabric.host_lids] = np.arange(fabric.hosts)
        self._host[0] = -1
        self._guid = np.zeros(LIDS, np.uint64)  # by LID; 0: not assigned to a port
        self._add_guids(fabric)
        if not (self._host >= 0).any():
            text.refuse(1, f"{fabric.source} contains no LIDs, so forwarding tables cannot be assigned to it")
        self._ports = np.full((fabric.switches, fabric.hosts), NO_ENTRY, np.uint16)
        self._lines = np.zeros((fabric.switches, fabric.hosts), np.int32)
        self._table_lines: dict[int, int] = {}  # by switch: line at which its table begins
        self._entry_lines = np.zeros(LIDS, np.int32)  # by LID: line of its entry in the current table
        self.last_lid = 0  # the highest one of the current table, where its heading says it
        self._cut: dict[
            int, int
        ] = {}  # hosts' LIDs at the begin of a block that are the last of a table without them

    def _add_guids(self, fabric: Fabric) -> None:
        lids = np.concatenate([fabric.switch_lids, fabric.host_lids])
        guids = np.concatenate([fabric.switch_guids, fabric.host_guids])
        lmc = fabric.node_lmc if len(fabric.node_lmc) else np.zeros(len(lids), np.int32)
        for first, bits, guid in zip(lids, lmc, guids, strict=True):
            if first:
                self._guid[first : first + (1 << int(bits))] = guid

    def begin_table(self, guid: int, line: int) -> int:
        """Begins the table of a switch; returns its number."""
        number = self._switches.get(guid)
        if number is None:
            self.text.refuse(line, f"switch {guid:#018x} is not in {self.fabric.source}", FIX_MISMATCH)
        if number in self._table_lines:
            self.text.refuse(
                line,
                f"a second table of switch {self.fabric.switch_names[number]}, the first is on line "
                f"{self._table_lines[number]}",
                "give one dump, not two",
            )
        self._end_table()
        self._table_lines[number] = line
        self._lines[number] = line
        self._entry_lines[:] = 0
        return number

    def _end_table(self) -> None:
        lid = self.last_lid
        if lid and lid % BLOCK == 0 and lid < LIDS and self._host[lid] >= 0 and not self._entry_lines[lid]:
            self._cut[lid] = int(self._host[lid])
        self.last_lid = 0

    def add_entry(self, switch: int, lid: int, port: int, line: int, guid: int = 0) -> None:
        """An entry; ``guid`` is that of the port which the file names for the LID, 0 where it names none."""
        port_guid = int(self._guid[lid]) if lid < LIDS else 0
        if not port_guid:
            self.text.refuse(line, f"LID {lid} belongs to no port of {self.fabric.source}", FIX_UNKNOWN_LID)
        if self._entry_lines[lid]:
            self.text.refuse(
                line, f"a second entry for LID {lid}, the first is on line {self._entry_lines[lid]}"
            )
        if guid and guid != port_guid:
            self.text.refuse(
                line,
                f"LID {lid} belongs to {guid:#018x} here and to {port_guid:#018x} in {self.fabric.source}",
                FIX_MISMATCH,
            )
        self._entry_lines[lid] = line
        host = self._host[lid]
        if host >= 0:
            self._ports[switch, host], self._lines[switch, host] = port, line

    def finish(self, is_diagnostic: bool = False) -> ForwardingTables:
        """``is_diagnostic``: of dump_fts, or of ibroute, which prints the table of one switch."""
        self._end_table()
        if is_diagnostic and self._cut:
            lid, host = next(iter(self._cut.items()))
            self.text.refuse(
                self.text.last,
                f"no table has LID {lid} ({self.fabric.host_names[host]}), the last one: dump_fts and ibroute leave it "
                f"out if it is a multiple of {BLOCK}",
                "give opensm-lfts.dump or opensm.fdbs (opensm -D 0x40), or ibdiagnet's .fdbs",
            )
        missing = [name for k, name in enumerate(self.fabric.switch_names) if k not in self._table_lines]
        if not missing:
            return ForwardingTables(self._ports, str(self.text.path), self._lines)
        problem = f"the file ends without a table of switch {missing[0]}"
        if is_diagnostic and len(self._table_lines) == 1:
            name = self.fabric.switch_names[next(iter(self._table_lines))]
            self.text.refuse(
                self.text.last,
                f"the output of ibroute, which has the table of {name} alone: {problem}",
                "give the tables of all switches: dump_fts > fts.txt, or the output of ibroute for each in one file",
            )
        self.text.refuse(self.text.last, problem, FIX_MISMATCH)
