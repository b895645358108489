"""Results of the reaction-diffusion solver in RDBench's JSON, so that its tools can read them.

RDBench (https://github.com/range3/rdbench) prints one object per run; field names and units are its own: seconds,
bytes, B/s. ``io`` (stock or accelerated) and ``mpi`` are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import UserError
from assay.records.schema import AnyRecord, Measurement
from assay.records.storage import SOLVER

# An object needs all of them; a solver that failed has not recorded them all and is left out.
METRICS = {"compute_time", "communication_time", "write_time", "bandwidth", "snapshot_time"}
_CELL_BYTES = 8  # a double; a snapshot has length x length cells


def runs(records: Iterable[AnyRecord]) -> Iterator[dict[str, Measurement]]:
    """Yields the metrics of each set of parameters (one start of the solver), by name, in the records' order.

    The digest of the last snapshot is left out: it is a parameter of the metric "wrong" alone.
    """
    by_params: dict[str, dict[str, Measurement]] = {}
    for record in records:
        if isinstance(record, Measurement) and record.name == SOLVER and record.summary:
            params = {key: value for key, value in record.params.items() if key != "digest"}
            by_params.setdefault(repr(sorted(params.items(), key=str)), {})[record.metric] = record
    yield from by_params.values()


def rdbench_json(metrics: dict[str, Measurement]) -> dict[str, Any]:
    """Returns RDBench's object for one run, whose metrics are given by name."""

    def median(metric: str) -> float:
        summary = metrics[metric].summary
        return summary.median if summary else float("nan")

    params = metrics["write_time"].params
    length = int(params["length"])
    xnp, ynp, files = int(params["xnp"]), int(params["ynp"]), int(params["files"])
    return {
        "version": "assay",
        "nprocs": params["ranks"],
        "xnp": xnp,
        "ynp": ynp,
        "L": length,
        "chunkSizeX": length // xnp,
        "chunkSizeY": length // ynp,
        "collective": params["calls"] == "collective",
        "iotype": params["iotype"],
        "nosync": not params["sync"],
        "sync": params["sync"],
        "validate": params.get("validate", True),
        "initialOutput": params.get("initial_output", True),
        "steps": params["steps"],
        "interval": params["interval"],
        "fixedX": False,
        "fixedY": False,
        "nfiles": files,
        "fileSize": _CELL_BYTES * length * length,
        "totalWriteSizeByte": _CELL_BYTES * length * length * files,
        "calcTimeSec": median("compute_time"),
        "commTimeSec": median("communication_time"),
        "writeTimeSec": median("write_time"),
        "writeBandwidthByte": median("bandwidth"),
        "phaseDurationsSec": {"write": metrics["snapshot_time"].samples},
        "io": params["io"],
        "mpi": params["mpi"],
    }


def write_rdbench_json(records: Iterable[AnyRecord], path: Path, *, pretty: bool = False) -> None:
    """Writes one line or indented object per run to ``path``. Raises UserError if it cannot be written."""
    lines = [
        msgspec.json.format(msgspec.json.encode(rdbench_json(metrics)), indent=4 if pretty else -1) + b"\n"
        for metrics in runs(records)
        if metrics.keys() >= METRICS
    ]
    try:
        path.write_bytes(b"".join(lines))
    except OSError as error:
        raise UserError(
            f"--rdbench-json {path}: {error.strerror}", "give a path that can be written"
        ) from None
