"""The rows of a network run's sweep, for the table, --json and --compat-netsan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from assay.records.schema import AnyRecord, Measurement

SWEEPS = ("network.client_server", "network.all_to_all")


@dataclass
class SweepRow:
    """One size and operation, in SI base units; None if it was not measured.

    ``times``: the timed seconds of each client; ``peers`` and ``iterations``: how many peers each client
    had, and how many messages went to each.
    """

    name: str
    size: int
    op: str
    bandwidth: float | None = None
    client_bandwidth: float | None = None
    latency_p50: float | None = None
    latency_p99: float | None = None
    rate: float | None = None
    time: float | None = None
    corrupted: int = 0
    times: list[float] = field(default_factory=list)
    peers: int = 0
    iterations: int = 0


def sweep_rows(records: Iterable[AnyRecord]) -> list[SweepRow]:
    """Returns a row for each measurement, size and operation, in the order of measurement."""
    rows: dict[tuple[str, int, str], SweepRow] = {}
    for record in records:
        if not isinstance(record, Measurement) or record.name not in SWEEPS or record.summary is None:
            continue
        if "size" not in record.params:
            continue
        size, op = int(record.params["size"]), str(record.params.get("op", ""))
        row = rows.setdefault((record.name, size, op), SweepRow(record.name, size, op))
        _fill(row, record)
    return list(rows.values())


def _fill(row: SweepRow, record: Measurement) -> None:
    assert record.summary is not None
    median = record.summary.median
    match record.metric:
        case "latency":
            row.latency_p50, row.latency_p99 = median, record.summary.p99
        case "time":
            row.time = row.time or max(record.samples, default=median)  # older runs have no wall_time
            row.times = record.samples
            row.peers = int(record.params.get("peers", 0))
            row.iterations = int(record.params.get("iterations", 0))
        case "wall_time":
            row.time = median
        case "corrupted":
            row.corrupted = int(median)
        case "bandwidth" | "client_bandwidth" | "rate":
            setattr(row, record.metric, median)


# The table of the Network Sanitizer. Its columns are sums over clients, its "MB" are 2^20 bytes, and its latency
# divides by 10e-6 instead of 1e-6. These are kept, so that old and new runs are comparable.
NETSAN_HEADER = "   size(B)  time(s)  bw(MB/s) lat(us)       iops"


def netsan_row(size: int, times: Sequence[float], peers: int, iterations: int) -> str:
    """Formats a row of that table from each client's time (s), its peers, and messages per peer."""
    operations = peers * iterations
    time = sum(times)
    bandwidth = sum(size * operations / (2**20 * t) for t in times)
    latency = sum(t / (operations * 10e-6) for t in times)
    iops = sum(operations / t for t in times)
    return f"{size:7d} {time:10.1f} {bandwidth:10.0f} {latency:7.2f} {iops:10.0f}"


def netsan_table(
    rows: Iterable[SweepRow], servers: Sequence[str], adapters: int, clients: Sequence[str]
) -> str:
    """Formats its whole output: servers and clients, then a row for each size of the first operation."""
    named = ",".join(f"{server}:{adapters}" if adapters > 1 else server for server in servers)
    lines = [
        f"Servers({len(servers)}): {named}".rstrip(),
        f"Clients({len(clients)}): {','.join(clients)}",
        "",
        NETSAN_HEADER,
    ]
    measured = [row for row in rows if row.times]
    for row in measured:
        if row.op == measured[0].op:
            lines.append(netsan_row(row.size, row.times, row.peers, row.iterations))
    return "\n".join(lines)
