"""The network's rates that a run of event building has measured for comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.events.shares import network_rates
from assay.records.run import MATRIX_FILE_HOSTS, Run
from assay.records.schema import Matrix, Pairs, Subject

HOSTS = [f"n{i}" for i in range(MATRIX_FILE_HOSTS)]


def test_pairs_in_a_matrix_file_count_like_pairs_in_records(tmp_path: Path) -> None:
    rows = [
        Pairs(name="network.all_to_all", metric="bandwidth", unit="B/s", subject=Subject(host=host),
              peers=[peer for peer in HOSTS if peer != host], values=[1e9] * (MATRIX_FILE_HOSTS - 1))
        for host in HOSTS
    ]  # fmt: skip
    run = Run.create("eb", ["eb"], path=tmp_path / "run")
    run.info.hosts = HOSTS
    for row in rows:
        run.append(row)
    run.finish("complete")
    records = Run.load(run.path).records
    assert any(isinstance(record, Matrix) for record in records)
    assert (
        network_rates(records).pairs
        == pytest.approx(network_rates(rows).pairs)
        == pytest.approx(MATRIX_FILE_HOSTS * 1e9)
    )
