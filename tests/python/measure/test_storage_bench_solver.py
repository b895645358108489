"""``assay io bench reaction-diffusion``: the snapshots equal those computed here, for every decomposition and way of
writing, and a changed file is detected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from storage_benches import MPIS, bench, median, plant, records_of_kind, show_run_cut_after_each_record

pytestmark = pytest.mark.programs

LENGTH, STEPS, INTERVAL = 24, 6, 3
FEED, KILL, DT, DU, DV = 0.04, 0.06075, 0.2, 0.05, 0.1


def expected_cells(steps: int) -> NDArray[np.float64]:
    """The field u after ``steps`` steps, by the same operations in the same order, so every bit must agree."""
    u, v = np.zeros((LENGTH, LENGTH)), np.zeros((LENGTH, LENGTH))
    middle = LENGTH // 2
    u[middle - 3 : middle + 3, middle - 3 : middle + 3] = 0.7
    v[middle - 6 : middle + 6, middle - 6 : middle + 6] = 0.9

    def laplacian(s: NDArray[np.float64]) -> NDArray[np.float64]:
        left, right = np.roll(s, 1, 1), np.roll(s, -1, 1)
        up, down = np.roll(s, 1, 0), np.roll(s, -1, 0)
        return left + right + up + down - 4.0 * s

    for _ in range(steps):
        du = DU * laplacian(u) + (u * u * v - (FEED + KILL) * u)
        dv = DV * laplacian(v) + (-u * u * v + FEED * (1.0 - v))
        u, v = u + du * DT, v + dv * DT
    return u


def solve(
    capfd: pytest.CaptureFixture[str], mpi: str, *arguments: str, **options_of_bench: Any
) -> list[dict[str, Any]]:
    common = ["-L", str(LENGTH), "-s", str(STEPS), "-i", str(INTERVAL), "--repeats", "1"]
    return bench(capfd, "reaction-diffusion", mpi, *common, *arguments, **options_of_bench)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize(
    ("ranks", "arguments"),
    [
        (1, ["--iotype", "view"]),
        (2, ["--iotype", "manual"]),
        (4, ["--iotype", "view", "-c"]),
        (4, ["--iotype", "manual", "--xnp", "4", "--ynp", "1"]),
        (4, ["--iotype", "chunk"]),
    ],
)
def test_snapshots_equal_the_computed_field(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str, ranks: int, arguments: list[str]
) -> None:
    records = solve(capfd, mpi, *arguments, "--", "-o", str(folder / "out_"), ranks=ranks)
    assert median(records, "wrong") == 0
    assert {r["params"]["files"] for r in records_of_kind(records, "measurement")} == {3}
    params = records_of_kind(records, "measurement")[0]["params"]
    width, height = LENGTH // params["xnp"], LENGTH // params["ynp"]
    names = [f"out_{LENGTH}x{LENGTH}-{width}x{height}-{number:06}.bin" for number in range(3)]
    assert sorted(path.name for path in folder.glob("out_*")) == names
    for number, name in enumerate(names):
        cells = np.fromfile(folder / name)
        if "chunk" in arguments:  # tile after tile, in the order of ranks
            tiles = cells.reshape(params["ynp"], params["xnp"], height, width)
            cells = tiles.transpose(0, 2, 1, 3).reshape(-1)
        assert np.array_equal(cells.reshape(LENGTH, LENGTH), expected_cells(number * INTERVAL))


@pytest.mark.parametrize("mpi", MPIS)
def test_the_digest_does_not_depend_on_ranks_or_way_of_writing(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str
) -> None:
    digests = set()
    for ranks, iotype in ((1, "view"), (2, "chunk"), (4, "manual")):
        records = solve(capfd, mpi, "--iotype", iotype, ranks=ranks)
        digests |= {
            r["params"]["digest"] for r in records_of_kind(records, "measurement") if r["metric"] == "wrong"
        }
        (folder / "out").rename(folder / f"before-{ranks}")
    assert len(digests) == 1


@pytest.mark.parametrize("mpi", MPIS)
def test_the_json_of_rdbench_and_the_times_of_phases(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str
) -> None:
    records = solve(capfd, mpi, "--nosync", "--rdbench-json", "rd.json")
    rdbench = json.loads((folder / "rd.json").read_text())
    assert (rdbench["L"], rdbench["nprocs"], rdbench["nfiles"], rdbench["nosync"]) == (LENGTH, 2, 3, True)
    assert rdbench["totalWriteSizeByte"] == 3 * 8 * LENGTH * LENGTH
    assert rdbench["writeBandwidthByte"] * rdbench["writeTimeSec"] == pytest.approx(
        rdbench["totalWriteSizeByte"]
    )
    assert len(rdbench["phaseDurationsSec"]["write"]) == 3
    show_run_cut_after_each_record(folder / "out")
    phases = [median(records, f"{phase}_time") for phase in ("compute", "communication", "write")]
    assert max(phases) <= median(records, "total_time") <= sum(phases) * 1.001


@pytest.mark.parametrize("mpi", MPIS)
def test_a_changed_snapshot_is_detected(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    plant(monkeypatch, mpi, flip="1000")
    records = solve(capfd, mpi, "--iotype", "manual", status=1)
    assert median(records, "wrong") == 3
    assert any(v["outcome"] == "FAIL" for v in records_of_kind(records, "verdict"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-L", "25"], "cannot be divided over"),
        (["--xnp", "3"], "do not divide 2 ranks"),
        (["--iotype", "log"], "invalid choice"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    from assay.cli import main

    assert main(["io", "bench", "reaction-diffusion", "-n", "2", "--stock", "-o", "out", *arguments]) == 2
    captured = capfd.readouterr()
    assert message in captured.err + captured.out and "Traceback" not in captured.err
