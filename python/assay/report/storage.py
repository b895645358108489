"""Prints the results of storage benchmarks: stock and accelerated I/O side by side.

IOR's results are also printed in the output format of IOR itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.records.schema import AnyRecord, Measurement, Scalar
from assay.records.storage import ACCELERATED, HDF5, IOR, SOLVER, SPEEDUP, STOCK, Figure, pair_variants
from assay.records.units import format_quantity, format_size
from assay.report.device import show_device
from assay.report.ior import HEADER, iterations, line, tests
from assay.report.metadata import show_metadata

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
    pairs = list(pair_variants(records, SOLVER, "bandwidth"))
    if not pairs:
        return
    times = {metric: list(pair_variants(records, SOLVER, metric)) for metric in PHASES}
    table = _table(["MPI", "nodes", "ranks", "grid", "output"], [*PHASES.values(), "write rate", "speedup"])
    for k, pair in enumerate(pairs):
        params = _params(pair)
        grid = f"{params['length']} x {params['length']}"
        row = [str(params[key]) for key in ("mpi", "nodes", "ranks")]
        phases = [
            _stock_and_accelerated(times[metric][k]) if k < len(times[metric]) else "-" for metric in PHASES
        ]
        table.add_row(
            *row,
            grid,
            f"{params['iotype']}, {params['calls']}",
            *phases,
            _stock_and_accelerated(pair),
            _speedup(pair, records),
        )
    console.print(table)
    legend = "phases: time of the slowest rank, stock / accelerated; speedup of the write rate; medians over all rounds"
    console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _show_hdf5(console: Console, records: Sequence[AnyRecord]) -> None:
    raw = list(pair_variants(records, HDF5, "raw_rate"))
    if not raw:
        return
    observed = list(pair_variants(records, HDF5, "observed_rate"))
    table = _table(
        ["MPI", "operation", "nodes", "ranks", "memory to file"], ["raw", "speedup", "observed", "speedup"]
    )
    for raw_pair, observed_pair in zip(raw, observed, strict=False):
        params = _params(raw_pair)
        patterns = f"{params['mem_pattern']} to {params['file_pattern']}, {params['calls']}"
        if "read_option" in params:
            patterns += f", {params['read_option']}"
        row = [str(params[key]) for key in ("mpi", "op", "nodes", "ranks")]
        table.add_row(
            *row,
            patterns,
            _stock_and_accelerated(raw_pair),
            _speedup(raw_pair, records),
            _stock_and_accelerated(observed_pair),
            _speedup(observed_pair, records),
        )
    console.print(table)
    legend = "raw: rate in H5Dwrite and H5Dread; observed: rate from open to close; stock / accelerated"
    console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _stock_and_accelerated(pair: dict[str, Figure]) -> str:
    return " / ".join(
        _format(pair[variant], lambda f: f.median) for variant in (STOCK, ACCELERATED) if variant in pair
    )


def _params(pair: dict[str, Figure]) -> dict[str, Scalar]:
    """The parameters of either variant; they differ in ``io`` alone."""
    return next(iter(pair.values())).params


def _show_ior(console: Console, records: Sequence[AnyRecord]) -> None:
    pairs = list(pair_variants(records, IOR, "bandwidth"))
    if not pairs:
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
                console.print(line(row, number), soft_wrap=True)
        console.print()
    rates, latencies = (list(pair_variants(records, IOR, metric)) for metric in ("rate", "latency"))
    rows = list(zip(pairs, rates, latencies, strict=False))
    for mpi in dict.fromkeys(_params(pair)["mpi"] for pair in pairs):
        console.print(Text(str(mpi), style="bold"))
        text_columns, number_columns = (
            ["operation", "nodes", "ranks", "transfer"],
            ["stock", "accelerated", "speedup", "transfers"],
        )
        table = _table(text_columns, [*number_columns, "p50", "p99"])
        for pair, rate, latency in rows:
            params = _params(pair)
            if params["mpi"] != mpi:
                continue
            payload = f", {params['data']}" if "data" in params else ""
            cells = [f"{params['op']}{payload}", str(params["nodes"]), str(params["ranks"])]
            size = format_size(int(params["transfer"]))
            table.add_row(
                *cells, size, *_rates(pair, records), _speedup(rate, records), *_percentiles(latency)
            )
        console.print(table)
    legend = (
        "bandwidth from open to close, medians over all rounds; speedup: median over rounds of accelerated / stock;\n"
        "transfers: the same without open and close; p50, p99: time of a transfer, stock / accelerated"
    )
    console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _table(text_columns: Sequence[str], number_columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in text_columns:
        table.add_column(title, no_wrap=title != text_columns[-1])
    for title in number_columns:
        table.add_column(title, justify="right")
    return table


def _rates(pair: dict[str, Figure], records: Iterable[AnyRecord]) -> list[str]:
    """The cells stock, accelerated and speedup."""
    medians = [_format(pair.get(variant), lambda figure: figure.median) for variant in (STOCK, ACCELERATED)]
    return [*medians, _speedup(pair, records)]


def _speedup(pair: dict[str, Figure], records: Iterable[AnyRecord]) -> str:
    """The median of the pair's speedup record, or "-"."""
    figure = next(iter(pair.values()))
    params = {"of": figure.name, "figure": figure.metric} | {
        key: value for key, value in figure.params.items() if key != "io"
    }
    for r in records:
        if isinstance(r, Measurement) and r.name == SPEEDUP and r.summary and r.params == params:
            return f"{r.summary.median:.2f}"
    return "-"


def _percentiles(pair: dict[str, Figure]) -> list[str]:
    """The cells p50 and p99, each "stock / accelerated"."""
    cells = []
    for statistic in (lambda figure: figure.median, lambda figure: figure.percentile("p99")):
        values = [_format(pair[variant], statistic) for variant in (STOCK, ACCELERATED) if variant in pair]
        cells.append(" / ".join(values))
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
