"""The tables of storage benchmarks show the figures of one set of parameters in one row, even if some are missing."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest
from rich.console import Console

from assay.records.schema import AnyRecord, Measurement, Scalar, Summary
from assay.report.storage import show_storage

HDF5 = {
    "mpi": "Open MPI",
    "nodes": 1,
    "mem_pattern": "CONTIG",
    "file_pattern": "CONTIG",
    "calls": "independent",
}
METADATA = {"mpi": "Open MPI", "ranks": 2, "nodes": 1, "directory": "shared", "api": "posix"}


def record(name: str, metric: str, value: float, unit: str, **params: Scalar) -> Measurement:
    return Measurement(
        name=name, metric=metric, unit=unit, params={"io": "stock", **params}, summary=Summary(n=1, median=value),
        samples=[value],
    )  # fmt: skip


def lines(records: Iterable[AnyRecord]) -> list[list[str]]:
    out = io.StringIO()
    show_storage(Console(file=out, width=160), list(records))
    return [line.split() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("missing", ["raw_rate", "observed_rate"])
def test_a_missing_rate_of_hdf5_neither_drops_nor_shifts_a_row(missing: str) -> None:
    rates = [("raw_rate", 2, 1e9), ("observed_rate", 2, 2e9), ("raw_rate", 4, 3e9), ("observed_rate", 4, 4e9)]
    shown = lines(
        record("storage.hdf5", metric, rate, "B/s", op="read", ranks=ranks, **HDF5)
        for metric, ranks, rate in rates
        if (metric, ranks) != (missing, 2)
    )
    rows = {line[4]: line for line in shown if line[:2] == ["Open", "MPI"]}
    assert rows.keys() == {"2", "4"}
    assert " ".join(rows["4"]).endswith("3 GB/s - 4 GB/s -")
    expected = "- - 2 GB/s -" if missing == "raw_rate" else "1 GB/s - - -"
    assert " ".join(rows["2"]).endswith(expected)


def test_an_operation_without_a_latency_keeps_its_row() -> None:
    operations: dict[str, tuple[float, float | None]] = {
        "create": (1e3, None),
        "stat": (2e3, 3e-6),
        "open": (4e3, 5e-6),
    }
    records = []
    for op, (rate, latency) in operations.items():
        records.append(record("storage.metadata", "rate", rate, "1/s", op=op, **METADATA))
        if latency is not None:
            records.append(record("storage.metadata", "latency", latency, "s", op=op, **METADATA))
    rows = {line[0]: line[2:] for line in lines(records) if line and line[0] in operations}
    assert rows == {
        "create": ["1", "k/s", "-", "-"],
        "stat": ["2", "k/s", "3", "µs", "-"],
        "open": ["4", "k/s", "5", "µs", "-"],
    }
