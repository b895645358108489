"""Storage benchmarks in the terminal: stock and accelerated side by side, then each in its original's own columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.records.schema import AnyRecord, Measurement, Scalar
from assay.records.storage import ACCELERATED, HDF5, IOR, SOLVER, SPEEDUP, STOCK, Figure, side_by_side
from assay.records.units import format_quantity, format_size
from assay.report.device import show_device
from assay.report.ior import HEADER, iterations, line, tests

PHASES = {"compute_time": "compute", "communication_time": "communication", "write_time": "write"}
MOST_ROWS = 24  # of IOR's own table; a sweep is read side by side


def show_storage(console: Console, records: Sequence[AnyRecord]) -> None:
    _show_ior(console, records)
    _show_solver(console, records)
    _show_hdf5(console, records)
    show_device(console, records)
    _show_waived(console, records)


def _show_solver(console: Console, records: Sequence[AnyRecord]) -> None:
    """Where the time goes, and what the writing reaches."""
    pairs = list(side_by_side(records, SOLVER, "bandwidth"))
    if not pairs:
        return
    times = {metric: list(side_by_side(records, SOLVER, metric)) for metric in PHASES}
    table = _table(
        ["MPI", "nodes", "ranks", "square", "written as"], [*PHASES.values(), "write rate", "times"]
    )
    for k, pair in enumerate(pairs):
        params = _params(pair)
        square = f"{params['length']} x {params['length']}"
        row = [str(params[key]) for key in ("mpi", "nodes", "ranks")]
        phases = [_variants(times[metric][k]) if k < len(times[metric]) else "-" for metric in PHASES]
        table.add_row(
            *row,
            square,
            f"{params['iotype']}, {params['calls']}",
            *phases,
            _variants(pair),
            _times(pair, records),
        )
    console.print(table)
    legend = (
        "the longest rank's seconds and the rate of writing, stock / accelerated; medians over all rounds"
    )
    console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _show_hdf5(console: Console, records: Sequence[AnyRecord]) -> None:
    raw = list(side_by_side(records, HDF5, "raw_rate"))
    if not raw:
        return
    observed = list(side_by_side(records, HDF5, "observed_rate"))
    table = _table(
        ["MPI", "operation", "nodes", "ranks", "memory to file"], ["raw", "times", "observed", "times"]
    )
    for one, other in zip(raw, observed, strict=False):
        params = _params(one)
        patterns = f"{params['mem_pattern']} to {params['file_pattern']}, {params['calls']}"
        if "read_option" in params:
            patterns += f", {params['read_option']}"
        row = [str(params[key]) for key in ("mpi", "op", "nodes", "ranks")]
        table.add_row(
            *row, patterns, _variants(one), _times(one, records), _variants(other), _times(other, records)
        )
    console.print(table)
    legend = "raw: in H5Dwrite and H5Dread; observed: from opening to closing the file; stock / accelerated"
    console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _variants(pair: dict[str, Figure]) -> str:
    return " / ".join(_figure(pair[one], lambda f: f.median) for one in (STOCK, ACCELERATED) if one in pair)


def _params(pair: dict[str, Figure]) -> dict[str, Scalar]:
    """Of either variant: they differ in nothing else."""
    return next(iter(pair.values())).params


def _show_ior(console: Console, records: Sequence[AnyRecord]) -> None:
    pairs = list(side_by_side(records, IOR, "bandwidth"))
    if not pairs:
        return
    own = [row for test in tests(records) for row in iterations(test)]
    if len(own) <= MOST_ROWS:
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
    rates, latencies = (list(side_by_side(records, IOR, metric)) for metric in ("rate", "latency"))
    rows = list(zip(pairs, rates, latencies, strict=False))
    for mpi in dict.fromkeys(_params(pair)["mpi"] for pair in pairs):
        console.print(Text(str(mpi), style="bold"))
        texts, numbers = (
            ["operation", "nodes", "ranks", "transfer"],
            ["stock", "accelerated", "times", "alone"],
        )
        table = _table(texts, [*numbers, "p50", "p99"])
        for pair, rate, latency in rows:
            params = _params(pair)
            if params["mpi"] != mpi:
                continue
            whose = f", {params['data']}" if "data" in params else ""
            about = [f"{params['op']}{whose}", str(params["nodes"]), str(params["ranks"])]
            size = format_size(int(params["transfer"]))
            table.add_row(*about, size, *_both(pair, records), _times(rate, records), *_percentiles(latency))
        console.print(table)
    legend = (
        "bandwidth from opening to closing the file, medians over all rounds; times: accelerated over stock, "
        "round by round;\nalone: of the transfers without opening and closing; p50, p99: of one transfer, "
        "stock / accelerated"
    )
    console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in texts:
        table.add_column(title, no_wrap=title != texts[-1])
    for title in numbers:
        table.add_column(title, justify="right")
    return table


def _both(pair: dict[str, Figure], records: Iterable[AnyRecord]) -> list[str]:
    cells = [_figure(pair.get(variant), lambda one: one.median) for variant in (STOCK, ACCELERATED)]
    return [*cells, _times(pair, records)]


def _times(pair: dict[str, Figure], records: Iterable[AnyRecord]) -> str:
    """The speedup's own record."""
    one = next(iter(pair.values()))
    wanted = {"of": one.name, "figure": one.metric} | {
        key: value for key, value in one.params.items() if key != "io"
    }
    for r in records:
        if isinstance(r, Measurement) and r.name == SPEEDUP and r.summary and r.params == wanted:
            return f"{r.summary.median:.2f}"
    return "-"


def _percentiles(pair: dict[str, Figure]) -> list[str]:
    shown = []
    for read in (lambda one: one.median, lambda one: one.percentile("p99")):
        values = [_figure(pair[variant], read) for variant in (STOCK, ACCELERATED) if variant in pair]
        shown.append(" / ".join(values))
    return shown


def _figure(one: Figure | None, read: Callable[[Figure], float | None]) -> str:
    value = read(one) if one else None
    return "-" if value is None or one is None else format_quantity(value, one.unit)


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
