"""What a run says in the terminal: the sweep, the nodes, the findings, the verdicts.

Colour only on a terminal (rich sees to it); the same words without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.records.schema import AnyRecord, Corruption, Failure, Finding, Measurement, Verdict
from assay.records.units import format_quantity, format_size
from assay.report.sweep import SweepRow, sweep_rows

STYLES = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}


def show_run(console: Console, records: Sequence[AnyRecord]) -> None:
    """Every table that the records fill."""
    show_nodes(console, records)
    show_sweep(console, sweep_rows(records))
    for failure in (r for r in records if isinstance(r, Failure)):
        console.print(Text.assemble(("failed: ", "bold red"), failure.what))
        if failure.hint:
            console.print(f"        {failure.hint}")
    show_findings(console, [r for r in records if isinstance(r, Finding)])


def show_nodes(console: Console, records: Iterable[AnyRecord]) -> None:
    measured = [r for r in records if isinstance(r, Measurement) and r.name.startswith("node.")]
    if not measured:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("node", "measurement", "of"):
        table.add_column(title)
    for title in ("median", "spread", "samples"):
        table.add_column(title, justify="right")
    for r in measured:
        of = ", ".join(f"{key} {value}" for key, value in r.params.items())
        if r.summary is None:
            table.add_row(r.subject.host, f"{r.name}/{r.metric}", of, f"{r.status}: {r.reason}")
            continue
        median = format_quantity(r.summary.median, r.unit)
        spread = f"± {format_quantity(r.summary.mad, r.unit)}"
        table.add_row(r.subject.host, f"{r.name}/{r.metric}", of, median, spread, str(r.summary.n))
    console.print(table)
    console.print()


def _cell(value: float | None, unit: str) -> str:
    return "-" if value is None else format_quantity(value, unit)


def show_sweep(console: Console, rows: Sequence[SweepRow]) -> None:
    for name in dict.fromkeys(row.name for row in rows):
        chosen = [row for row in rows if row.name == name]
        ops = len({row.op for row in chosen}) > 1
        corrupted = any(row.corrupted for row in chosen)
        table = Table(box=None, pad_edge=False, header_style="bold", title=None)
        titles = ["size", *(["operation"] if ops else []), "wall time", "bandwidth", "per client"]
        titles += ["latency p50", "p99", "operations/s", *(["corrupted"] if corrupted else [])]
        for title in titles:
            table.add_column(title, justify="left" if title == "operation" else "right")
        for row in chosen:
            cells = [format_size(row.size), *([row.op] if ops else []), _cell(row.time, "s")]
            cells += [_cell(row.bandwidth, "B/s"), _cell(row.client_bandwidth, "B/s")]
            cells += [_cell(row.latency_p50, "s"), _cell(row.latency_p99, "s"), _cell(row.rate, "1/s")]
            table.add_row(*cells, *([str(row.corrupted)] if corrupted else []))
        console.print(table)
        console.print()


def show_corruptions(console: Console, records: Iterable[AnyRecord], most: int = 5) -> None:
    found = [r for r in records if isinstance(r, Corruption)]
    for r in found[:most]:
        where = f"{r.subject.host} -> {r.subject.peer}, message {r.message}, byte {r.offset}"
        console.print(f"  {where}: {r.observed} instead of {r.expected}")
    if len(found) > most:
        console.print(f"  and {len(found) - most} more in the report")


def show_findings(console: Console, findings: Sequence[Finding]) -> None:
    if not findings:
        return
    console.print(Text("Findings", style="bold"))
    for finding in findings:
        style = "bold red" if finding.severity == "fault" else "bold yellow"
        confidence = "" if finding.confidence is None else f"  (confidence {finding.confidence:.0%})"
        console.print(Text.assemble((f"  {finding.severity}: ", style), finding.cause, confidence))
        for detail in finding.details:
            console.print(f"      {detail}", highlight=False)
        if finding.remedy:
            console.print(f"      do: {finding.remedy}", highlight=False)
    console.print()


def show_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """One line a criterion: outcome, what was observed, what was required, by what margin."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("outcome", "criterion"):
        table.add_column(title, overflow="fold")
    for title in ("observed", "required", "margin"):
        table.add_column(title, justify="right")
    for v in verdicts:
        margin = "-" if v.margin is None else f"{v.margin:+.1%}"
        criterion = v.criterion if not v.reason or v.outcome == "PASS" else f"{v.criterion}: {v.reason}"
        where = f" ({v.subject.host})" if v.subject.host and v.outcome == "FAIL" else ""
        table.add_row(
            Text(v.outcome, style=STYLES[v.outcome]),
            criterion + where,
            _cell(v.observed, v.unit),
            _cell(v.required, v.unit),
            margin,
        )
    console.print(table)
    console.print()


def show_outcome(console: Console, outcome: str, because: str) -> None:
    console.print(Text.assemble((outcome, STYLES[outcome]), f"  {because}" if because else ""))
