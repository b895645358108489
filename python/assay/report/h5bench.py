"""HDF5 results in h5bench's CSV: lines of "metric, value, unit" for each write and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from assay.errors import UserError
from assay.records.schema import AnyRecord, Measurement
from assay.records.storage import HDF5

MB = 1e6
# h5bench's names of the metrics, in its order; rates in MB/s, times in s.
LINES = (
    ("raw {op} time", "raw_time", "seconds"),
    ("metadata time", "metadata_time", "seconds"),
    ("compute time", "compute_time", "seconds"),
    ("raw {op} rate", "raw_rate", "MB/s"),
    ("observed {op} time", "observed_time", "seconds"),
    ("observed {op} rate", "observed_rate", "MB/s"),
)
METRICS = {metric for _, metric, _ in LINES}


def passes(records: Iterable[AnyRecord]) -> Iterator[dict[str, Measurement]]:
    """The metrics of each write and each read, in order."""
    by_params: dict[str, dict[str, Measurement]] = {}
    for r in records:
        if isinstance(r, Measurement) and r.name == HDF5 and r.summary:
            by_params.setdefault(repr(sorted(r.params.items(), key=str)), {})[r.metric] = r
    yield from by_params.values()


def h5bench_lines(metrics: dict[str, Measurement]) -> list[str]:
    params = metrics["raw_rate"].params
    op, rate, time = (str(params["op"]), metrics["raw_rate"].summary, metrics["raw_time"].summary)
    size = rate.median * time.median / MB if rate and time else 0.0
    lines = [
        "metric, value, unit",
        f"operation, {op}, ",
        f"ranks, {params['ranks']}, ",
        f"io, {params['io']}, ",
        f"round, {params['round']}, ",
        f"collective data, {'YES' if params['calls'] == 'collective' else 'NO'}, ",
        f"collective meta, {'YES' if params['metadata'] == 'collective' else 'NO'}, ",
        f"total size, {size:.3f}, MB",
    ]
    for title, metric, unit in LINES:
        summary = metrics[metric].summary
        value = summary.median if summary else float("nan")
        lines.append(f"{title.format(op=op)}, {value / MB if unit == 'MB/s' else value:.6f}, {unit}")
    return lines


def write_h5bench_csv(records: Iterable[AnyRecord], path: Path) -> None:
    blocks = ["\n".join(h5bench_lines(metrics)) for metrics in passes(records) if metrics.keys() >= METRICS]
    try:
        path.write_text("\n\n".join(blocks) + "\n")
    except OSError as error:
        raise UserError(
            f"--h5bench-csv {path}: {error.strerror}", "give a path that can be written"
        ) from None
