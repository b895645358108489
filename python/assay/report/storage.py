"""Prints the results of storage benchmarks: stock and accelerated I/O side by side.

IOR's results are also printed in the output format of IOR itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.records.schema import AnyRecord, Measurement
from assay.records.storage import (
    ACCELERATED,
    HDF5,
    IOR,
    SOLVER,
    SPEEDUP,
    STOCK,
    Figure,
    Variants,
    match_variants,
    params_of,
)
from assay.records.units import format_quantity, format_size
from assay.report.device import show_device
from assay.report.ior import HEADER, format_row, iterations, tests
from assay.report.metadata import show_metadata
from assay.report.tables import plain_table

PHASES = {"compute_time": "compute", "communication_time": "communication", "write_time": "write"}
MAX_ROWS = 24  # with more rows the table in IOR's format is left out


def show_storage(console: Console, records: Sequence[AnyRecord]) -> None:
    _show_ior(console, records)
    _show_solver(console, records)
    _show_hdf5(console, records)
    show_metadata(console, records)
    show_device(console, records)
    _show_waived(console, records)


def _show_solver(console: Console, records: Sequence[AnyRecord]) -> None:
    """Prints phase times and write rate of the reaction-diffusion solver."""
    rows = match_variants(records, SOLVER, ["bandwidth", *PHASES])
    if not rows:
        return
    table = _table(["MPI", "nodes", "ranks", "grid", "output"], [*PHASES.values(), "write rate", "speedup"])
    for bandwidth, *times in rows:
        params = params_of([bandwidth, *times])
        grid = f"{params['length']} x {params['length']}"
        row = [str(params[key]) for key in ("mpi", "nodes", "ranks")]
        table.add_row(
            *row,
            grid,
            f"{params['iotype']}, {params['calls']}",
            *map(_stock_and_accelerated, times),
            _stock_and_accelerated(bandwidth),
            _speedup(bandwidth, records),
        )
    console.print(table)
    legend = "phases: time of the slowest rank, stock / accelerated; speedup of the write rate; medians over all rounds"
    console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _show_hdf5(console: Console, records: Sequence[AnyRecord]) -> None:
    rows = match_variants(records, HDF5, ["raw_rate", "observed_rate"])
    if not rows:
        return
    table = _table(
        ["MPI", "operation", "nodes", "ranks", "memory to file"], ["raw", "speedup", "observed", "speedup"]
    )
    for raw, observed in rows:
        params = params_of([raw, observed])
        patterns = f"{params['mem_pattern']} to {params['file_pattern']}, {params['calls']}"
        if "read_option" in params:
            patterns += f", {params['read_option']}"
        row = [str(params[key]) for key in ("mpi", "op", "nodes", "ranks")]
        table.add_row(
            *row,
            patterns,
            _stock_and_accelerated(raw),
            _speedup(raw, records),
            _stock_and_accelerated(observed),
            _speedup(observed, records),
        )
    console.print(table)
    legend = "raw: rate in H5Dwrite and H5Dread; observed: rate from open to close; stock / accelerated"
    console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _stock_and_accelerated(figures: Variants) -> str:
    values = [
        _format(figures[variant], lambda f: f.median)
        for variant in (STOCK, ACCELERATED)
        if variant in figures
    ]
    return " / ".join(values) or "-"


def _show_ior(console: Console, records: Sequence[AnyRecord]) -> None:
    rows = match_variants(records, IOR, ["bandwidth", "rate", "latency"])
    if not rows:
        return
    ior_rows = [row for test in tests(records) for row in iterations(test)]
    if len(ior_rows) <= MAX_ROWS:
        for test in tests(records):
            params = test[0].params
            console.print(
                Text(
                    f"{params['io']}, {params['mpi']}, {params['ranks']} ranks on {params['nodes']} nodes",
                    style="bold",
                )
            )
            console.print(HEADER, soft_wrap=True)
            for number, row in iterations(test):
                console.print(format_row(row, number), soft_wrap=True)
        console.print()
    for mpi in dict.fromkeys(params_of(row)["mpi"] for row in rows):
        console.print(Text(str(mpi), style="bold"))
        text_columns, number_columns = (
            ["operation", "nodes", "ranks", "transfer"],
            ["stock", "accelerated", "speedup", "transfers"],
        )
        table = _table(text_columns, [*number_columns, "p50", "p99"])
        for bandwidth, rate, latency in rows:
            params = params_of([bandwidth, rate, latency])
            if params["mpi"] != mpi:
                continue
            payload = f", {params['data']}" if "data" in params else ""
            cells = [f"{params['op']}{payload}", str(params["nodes"]), str(params["ranks"])]
            size = format_size(int(params["transfer"]))
            table.add_row(
                *cells, size, *_rates(bandwidth, records), _speedup(rate, records), *_percentiles(latency)
            )
        console.print(table)
    legend = (
        "bandwidth from open to close, medians over all rounds; speedup: median over rounds of accelerated / stock;\n"
        "transfers: the same without open and close; p50, p99: time of a transfer, stock / accelerated"
    )
    console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _table(text_columns: Sequence[str], number_columns: Sequence[str]) -> Table:
    table = plain_table(*text_columns, numbers=number_columns)
    for column in table.columns[: len(text_columns) - 1]:
        column.no_wrap = True
    return table


def _rates(figures: Variants, records: Iterable[AnyRecord]) -> list[str]:
    """The cells stock, accelerated and speedup."""
    medians = [
        _format(figures.get(variant), lambda figure: figure.median) for variant in (STOCK, ACCELERATED)
    ]
    return [*medians, _speedup(figures, records)]


def _speedup(figures: Variants, records: Iterable[AnyRecord]) -> str:
    """The median of the speedup record of these figures, or "-"."""
    if not figures:
        return "-"
    figure = next(iter(figures.values()))
    params = {"benchmark": figure.name, "figure": figure.metric} | {
        key: value for key, value in figure.params.items() if key != "io"
    }
    for r in records:
        if isinstance(r, Measurement) and r.name == SPEEDUP and r.summary and r.params == params:
            return f"{r.summary.median:.2f}"
    return "-"


def _percentiles(figures: Variants) -> list[str]:
    """The cells p50 and p99, each "stock / accelerated"."""
    cells = []
    for statistic in (lambda figure: figure.median, lambda figure: figure.p99):
        values = [
            _format(figures[variant], statistic) for variant in (STOCK, ACCELERATED) if variant in figures
        ]
        cells.append(" / ".join(values) or "-")
    return cells


def _format(figure: Figure | None, statistic: Callable[[Figure], float | None]) -> str:
    value = statistic(figure) if figure else None
    return "-" if value is None or figure is None else format_quantity(value, figure.unit)


def _show_waived(console: Console, records: Iterable[AnyRecord]) -> None:
    reasons = {
        (r.name, r.reason or "")
        for r in records
        if isinstance(r, Measurement) and r.name.startswith("storage.") and r.status == "waived"
    }
    for name, reason in sorted(reasons):
        console.print(Text(f"{name}: waived, {reason}"), soft_wrap=True)
    if reasons:
        console.print()
