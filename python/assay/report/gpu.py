"""Prints GPU copies: the two lines of gpu-copy, then each GPU alone and with all others.

gpu-copy is an acceptance test of COBALT, the correlator of the LOFAR radio telescope.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from assay.records.schema import AnyRecord, Measurement
from assay.records.units import format_bit_rate, format_quantity, format_size
from assay.report.tables import plain_table

NAME = "node.gpu_copy"
TOTALS = {"h2d": "Total write speed:", "d2h": "Total read speed: ", "both": "Both at once:     "}
HEADINGS = {"h2d": "write", "d2h": "read", "both": "both"}
LEGEND = (
    "write: from this machine's memory to the GPU; read: from it; both: the sum of both directions at once.\n"
    "alone / all: while no other GPU copies / while all do. link: the PCIe rate of one direction at the link's speed\n"
    "during the copy, packet headers included."
)

Figures = dict[tuple[str, str, str], Measurement]  # by metric, direction, and gpus ("one", "all", "")


def show_gpu(console: Console, records: Iterable[AnyRecord]) -> None:
    measured = [r for r in records if isinstance(r, Measurement) and r.name == NAME and r.summary is not None]
    for host in dict.fromkeys(r.subject.host for r in measured):
        _show_host(console, [r for r in measured if r.subject.host == host])


def _show_host(console: Console, records: list[Measurement]) -> None:
    gpus: dict[str, Figures] = {}
    for r in records:
        key = (r.metric, str(r.params.get("direction", "")), str(r.params.get("gpus", "")))
        gpus.setdefault(r.subject.device or "", {})[key] = r
    totals = gpus.pop("", {})
    _show_totals(console, totals)
    table = plain_table(
        *("gpu", "", "pci", "numa"),
        numbers=[
            "link",
            *(f"{heading}, {load}" for heading in HEADINGS.values() for load in ("alone", "all")),
        ],
    )
    for device, figures in gpus.items():
        first = next(iter(figures.values()))
        node = "-" if first.subject.numa is None else str(first.subject.numa)
        link = max((r.median for (metric, *_), r in figures.items() if metric == "link"), default=None)
        cells = [
            _cell(figures.get(("bandwidth", direction, load)))
            for direction in HEADINGS
            for load in ("one", "all")
        ]
        shown_link = "-" if link is None else format_quantity(link, "B/s")
        table.add_row(device, str(first.params["name"]), str(first.params["pci"]), node, shown_link, *cells)
    console.print(table)
    console.print(Text(LEGEND, style="dim"))
    for text in dict.fromkeys(_sizes(r) for figures in gpus.values() for r in figures.values()):
        console.print(Text(text, style="dim"))
    corrupted = sum(r.median for f in gpus.values() for (metric, *_), r in f.items() if metric == "corrupted")
    if corrupted:
        copies = "1 copy" if corrupted == 1 else f"{corrupted:.0f} copies"
        console.print(Text(f"{copies} did not arrive as sent", style="bold red"))
    console.print()


def _show_totals(console: Console, totals: Figures) -> None:
    for direction, label in TOTALS.items():
        total = totals.get(("total", direction, ""))
        if total is None:
            continue
        remark = "" if total.status == "ok" else f"   not valid: {total.reason}"
        console.print(Text(f"{label} {format_bit_rate(total.median)}{remark}"), soft_wrap=True)


def _sizes(record: Measurement) -> str:
    """ "8 copies of 64 MiB in a row", and the size that was asked for where memory has no room for it."""
    params = record.params
    copies, size = int(params.get("copies", 1)), int(params.get("size", 0))
    text = f"{'1 copy' if copies == 1 else f'{copies} copies'} of {format_size(size)}"
    text += "" if copies == 1 else " in a row"
    if "requested" in params:
        text += f", not of {format_size(int(params['requested']))}: memory is short"
    return text


def _cell(record: Measurement | None) -> str:
    return "-" if record is None else format_quantity(record.median, record.unit)
