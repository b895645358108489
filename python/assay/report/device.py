"""Prints the bandwidth of a node's local storage: a table for each operation and pattern, then the peak rates.

A table has a row for each access method and number of threads, and a column for each transfer size.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from assay.records.schema import AnyRecord
from assay.records.storage import DEVICE, Figure, figures
from assay.records.units import format_quantity, format_size
from assay.report.tables import plain_table

METHODS = {
    "call": "read/write calls",
    "direct": "O_DIRECT calls",
    "mmap": "mmap",
    "stream": "mmap, non-temporal stores",
}


def show_device(console: Console, records: Iterable[AnyRecord]) -> None:
    bandwidths = figures(records, DEVICE, "bandwidth")
    for host, file_system in dict.fromkeys((f.subject.host, f.params.get("file_system")) for f in bandwidths):
        of_target = [
            f for f in bandwidths if (f.subject.host, f.params.get("file_system")) == (host, file_system)
        ]
        path = of_target[0].records[0].subject.device
        for op, pattern in dict.fromkeys((f.params["op"], f.params["pattern"]) for f in of_target):
            rows = [f for f in of_target if (f.params["op"], f.params["pattern"]) == (op, pattern)]
            _show_table(console, f"{op}, {pattern}: {path} on {host}, {file_system}", rows)
        for op in dict.fromkeys(f.params["op"] for f in of_target):
            best = max((f for f in of_target if f.params["op"] == op), key=lambda f: f.median)
            console.print(
                Text(f"peak {op}: {format_quantity(best.median, best.unit)} ({_describe(best)})"),
                soft_wrap=True,
            )
        if all(f.params["op"] == "write" for f in of_target):
            console.print("nothing was read back: whether the data are right stays open (--op write,read)")
        console.print()


def _describe(figure: Figure) -> str:
    p = figure.params
    threads = f"{p['threads']} thread" + ("" if p["threads"] == 1 else "s")
    return f"{p['pattern']}, {METHODS[str(p['method'])]}, {threads}, {format_size(int(p['transfer']))}"


def _show_table(console: Console, title: str, rows: list[Figure]) -> None:
    sizes = sorted({int(f.params["transfer"]) for f in rows})
    console.print(Text(title, style="bold"), soft_wrap=True)
    table = plain_table("method", numbers=["threads", *(format_size(size) for size in sizes)])
    for method, threads in dict.fromkeys((f.params["method"], f.params["threads"]) for f in rows):
        cells = {
            int(f.params["transfer"]): format_quantity(f.median, f.unit)
            for f in rows
            if (f.params["method"], f.params["threads"]) == (method, threads)
        }
        table.add_row(METHODS[str(method)], str(threads), *(cells.get(size, "-") for size in sizes))
    console.print(table)
    console.print()
