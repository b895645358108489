"""Prints the bytes that each adapter of a host carried, beside the speed of its link."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from ClusterShell.NodeSet import NodeSet
from rich.console import Console

from assay.explain.adapters import Adapters, adapters_of
from assay.records.schema import AnyRecord, Measurement
from assay.records.text import printable
from assay.records.units import format_quantity, format_share
from assay.report.tables import plain_table


def show_wire(console: Console, records: Sequence[AnyRecord]) -> None:
    """Prints a row for each adapter; hosts with the same adapter and link speed share a row, with the median of their
    bytes. Prints nothing where each host has one adapter of unknown speed."""
    if not any(isinstance(r, Measurement) and r.name == "network.wire" for r in records):
        return
    hosts = adapters_of(records)
    rows: dict[tuple[str, float], list[tuple[str, Adapters]]] = defaultdict(list)
    for host, adapters in hosts.items():
        for device in {**adapters.sent, **adapters.speed}:
            rows[device, adapters.speed.get(device, 0.0)].append((host, adapters))
    if not any(speed for _, speed in rows) and all(
        len(host_adapters.sent) == 1 for host_adapters in hosts.values()
    ):
        return
    table = plain_table("adapter", "hosts", numbers=["sent", "of its host's bytes", "link"])
    for (device, speed), group in sorted(rows.items()):
        sent = median(host_adapters.sent.get(device, 0.0) for _, host_adapters in group)
        share = median(host_adapters.share(device) for _, host_adapters in group)
        link = format_quantity(speed, "B/s") if speed else "unknown"
        names = printable(str(NodeSet.fromlist([host for host, _ in group])))
        table.add_row(printable(device), names, format_quantity(sent, "B"), format_share(share), link)
    console.print(table)
    console.print()
