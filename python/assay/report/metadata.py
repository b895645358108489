"""Prints the rates of metadata operations (create, stat, ...): one row each, stock and accelerated side by side."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.records.schema import AnyRecord
from assay.records.storage import ACCELERATED, METADATA, STOCK, Figure, Variants, match_variants, params_of
from assay.records.units import format_quantity
from assay.report.tables import plain_table

INTERFACES = {"posix": "POSIX", "mpiio": "MPI-IO"}
LEGEND = (
    "rate: operations of all ranks (readdir: entries) divided by the time of the slowest rank; median over all\n"
    "iterations, ± half the distance from the 5th to the 95th percentile; p50, p99: latency of one operation"
)


def show_metadata(console: Console, records: Sequence[AnyRecord]) -> None:
    groups: dict[str, list[list[Variants]]] = defaultdict(list)
    for row in match_variants(records, METADATA, ["rate", "latency"]):
        groups[_title(row)].append(row)
    for title, rows in groups.items():
        console.print(Text(title, style="bold"))
        console.print(_table(rows))
    if groups:
        console.print(Text(LEGEND, style="dim"), soft_wrap=True)
        console.print()


def _title(row: Sequence[Variants]) -> str:
    params = params_of(row)
    directory = "one shared directory" if params["directory"] == "shared" else "a directory per rank"
    return f"{params['mpi']}, {params['ranks']} ranks on {params['nodes']} nodes, {directory}"


def _table(rows: Sequence[Sequence[Variants]]) -> Table:
    """``rows``: the rate and the latency of each operation."""
    variants = [
        variant
        for variant in (STOCK, ACCELERATED)
        if any(variant in figures for row in rows for figures in row)
    ]
    table = plain_table()
    for title in ("operation", "interface"):
        table.add_column(title, no_wrap=True)
    for variant in variants:
        for title in (variant, "p50", "p99"):
            table.add_column(title, justify="right", no_wrap=True)
    for rate, latency in rows:
        params = params_of([rate, latency])
        cells = [str(params["op"]), INTERFACES.get(str(params["api"]), "-")]
        for variant in variants:
            cells += [_rate(rate.get(variant)), *_percentiles(latency.get(variant))]
        table.add_row(*cells)
    return table


def _rate(figure: Figure | None) -> str:
    """Formats the median over all iterations, ± half the distance from the 5th to the 95th percentile in per cent."""
    if figure is None:
        return "-"
    samples = sorted(figure.samples)
    median = statistics.median(samples)
    if len(samples) < 2 or median <= 0:
        return format_quantity(median, figure.unit)
    p5, *_, p95 = statistics.quantiles(samples, n=20, method="inclusive")
    return f"{format_quantity(median, figure.unit)} ± {(p95 - p5) / 2 / median:.0%}"


def _percentiles(figure: Figure | None) -> list[str]:
    """The cells p50 and p99."""
    if figure is None:
        return ["-", "-"]
    p99 = figure.p99
    return [
        format_quantity(figure.median, figure.unit),
        "-" if p99 is None else format_quantity(p99, figure.unit),
    ]
