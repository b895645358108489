"""Collects forwarding tables as a file lists them, and holds them against the fabric.

A table of an unknown switch, a switch without a table, a LID that the fabric does not have and a LID of another port
mean that tables and topology are of different moments, or incomplete: they are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from assay.fabric.read.text import Text
from assay.fabric.tables import NO_ENTRY, ForwardingTables
from assay.fabric.topology import Fabric

OTHER_DAY = "take both dumps at one time: they are of different days, or one is cut short"


@dataclass
class Entries:
    text: Text
    fabric: Fabric
    tables: dict[int, tuple[int, dict[int, tuple[int, int]]]] = field(default_factory=dict)  # by switch

    def __post_init__(self) -> None:
        fabric = self.fabric
        self._switches = {int(guid): number for number, guid in enumerate(fabric.switch_guids)}
        self._hosts = {int(lid): number for number, lid in enumerate(fabric.host_lids) if lid}
        lids = np.concatenate([fabric.switch_lids, fabric.host_lids])
        lmc = fabric.node_lmc if len(fabric.node_lmc) else np.zeros(len(lids), np.int32)
        self._known = {
            int(first) + more
            for first, bits in zip(lids, lmc, strict=True)
            if first
            for more in range(1 << int(bits))
        }
        self._guids = {
            int(lid): int(guid)
            for lids, guids in (
                (fabric.host_lids, fabric.host_guids),
                (fabric.switch_lids, fabric.switch_guids),
            )
            for lid, guid in zip(lids, guids, strict=True)
            if lid
        }
        if not self._hosts:
            self.text.refuse(1, f"{fabric.source} gives no LID, so no table can be read for it")

    def switch(self, guid: int, line: int) -> int:
        """Begins the table of a switch; returns its number."""
        number = self._switches.get(guid)
        if number is None:
            self.text.refuse(line, f"switch {guid:#018x} is not in {self.fabric.source}", OTHER_DAY)
        if number in self.tables:
            self.text.refuse(
                line,
                f"a second table of switch {self.fabric.switch_names[number]}, the first is on line "
                f"{self.tables[number][0]}",
                "give one dump, not two",
            )
        self.tables[number] = (line, {})
        return number

    def entry(self, switch: int, lid: int, port: int, line: int, guid: int = 0) -> None:
        """An entry; ``guid`` is that of the port which the file names for the LID, 0 where it names none."""
        entries = self.tables[switch][1]
        if lid in entries:
            self.text.refuse(line, f"a second entry for LID {lid}, the first is on line {entries[lid][1]}")
        if lid not in self._known:
            self.text.refuse(line, f"LID {lid} belongs to no port of {self.fabric.source}", OTHER_DAY)
        if guid and self._guids.get(lid, guid) != guid:
            self.text.refuse(
                line,
                f"LID {lid} is that of {guid:#018x} here and of {self._guids[lid]:#018x} in {self.fabric.source}",
                OTHER_DAY,
            )
        entries[lid] = (port, line)

    def finished(self) -> ForwardingTables:
        fabric = self.fabric
        for number, name in enumerate(fabric.switch_names):
            if number not in self.tables:
                self.text.refuse(self.text.last, f"the file ends without a table of switch {name}", OTHER_DAY)
        ports = np.full((fabric.switches, fabric.hosts), NO_ENTRY, np.uint16)
        lines = np.zeros((fabric.switches, fabric.hosts), np.int32)
        for switch, (line, entries) in self.tables.items():
            lines[switch] = line
            for lid, (port, entry_line) in entries.items():
                host = self._hosts.get(lid)
                if host is not None:
                    ports[switch, host], lines[switch, host] = port, entry_line
        return ForwardingTables(ports, str(self.text.path), lines)
