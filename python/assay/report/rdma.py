"""Prints RDMA measurements as perftest does, so that the two can be compared line by line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from assay.records.schema import AnyRecord, Measurement, Scalar, Subject

NAME = "node.rdma"
RULER = "-" * 87
HEADER = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
IN_TABLE = ("bandwidth", "peak", "message_rate", "corrupted")
LEGEND = (
    "average: all messages, first post to last completion. peak: the best window from the posting of a\n"
    "message to the completion of it or of a later one. Gb/sec: 10^9 bits a second, payload only."
)


@dataclass
class RdmaRow:
    """One size and operation between two ports. Bytes a second, messages a second; ``spread`` is the median
    absolute deviation of the average."""

    subject: Subject
    params: dict[str, Scalar]
    bandwidth: float = 0.0
    spread: float = 0.0
    repeats: int = 0
    peak: float = 0.0
    message_rate: float = 0.0
    corrupted: int = 0

    @property
    def title(self) -> str:
        p = self.params
        arrow = "<->" if p.get("bidirectional") else "->"
        ends = f"{self.subject.host} {self.subject.device} {arrow} {self.subject.peer} {p.get('peer_device')}"
        queues = f"{p.get('qps')} queue pair{'' if p.get('qps') == 1 else 's'}, depth {p.get('depth')}"
        return f"RDMA {p.get('op')}: {ends}  (RC, {queues}, MTU {p.get('mtu')})"


def rdma_rows(records: Iterable[AnyRecord]) -> list[RdmaRow]:
    """Returns a row for each pair of ports, operation and size, in the order of measurement."""
    rows: dict[str, RdmaRow] = {}
    for record in records:
        if not isinstance(record, Measurement) or record.name != NAME or record.summary is None:
            continue
        if record.metric not in IN_TABLE:
            continue
        row = rows.setdefault(repr((record.subject, record.params)), RdmaRow(record.subject, record.params))
        median = record.summary.median
        match record.metric:
            case "bandwidth":
                row.bandwidth, row.spread, row.repeats = median, record.summary.mad, record.summary.n
            case "peak":
                row.peak = median
            case "message_rate":
                row.message_rate = median
            case "corrupted":
                row.corrupted = int(median)
    return list(rows.values())


def table_row(size: int, iterations: int, peak: float, average: float, rate: float) -> str:
    """Formats a row as perftest does, from B/s and messages/s; below 1 Gb/sec with four decimals."""
    gbits = [value * 8 / 1e9 for value in (peak, average)]
    peak_text, average_text = (f"{v:.2f}" if v >= 1 else f"{v:.4f}" for v in gbits)
    columns = (f" {size:<10} {iterations:<10}", f"{peak_text:<7}", f"{average_text:<7}", f"{rate / 1e6:.6f}")
    return "{}       {}            {}              {}".format(*columns)


def show_rdma(console: Console, records: Iterable[AnyRecord]) -> None:
    """Prints a table for each pair of ports and operation, with a row for each size."""
    rows = rdma_rows(records)
    for title in dict.fromkeys(row.title for row in rows):
        chosen = [row for row in rows if row.title == title]
        console.print(Text(title, style="bold"))
        console.print(Text(f"{RULER}\n{HEADER}"))
        for row in chosen:
            size, iterations = int(row.params["size"]), int(row.params["iterations"])
            line = table_row(size, iterations, row.peak, row.bandwidth, row.message_rate)
            console.print(Text(line + _remark(row)), soft_wrap=True)
        console.print(Text(RULER))
    if rows:
        console.print(Text(LEGEND, style="dim"))
        console.print()


def _remark(row: RdmaRow) -> str:
    """Formats what perftest lacks: the spread over the repetitions, and corrupted messages."""
    share = row.spread / row.bandwidth if row.bandwidth else 0.0
    remark = f"   median of {row.repeats}, ± {100 * share:.1f} %" if row.repeats > 1 else ""
    return remark + (f"   {row.corrupted} corrupted" if row.corrupted else "")
