"""An allocator study in the terminal: a table a question, a column or a row an allocator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.profile.alloc import CYCLE, HANDOVER, MIXED, REPLAY, RETENTION, THREADS, AllocStudy
from assay.records.schema import AnyRecord, Scalar
from assay.records.units import format_quantity, format_size

LARGE = 4096  # bytes, from where on a block has pages of its own
BLOCK = ("malloc", "free")
BLOCK_AND_PAGES = ("malloc", "first_touch", "free")

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
    """A row each, a column an allocator; nothing where no cell holds anything."""
    filled = [(label, [cell(name) for name in names]) for label, cell in rows]
    filled = [(label, cells) for label, cells in filled if any(one != "-" for one in cells)]
    if not filled:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for label, cells in filled:
        table.add_row(label, *cells)
    console.print(table)
    if legend:
        console.print(Text(legend, style="dim"), soft_wrap=True)
    console.print()


def _quantity(value: float | None, unit: str) -> str:
    return "-" if value is None else format_quantity(value, unit)


def _count(value: float | None) -> str:
    """So that a million stays narrow."""
    if value is None:
        return "-"
    return (
        f"{value / 1e6:.3g} M"
        if value >= 1e6
        else f"{value / 1e3:.3g} k"
        if value >= 1e5
        else _quantity(value, "1")
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _show_sizes(console: Console, study: AllocStudy) -> None:
    names, sizes = study.allocators(CYCLE), study.values(CYCLE, "size")
    for threads in study.values(CYCLE, "threads"):
        of = f"{threads} thread" + ("" if threads == 1 else "s at once")

        def cost(metrics: Sequence[str], size: int, threads: int = threads) -> Cell:
            where: dict[str, Scalar] = {"size": size, "threads": threads, "state": "repeated"}
            return lambda name: _quantity(study.total(metrics, name, **where), "s")

        _columns(console, f"malloc + free, {of}", names, [(format_size(s), cost(BLOCK, s)) for s in sizes],
                 "a block, of batches that are allocated and then freed, again and again; the median")  # fmt: skip
        large = [s for s in sizes if s >= LARGE]
        rows = [(format_size(s), cost(BLOCK_AND_PAGES, s)) for s in large]
        _columns(
            console, f"with first touch, {of}", names, rows, "malloc, one store a page, and free, of a block"
        )

        def faults(size: int, threads: int = threads) -> Cell:
            def cell(name: str) -> str:
                where: dict[str, Scalar] = {"size": size, "threads": threads}
                pair = [
                    study.total(("malloc_faults", "first_touch_faults"), name, **where, state=state)
                    for state in ("first", "repeated")
                ]
                return "-" if None in pair else " / ".join(_count(one) for one in pair)

            return cell

        _columns(console, f"page faults, {of}", names, [(format_size(s), faults(s)) for s in large],
                 "in a block's malloc and first touch: of the first batch of a process / of repeated ones")  # fmt: skip


def _show_methods(console: Console, study: AllocStudy) -> None:
    """The clock around malloc alone, and around malloc and one store a page, of the largest block that there is."""
    sizes = [s for s in study.values(CYCLE, "size") if s >= LARGE]
    if not sizes:
        return
    size, threads = sizes[-1], study.values(CYCLE, "threads")[0]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(f"For {format_size(size)}, first of a process")
    for heading in ("malloc alone", "first access", "both in one", "access takes", "page faults"):
        table.add_column(heading, justify="right")
    table.add_row("", "M cycles", "M cycles", "M cycles", "", "", style="dim")
    for name in study.allocators(CYCLE):
        where: dict[str, Scalar] = {"size": size, "threads": threads, "state": "first"}
        rate = study.median(CYCLE, "tick_rate", name)
        alone, access, both = (
            study.median(CYCLE, metric, name, **where) for metric in ("malloc", "first_touch", "malloc_touch")
        )
        if rate is None or alone is None or access is None:
            continue
        cycles = [f"{one * rate / 1e6:,.3f}" if one is not None else "-" for one in (alone, access, both)]
        faults = study.median(CYCLE, "first_touch_faults", name, **where)
        table.add_row(name, *cycles, _quantity(access, "s"), _quantity(faults, "1"))
    if not table.row_count:
        return
    console.print(table)
    legend = "two ways to time: the clock around malloc alone, and around malloc and one store a page; "
    console.print(Text(legend + "cycles of the time-stamp counter", style="dim"), soft_wrap=True)
    console.print()


def _show_retention(console: Console, study: AllocStudy) -> None:
    names, cycles = study.allocators(RETENTION), study.values(RETENTION, "cycles")
    if not cycles:
        return

    def left(size: int) -> Cell:
        def cell(name: str) -> str:
            live = study.median(RETENTION, "live", name, size=size)
            kept = study.median(RETENTION, "retained", name, size=size, cycles=cycles[-1])
            return "-" if not live or kept is None else f"{_quantity(kept, 'B')}, {_percent(kept / live)}"

        return cell

    def huge(size: int) -> Cell:
        def cell(name: str) -> str:
            live = study.median(RETENTION, "live", name, size=size)
            share = study.median(RETENTION, "huge", name, size=size)
            return "-" if not live or share is None else _percent(min(1.0, share / live))

        return cell

    sizes = study.values(RETENTION, "size")
    total = format_size(study.values(RETENTION, "total")[0])
    legend = f"at once after {cycles[-1]} cycles, blocks of {total} together or one; and as a share of what was live"
    _columns(console, "resident after free", names, [(format_size(s), left(s)) for s in sizes], legend)
    large = [s for s in sizes if s >= LARGE][-1:]
    _columns(
        console, "in huge pages", names, [(format_size(s), huge(s)) for s in large], "share of what is live"
    )


def _show_rates(console: Console, study: AllocStudy) -> None:
    def rate(measurement: str, **where: Scalar) -> Cell:
        return lambda name: _quantity(study.median(measurement, "rate", name, **where), "1/s")

    rows = [(str(n), rate(THREADS, threads=n)) for n in study.values(THREADS, "threads")]
    _columns(console, "threads, each on its own", study.allocators(THREADS), rows,
             "blocks of 16 B to 1 KiB freed and replaced, by all threads")  # fmt: skip
    rows = [(format_size(s), rate(HANDOVER, size=s)) for s in study.values(HANDOVER, "size")]
    threads = study.values(HANDOVER, "threads")
    _columns(console, f"handed over, {threads[-1]} threads" if threads else "", study.allocators(HANDOVER), rows,
             "blocks that one thread allocates and another frees")  # fmt: skip


def _show_mixed(console: Console, study: AllocStudy) -> None:
    def figure(metric: str, unit: str) -> Cell:
        return lambda name: _quantity(study.median(MIXED, metric, name), unit)

    rows = [
        ("peak resident over live", figure("peak_over_live", "1")),
        ("when nine in ten are freed", figure("end_over_live", "1")),
        ("when all are freed", figure("retained", "B")),
        ("a call", figure("operation", "s")),
    ]
    _columns(console, "random sizes and lifetimes", study.allocators(MIXED), rows,
             "sizes from 16 B to 256 KiB, as likely in each power of two")  # fmt: skip


def _show_replay(console: Console, study: AllocStudy) -> None:
    traces = dict.fromkeys(str(r.params["trace"]) for r in study.measured if r.name == REPLAY)
    for trace in traces:

        def figure(metric: str, unit: str, trace: str = trace) -> Cell:
            return lambda name: _quantity(study.median(REPLAY, metric, name, trace=trace), unit)

        def tail(metric: str, trace: str = trace) -> Cell:
            def cell(name: str) -> str:
                found = study.summary(REPLAY, metric, name, trace=trace)
                return _quantity(found.p99, "s") if found else "-"

            return cell

        rows = [
            ("calls", figure("calls", "1")),
            ("in calls and first touch", figure("time", "s")),
            ("first touch, each call timed", figure("touch", "s")),
            ("from first to last", figure("wall", "s")),
            ("malloc, 99 % within", tail("malloc")),
            ("realloc, 99 % within", tail("realloc")),
            ("free, 99 % within", tail("free")),
            ("page faults", figure("faults", "1")),
            ("peak resident", figure("peak", "B")),
            ("over peak live", figure("peak_over_live", "1")),
        ]
        _columns(console, f"replay of {trace}", study.allocators(REPLAY), rows,
                 "its calls in order; the program's own work between them is left out")  # fmt: skip


def _show_waived(console: Console, study: AllocStudy) -> None:
    """One line for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for r in study.waived:
        of = str(r.params["allocator"])
        about = format_size(int(r.params["size"])) if "size" in r.params else r.name
        if "threads" in r.params:
            about += f" by {r.params['threads']} threads"
        reasons.setdefault((of, r.reason or ""), []).append(about)
    for (of, reason), cases in reasons.items():
        console.print(Text(f"{of}: waived, {reason} ({', '.join(dict.fromkeys(cases))})"), soft_wrap=True)
    if reasons:
        console.print()
