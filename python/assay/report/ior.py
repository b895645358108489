"""Results in IOR's formats: the columns of its terminal output, and its JSON.

IOR's units (MiB, KiB) and names are kept, so that results can be compared with older ones. IOR has one test for each
set of options; here that is each variant, number of nodes and transfer size.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import UserError
from assay.records.run import Run
from assay.records.schema import AnyRecord, Measurement, Scalar
from assay.records.storage import IOR

MIB, KIB, MB = 2**20, 2**10, 1e6
HEADER = (
    "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  "
    "open(s)    wr/rd(s)   close(s)   total(s)   iter"
)
METRICS = ("bandwidth", "rate", "open_time", "transfer_time", "close_time", "total_time")
OPERATION_PARAMS = ("op", "data", "round")


@dataclass(frozen=True)
class Row:
    """An operation of a repetition. Times in seconds, rates in B/s and 1/s."""

    access: str
    bandwidth: float
    rate: float
    open: float
    transfer: float
    close: float
    total: float
    params: dict[str, Scalar]

    @property
    def moved(self) -> int:
        """The bytes that all ranks transferred: fewer than requested with a stonewall (a time limit)."""
        return round(self.bandwidth * self.total)

    @property
    def latency(self) -> float:
        """As IOR computes it: a rank's time for its transfers divided by their number."""
        return int(self.params["ranks"]) / self.rate if self.rate else 0.0


def rows(records: Iterable[AnyRecord]) -> Iterator[Row]:
    """In the order of measuring: repetition by repetition, of each write and read."""
    parts: dict[str, dict[str, Measurement]] = {}
    for r in records:
        if isinstance(r, Measurement) and r.name == IOR and r.samples:
            parts.setdefault(repr(sorted(r.params.items(), key=str)), {})[r.metric] = r
    for metrics in parts.values():
        if any(name not in metrics for name in METRICS):  # of an interrupted run
            continue
        params = metrics["total_time"].params
        for values in zip(*(metrics[name].samples for name in METRICS), strict=True):
            bandwidth, rate, opened, transfer, closed, total = values
            yield Row(str(params["op"]), bandwidth, rate, opened, transfer, closed, total, params)


def _number(value: float) -> str:
    """IOR's PPDouble: 10 characters; 6 decimals below 1, 2 below 3600, else none."""
    return f"{value:<10.{6 if value < 1 else 2 if value < 3600 else 0}f} "


def format_row(row: Row, iteration: int) -> str:
    figures = (row.bandwidth / MIB, row.rate, row.latency, int(row.params["block"]) / KIB,
               int(row.params["transfer"]) / KIB, row.open, row.transfer, row.close, row.total)  # fmt: skip
    text = [_number(value) for value in figures]
    text[2] += " "  # IOR's latency column is one character wider
    return f"{row.access:<10}{''.join(text)}{iteration:<4d}".rstrip()


def tests(records: Iterable[AnyRecord]) -> list[list[Row]]:
    """IOR's tests: the rows with the same options."""
    by_options: dict[str, list[Row]] = {}
    for row in rows(records):
        options = {key: value for key, value in row.params.items() if key not in OPERATION_PARAMS}
        by_options.setdefault(repr(sorted(options.items(), key=str)), []).append(row)
    return list(by_options.values())


def iterations(test: Sequence[Row]) -> Iterator[tuple[int, Row]]:
    """Each row with the number of its repetition, counted by operation over all rounds."""
    counts: dict[tuple[str, str], int] = {}
    for row in test:
        key = (row.access, str(row.params.get("data", "")))
        yield counts.setdefault(key, 0), row
        counts[key] += 1


def ior_json(run: Run) -> dict[str, Any]:
    """The results in the form of IOR 4's -O summaryFormat=JSON. Each test also has a flag for accelerated I/O."""
    all_tests = tests(run.records)
    return {
        "Version": f"assay {run.info.assay}",
        "Began": run.info.started,
        "Command line": " ".join(run.info.command),
        "Machine": " ".join(dict.fromkeys(run.info.hosts)),
        "tests": [_test(number, test) for number, test in enumerate(all_tests)],
        "summary": [summary for number, test in enumerate(all_tests) for summary in _summaries(number, test)],
        "Finished": run.info.ended or time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }


def _test(number: int, test: Sequence[Row]) -> dict[str, Any]:
    params = test[0].params
    fastest = {
        access: max(row.bandwidth for row in test if row.access == access) for access in _accesses(test)
    }
    return {
        "TestID": number,
        "StartTime": "",
        "Parameters": {
            "testID": number,
            "api": "MPIIO",
            "segmentCount": params["segments"],
            "blockSize": params["block"],
            "transferSize": params["transfer"],
            "numTasks": params["ranks"],
            "filePerProc": int(params["layout"] == "file per process"),
            "collective": int(params["calls"] == "collective"),
            "randomOffset": int(params["order"] == "random"),
            "deadlineForStonewalling": int(params.get("stonewall", 0)),
            "stoneWallingWearOut": int(bool(params.get("wear_out"))),
            "fsync": int(bool(params["fsync"])),
            "reorderTasks": int(any(row.params.get("data", "own") != "own" for row in test)),
        },
        "Options": {
            "api": "MPIIO",
            "access": "file-per-process" if params["layout"] == "file per process" else "single-shared-file",
            "nodes": params["nodes"],
            "tasks": params["ranks"],
            "clients per node": int(params["ranks"]) // int(params["nodes"]),
            "xfersize": params["transfer"],
            "blocksize": params["block"],
            "io": params["io"],
            "mpi": params["mpi"],
        },
        "Results": [[_result(row) for _, row in group] for group in _by_iteration(test)],
        "max": {
            f"{access}{unit}": rate / factor
            for access, rate in fastest.items()
            for unit, factor in (("MiB", MIB), ("MB", MB))
        },
    }


def _accesses(test: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.access for row in test))


def _by_iteration(test: Sequence[Row]) -> list[list[tuple[int, Row]]]:
    groups: dict[int, list[tuple[int, Row]]] = {}
    for number, row in iterations(test):
        groups.setdefault(number, []).append((number, row))
    return list(groups.values())


def _result(row: Row) -> dict[str, Any]:
    return {
        "access": row.access,
        "bwMiB": row.bandwidth / MIB,
        "blockKiB": int(row.params["block"]) / KIB,
        "xferKiB": int(row.params["transfer"]) / KIB,
        "iops": row.rate,
        "latency": row.latency,
        "openTime": row.open,
        "wrRdTime": row.transfer,
        "closeTime": row.close,
        "totalTime": row.total,
    }


def _summaries(number: int, test: Sequence[Row]) -> Iterator[dict[str, Any]]:
    for access in _accesses(test):
        chosen = [row for row in test if row.access == access]
        params = chosen[0].params
        bandwidths = [row.bandwidth / MIB for row in chosen]
        operations = [row.bandwidth / int(params["transfer"]) for row in chosen]
        yield {
            "operation": access,
            "API": "MPIIO",
            "TestID": number,
            "ReferenceNumber": 0,
            "segmentCount": params["segments"],
            "blockSize": params["block"],
            "transferSize": params["transfer"],
            "numTasks": params["ranks"],
            "tasksPerNode": int(params["ranks"]) // int(params["nodes"]),
            "repetitions": len(chosen),
            "filePerProc": int(params["layout"] == "file per process"),
            "bwMaxMIB": max(bandwidths),
            "bwMinMIB": min(bandwidths),
            "bwMeanMIB": statistics.mean(bandwidths),
            "bwStdMIB": statistics.pstdev(bandwidths),
            "OPsMax": max(operations),
            "OPsMin": min(operations),
            "OPsMean": statistics.mean(operations),
            "OPsSD": statistics.pstdev(operations),
            "MeanTime": statistics.mean(row.total for row in chosen),
            "xsizeMiB": statistics.mean(row.moved for row in chosen) / MIB,
        }


def write_ior_json(run: Run, path: Path) -> None:
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(ior_json(run)), indent=2) + b"\n")
    except OSError as error:
        raise UserError(f"--ior-json {path}: {error.strerror}", "give a path that can be written") from None
