"""An allocator study in the terminal: one table for each question, with a column or a row for each allocator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.text import Text

from assay.profile.alloc import CYCLE, HANDOVER, MIXED, REPLAY, RETENTION, THREADS, AllocStudy
from assay.records.schema import AnyRecord, Scalar
from assay.records.units import format_size
from assay.report.tables import plain_table, quantity_cell

PAGE_SIZED = 4096  # bytes; larger blocks do not share pages with others
CALLS = ("malloc", "free")
CALLS_AND_TOUCH = ("malloc", "first_touch", "free")

Cell = Callable[[str], str]


def show_alloc(console: Console, records: Iterable[AnyRecord]) -> None:
    study = AllocStudy(records)
    if not study.records:
        return
    _show_sizes(console, study)
    _show_methods(console, study)
    _show_retention(console, study)
    _show_rates(console, study)
    _show_mixed(console, study)
    _show_replay(console, study)
    _show_waived(console, study)


def _columns(
    console: Console, title: str, names: Sequence[str], rows: Sequence[tuple[str, Cell]], legend: str
) -> None:
    """A table with a column for each allocator; prints nothing if all cells are empty."""
    filled_rows = [(label, [cell(name) for name in names]) for label, cell in rows]
    filled_rows = [(label, cells) for label, cells in filled_rows if any(text != "-" for text in cells)]
    if not filled_rows:
        return
    table = plain_table(title, numbers=names)
    table.columns[0].no_wrap = True
    for label, cells in filled_rows:
        table.add_row(label, *cells)
    console.print(table)
    if legend:
        console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _count(value: float | None) -> str:
    """A number in a narrow form: "1.5 M"."""
    if value is None:
        return "-"
    return (
        f"{value / 1e6:.3g} M"
        if value >= 1e6
        else f"{value / 1e3:.3g} k"
        if value >= 1e5
        else quantity_cell(value, "1")
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _show_sizes(console: Console, study: AllocStudy) -> None:
    names, sizes = study.allocators(CYCLE), study.values(CYCLE, "size")
    for threads in study.values(CYCLE, "threads"):
        threads_label = f"{threads} thread" + ("" if threads == 1 else "s at once")

        def cost(metrics: Sequence[str], size: int, threads: int = threads) -> Cell:
            params: dict[str, Scalar] = {"size": size, "threads": threads, "state": "repeated"}
            return lambda name: quantity_cell(study.total(metrics, name, **params), "s")

        rows = [(format_size(size), cost(CALLS, size)) for size in sizes]
        legend = "median time a block; batches of blocks are allocated and freed repeatedly"
        _columns(console, f"malloc + free, {threads_label}", names, rows, legend)
        large = [size for size in sizes if size >= PAGE_SIZED]
        rows = [(format_size(size), cost(CALLS_AND_TOUCH, size)) for size in large]
        _columns(
            console,
            f"with first touch, {threads_label}",
            names,
            rows,
            "median time a block of malloc, one store a page, and free",
        )

        def faults(size: int, threads: int = threads) -> Cell:
            def cell(name: str) -> str:
                params: dict[str, Scalar] = {"size": size, "threads": threads}
                pair = [
                    study.total(("malloc_faults", "first_touch_faults"), name, **params, state=state)
                    for state in ("first", "repeated")
                ]
                return "-" if None in pair else " / ".join(_count(count) for count in pair)

            return cell

        rows = [(format_size(size), faults(size)) for size in large]
        legend = "per block, in malloc and first touch: first batch of a process / later batches"
        _columns(console, f"page faults, {threads_label}", names, rows, legend)


def _show_methods(console: Console, study: AllocStudy) -> None:
    """The largest block, timed in two ways: the clock around malloc alone, and around malloc and one store a page."""
    sizes = [size for size in study.values(CYCLE, "size") if size >= PAGE_SIZED]
    if not sizes:
        return
    size, threads = sizes[-1], study.values(CYCLE, "threads")[0]
    table = plain_table(
        f"For {format_size(size)}, first of a process",
        numbers=["malloc alone", "first access", "both in one", "access takes", "page faults"],
    )
    table.add_row("", "M cycles", "M cycles", "M cycles", "", "", style="dim")
    for name in study.allocators(CYCLE):
        params: dict[str, Scalar] = {"size": size, "threads": threads, "state": "first"}
        rate = study.median(CYCLE, "tick_rate", name)
        malloc_alone, access, both = (
            study.median(CYCLE, metric, name, **params)
            for metric in ("malloc", "first_touch", "malloc_touch")
        )
        if rate is None or malloc_alone is None or access is None:
            continue
        cycles = [
            f"{seconds * rate / 1e6:,.3f}" if seconds is not None else "-"
            for seconds in (malloc_alone, access, both)
        ]
        faults = study.median(CYCLE, "first_touch_faults", name, **params)
        table.add_row(name, *cycles, quantity_cell(access, "s"), quantity_cell(faults, "1"))
    if not table.row_count:
        return
    console.print(table)
    legend = "timed in two ways: clock around malloc alone, and around malloc and one store a page; "
    console.print(Text(legend + "cycles of the time-stamp counter", style="dim"), soft_wrap=True)
    console.print()


def _show_retention(console: Console, study: AllocStudy) -> None:
    names, cycles = study.allocators(RETENTION), study.values(RETENTION, "cycles")
    if not cycles:
        return

    def retained(size: int) -> Cell:
        def cell(name: str) -> str:
            live = study.median(RETENTION, "live", name, size=size)
            bytes_retained = study.median(RETENTION, "retained", name, size=size, cycles=cycles[-1])
            return (
                "-"
                if not live or bytes_retained is None
                else f"{quantity_cell(bytes_retained, 'B')}, {_percent(bytes_retained / live)}"
            )

        return cell

    def huge(size: int) -> Cell:
        def cell(name: str) -> str:
            live = study.median(RETENTION, "live", name, size=size)
            share = study.median(RETENTION, "huge", name, size=size)
            return "-" if not live or share is None else _percent(min(1.0, share / live))

        return cell

    sizes = study.values(RETENTION, "size")
    total = format_size(study.values(RETENTION, "total")[0])
    legend = f"right after {cycles[-1]} cycles of blocks of {total} together; share of what was live"
    _columns(
        console,
        "resident after free",
        names,
        [(format_size(size), retained(size)) for size in sizes],
        legend,
    )
    large = [size for size in sizes if size >= PAGE_SIZED][-1:]
    _columns(
        console,
        "in huge pages",
        names,
        [(format_size(size), huge(size)) for size in large],
        "share of live memory",
    )


def _show_rates(console: Console, study: AllocStudy) -> None:
    def rate(measurement: str, **params: Scalar) -> Cell:
        return lambda name: quantity_cell(study.median(measurement, "rate", name, **params), "1/s")

    rows = [(str(n), rate(THREADS, threads=n)) for n in study.values(THREADS, "threads")]
    _columns(console, "threads, each with its own blocks", study.allocators(THREADS), rows,
             "blocks of 16 B to 1 KiB freed and replaced, by all threads")  # fmt: skip
    rows = [(format_size(size), rate(HANDOVER, size=size)) for size in study.values(HANDOVER, "size")]
    threads = study.values(HANDOVER, "threads")
    _columns(console, f"handed over, {threads[-1]} threads" if threads else "", study.allocators(HANDOVER), rows,
             "blocks that one thread allocates and another frees")  # fmt: skip


def _show_mixed(console: Console, study: AllocStudy) -> None:
    def figure(metric: str, unit: str) -> Cell:
        return lambda name: quantity_cell(study.median(MIXED, metric, name), unit)

    rows = [
        ("peak resident over live", figure("peak_over_live", "1")),
        ("when nine in ten are freed", figure("end_over_live", "1")),
        ("when all are freed", figure("retained", "B")),
        ("a call", figure("operation", "s")),
    ]
    _columns(console, "random sizes and lifetimes", study.allocators(MIXED), rows,
             "log-uniform sizes from 16 B to 256 KiB")  # fmt: skip


def _show_replay(console: Console, study: AllocStudy) -> None:
    traces = dict.fromkeys(str(record.params["trace"]) for record in study.measured if record.name == REPLAY)
    for trace in traces:

        def figure(metric: str, unit: str, trace: str = trace) -> Cell:
            return lambda name: quantity_cell(study.median(REPLAY, metric, name, trace=trace), unit)

        def tail(metric: str, trace: str = trace) -> Cell:
            def cell(name: str) -> str:
                summary = study.summary(REPLAY, metric, name, trace=trace)
                return quantity_cell(summary.p99, "s") if summary else "-"

            return cell

        rows = [
            ("calls", figure("calls", "1")),
            ("in calls and first touch", figure("time", "s")),
            ("first touch, each timed", figure("touch", "s")),
            ("first to last call", figure("wall", "s")),
            ("malloc, 99 % within", tail("malloc")),
            ("realloc, 99 % within", tail("realloc")),
            ("free, 99 % within", tail("free")),
            ("page faults", figure("faults", "1")),
            ("peak resident", figure("peak", "B")),
            ("over peak live", figure("peak_over_live", "1")),
        ]
        _columns(console, f"replay of {trace}", study.allocators(REPLAY), rows,
                 "its calls in order, without the program's work between them")  # fmt: skip


def _show_waived(console: Console, study: AllocStudy) -> None:
    """One line for each allocator and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for record in study.waived:
        allocator = str(record.params["allocator"])
        case = format_size(int(record.params["size"])) if "size" in record.params else record.name
        if "threads" in record.params:
            case += f" by {record.params['threads']} threads"
        reasons.setdefault((allocator, record.reason or ""), []).append(case)
    for (allocator, reason), cases in reasons.items():
        console.print(
            Text(f"{allocator}: waived, {reason} ({', '.join(dict.fromkeys(cases))})"), soft_wrap=True
        )
    if reasons:
        console.print()
