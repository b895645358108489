"""Pair matrices of many hosts: rows are written to files that a record names; readers check these files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from assay.errors import UserError
from assay.explain import suspects
from assay.explain.matrix import PairMatrix
from assay.records.matrices import cells_of, rows_of
from assay.records.run import MATRIX_FILE_HOSTS, Run
from assay.records.schema import Matrix, Measurement, Pairs, Subject

HOSTS = [f"n{i}" for i in range(MATRIX_FILE_HOSTS)]
SIZES = (1 << 19, 1 << 20)


def rows(size: int, slow: int = 7) -> list[Pairs]:
    rng = np.random.default_rng(size)
    return [
        Pairs(name="network.all_to_all", metric="bandwidth", unit="B/s", better="higher", subject=Subject(host=host),
              params={"size": size, "op": "send"}, peers=[p for p in HOSTS if p != host],
              values=(1e9 * rng.lognormal(0, 0.02, MATRIX_FILE_HOSTS - 1) * (0.6 if i == slow else 1)).tolist())
        for i, host in enumerate(HOSTS)
    ]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create("net", ["net"], path=tmp_path / "run")
    run.info.hosts = HOSTS
    for size in SIZES:
        for row in rows(size):
            run.append(row)
    run.append(Measurement(name="network.wire", metric="share", unit="1"))
    run.finish("complete")
    return run


def test_rows_of_many_hosts_become_one_record_a_size_with_files(run: Run) -> None:
    kinds = [json.loads(line)["kind"] for line in (run.path / "records.jsonl").read_text().splitlines()]
    assert kinds == ["matrix", "matrix", "measurement"]
    files = {path.name: path.stat().st_size for path in run.path.glob("pairs-*")}
    cells = MATRIX_FILE_HOSTS * (MATRIX_FILE_HOSTS - 1)
    assert files == {"pairs-1.i32": 8 * cells, "pairs-1.f32": 4 * cells, "pairs-2.f32": 4 * cells}
    assert [r.id for r in run.records] == [1, 2, 3]


def test_a_matrix_has_the_rows_that_were_appended(run: Run) -> None:
    matrices = [r for r in Run.load(run.path).records if isinstance(r, Matrix)]
    for matrix, size in zip(matrices, SIZES, strict=True):
        reloaded = {row.subject.host: row for row in rows_of(matrix)}
        for row in rows(size):
            reloaded_row = reloaded[row.subject.host]
            assert (reloaded_row.peers, reloaded_row.params, reloaded_row.id) == (
                row.peers,
                row.params,
                matrix.id,
            )
            assert reloaded_row.values == pytest.approx(row.values, rel=1e-6)


def test_the_culprit_is_the_same_from_rows_and_from_files(run: Run) -> None:
    of_files = PairMatrix.of_bandwidth(Run.load(run.path).records, HOSTS)
    of_rows = PairMatrix.of_bandwidth([row for size in SIZES for row in rows(size)], HOSTS)
    assert of_files.hosts == of_rows.hosts and of_files.layers == of_rows.layers
    assert np.allclose(of_files.value, of_rows.value, atol=1e-5)
    assert [(s.side, s.hosts) for s in suspects(of_files)] == [("transmit", ("n7",))]
    assert of_files.rows["n7"] == [1, 2]


def test_rows_of_few_hosts_stay_rows(tmp_path: Path) -> None:
    run = Run.create("net", ["net"], path=tmp_path / "run")
    run.append(Pairs(name="a", metric="bandwidth", unit="B/s", peers=["b"], values=[1.0]))
    assert [type(r) for r in run.records] == [Pairs]


def test_rows_that_no_other_record_follows_are_kept(tmp_path: Path) -> None:
    run = Run.create("net", ["net"], path=tmp_path / "run")
    run.info.hosts = HOSTS
    for row in rows(65536)[:3]:
        run.append(row)
    run.finish("partial", "interrupted")
    (matrix,) = Run.load(run.path).records
    assert isinstance(matrix, Matrix) and matrix.cells == 3 * (MATRIX_FILE_HOSTS - 1)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda folder: (folder / "pairs-1.f32").write_bytes(b"\0" * 10), "10 bytes"),
        (lambda folder: (folder / "pairs-1.f32").unlink(), "missing"),
        (
            lambda folder: (folder / "pairs-1.i32").write_bytes(
                b"\xff" * 8 * MATRIX_FILE_HOSTS * (MATRIX_FILE_HOSTS - 1)
            ),
            "a host beyond",
        ),
        (lambda folder: _edit(folder, "pairs-1.f32", "../secret"), "names the file"),
        (lambda folder: _edit(folder, "pairs-1.f32", "/etc/passwd"), "names the file"),
        (lambda folder: _link(folder), "no plain file"),
    ],
)
def test_files_that_do_not_fit_are_refused(run: Run, damage, complaint: str) -> None:
    damage(run.path)
    matrix = next(r for r in Run.load(run.path).records if isinstance(r, Matrix))
    with pytest.raises(UserError, match=complaint):
        cells_of(matrix)


def _edit(folder: Path, old: str, new: str) -> None:
    records = folder / "records.jsonl"
    records.write_text(records.read_text().replace(old, new))


def _link(folder: Path) -> None:
    (folder / "pairs-1.f32").rename(folder / "other")
    (folder / "pairs-1.f32").symlink_to(folder / "other")
