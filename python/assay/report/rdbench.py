"""The solver's results in RDBench's format: a JSON object per run, with its fields and units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import UserError
from assay.records.schema import AnyRecord, Measurement
from assay.records.storage import SOLVER

METRICS = {"compute_time", "communication_time", "write_time", "bandwidth", "snapshot_time"}


def runs(records: Iterable[AnyRecord]) -> Iterator[dict[str, Measurement]]:
    """The metrics of each start of the solver, in order."""
    by_params: dict[str, dict[str, Measurement]] = {}
    for r in records:
        if isinstance(r, Measurement) and r.name == SOLVER and r.summary:
            params = {key: value for key, value in r.params.items() if key != "digest"}
            by_params.setdefault(repr(sorted(params.items(), key=str)), {})[r.metric] = r
    yield from by_params.values()


def rdbench_json(metrics: dict[str, Measurement]) -> dict[str, Any]:
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
        "steps": params["steps"],
        "interval": params["interval"],
        "fixedX": False,
        "fixedY": False,
        "nfiles": files,
        "fileSize": 8 * length * length,
        "totalWriteSizeByte": 8 * length * length * files,
        "calcTimeSec": median("compute_time"),
        "commTimeSec": median("communication_time"),
        "writeTimeSec": median("write_time"),
        "writeBandwidthByte": median("bandwidth"),
        "phaseDurationsSec": {"write": metrics["snapshot_time"].samples},
        "io": params["io"],
        "mpi": params["mpi"],
    }


def write_rdbench_json(records: Iterable[AnyRecord], path: Path) -> None:
    """Writes a line per run."""
    lines = [
        msgspec.json.encode(rdbench_json(metrics)) + b"\n"
        for metrics in runs(records)
        if metrics.keys() >= METRICS
    ]
    try:
        path.write_bytes(b"".join(lines))
    except OSError as error:
        raise UserError(
            f"--rdbench-json {path}: {error.strerror}", "give a path that can be written"
        ) from None
