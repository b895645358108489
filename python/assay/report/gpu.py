"""GPU copies in the terminal: the two lines of COBALT's gpu-copy, then each GPU alone and among the others."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.records.schema import AnyRecord, Measurement
from assay.records.units import format_quantity

NAME = "node.gpu_copy"
TOTALS = {"h2d": "Total write speed:", "d2h": "Total read speed: ", "both": "Both at once:     "}
HEADINGS = {"h2d": "write", "d2h": "read", "both": "both"}
LEGEND = (
    "write: from this machine's memory to the GPU; read: from it; both: the sum of both ways at once. alone / all:\n"
    "while no other GPU copies / while all do. link: what PCIe carries one way at the link's speed while it copies;\n"
    "the headers of its packets are of that."
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
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("gpu", "", "pci", "numa"):
        table.add_column(heading)
    table.add_column("link", justify="right")
    for heading in HEADINGS.values():
        for when in ("alone", "all"):
            table.add_column(f"{heading}, {when}", justify="right")
    for device, figures in gpus.items():
        about = next(iter(figures.values()))
        node = "-" if about.subject.numa is None else str(about.subject.numa)
        link = max((_median(r) for (metric, *_), r in figures.items() if metric == "link"), default=None)
        cells = [_cell(figures.get(("bandwidth", way, when))) for way in HEADINGS for when in ("one", "all")]
        shown_link = "-" if link is None else format_quantity(link, "B/s")
        table.add_row(device, str(about.params["name"]), str(about.params["pci"]), node, shown_link, *cells)
    console.print(table)
    console.print(Text(LEGEND, style="dim"))
    corrupted = sum(
        _median(r) for f in gpus.values() for (metric, *_), r in f.items() if metric == "corrupted"
    )
    if corrupted:
        console.print(Text(f"{corrupted:.0f} copies did not arrive as they were sent", style="bold red"))
    console.print()


def _show_totals(console: Console, totals: Figures) -> None:
    for direction, words in TOTALS.items():
        total = totals.get(("total", direction, ""))
        if total is None:
            continue
        doubt = "" if total.status == "ok" else f"   not valid: {total.reason}"
        console.print(Text(f"{words} {_median(total) * 8 / 1e9:.2f} Gbit/s{doubt}"), soft_wrap=True)


def _median(record: Measurement) -> float:
    return record.summary.median if record.summary else float("nan")


def _cell(record: Measurement | None) -> str:
    return "-" if record is None else format_quantity(_median(record), record.unit)
