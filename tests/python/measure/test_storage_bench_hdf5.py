"""``assay io bench hdf5``: every pattern of memory and file holds the same values, also read by h5dump."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from storage_benches import (
    HDF5_MPIS,
    bench,
    has_hdf5,
    in_acceptance,
    median,
    records_of_kind,
    show_run_cut_after_each_record,
)

from assay.cli import main

pytestmark = pytest.mark.programs

PATTERNS = ("CONTIG", "INTERLEAVED")
SMALL = ["--repeats", "1", "DIM_1=512", "TIMESTEPS=2"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("mpi", HDF5_MPIS)
@pytest.mark.parametrize("memory", PATTERNS)
@pytest.mark.parametrize("file", PATTERNS)
def test_written_values_are_read_back(
    capfd: pytest.CaptureFixture[str], mpi: str, memory: str, file: str
) -> None:
    arguments = [
        f"MEM_PATTERN={memory}",
        f"FILE_PATTERN={file}",
        "COLLECTIVE_DATA=YES",
        "COLLECTIVE_METADATA=YES",
    ]
    records = bench(capfd, "hdf5", mpi, *SMALL, *arguments)
    assert median(records, "wrong") == 0
    for op in ("write", "read"):
        raw, observed = (median(records, f"{kind}_rate", op=op) for kind in ("raw", "observed"))
        assert 0 < observed <= raw
        assert raw * median(records, "raw_time", op=op) == pytest.approx(2 * 512 * 32 * 2)


@pytest.mark.parametrize("mpi", HDF5_MPIS)
@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        (["READ_OPTION=PARTIAL", "TO_READ_NUM_PARTICLES=256"], 256),
        (["READ_OPTION=STRIDED", "STRIDE_SIZE=64", "BLOCK_SIZE=8"], 2 * 512 // 64 * 8),
        (["NUM_DIMS=2", "DIM_1=64", "DIM_2=8"], 2 * 64 * 8),
        (["NUM_DIMS=3", "DIM_1=16", "DIM_2=8", "DIM_3=4", "READ_OPTION=PARTIAL"], 2 * 8 * 8 * 4),
    ],
)
def test_parts_are_read_and_compared(
    capfd: pytest.CaptureFixture[str], mpi: str, arguments: list[str], read: int
) -> None:
    records = bench(capfd, "hdf5", mpi, *SMALL, *arguments)
    assert median(records, "wrong") == 0
    moved = median(records, "raw_rate", op="read") * median(records, "raw_time", op="read")
    assert moved == pytest.approx(read * 32 * 2)


@in_acceptance
@pytest.mark.parametrize("mpi", HDF5_MPIS)
def test_compute_time_is_not_part_of_the_observed_time(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str
) -> None:
    arguments = ["EMULATED_COMPUTE_TIME_PER_TIMESTEP=500 ms", "--h5bench-csv", "h5.csv"]
    records = bench(capfd, "hdf5", mpi, *SMALL, *arguments)
    assert median(records, "compute_time", op="write") >= 1.0
    assert median(records, "observed_time", op="write") < 1.0
    blocks = (folder / "h5.csv").read_text().split("\n\n")
    assert [re.search(r"^operation, (\w+)", block, re.MULTILINE)[1] for block in blocks] == ["write", "read"]  # type: ignore[index]
    show_run_cut_after_each_record(folder / "out")
    assert all("observed " in block and block.startswith("metric, value, unit") for block in blocks)


@pytest.mark.skipif(shutil.which("h5dump") is None, reason="no h5dump (Debian: hdf5-tools)")
@pytest.mark.parametrize("mpi", HDF5_MPIS)
def test_h5dump_reads_the_file(folder: Path, capfd: pytest.CaptureFixture[str], mpi: str) -> None:
    """The file has the parts of both ranks after each other, in the requested type."""
    from assay.launch.engines import storage_bench
    from assay.launch.launchers import find_launcher
    from assay.launch.placement import HERE, Segment

    launcher, file = find_launcher(mpi), folder / "kept.h5"
    arguments = ["run", "storage.hdf5", "--file", str(file), "--dim-1", "8", "--timesteps", "1", "--keep"]
    command = launcher.command(HERE, [Segment(["here"] * 2)], [str(storage_bench(mpi)), *arguments])
    environment = {**os.environ, **launcher.environment(HERE)}
    subprocess.run(command, check=True, timeout=240, capture_output=True, env=environment)
    dump = subprocess.run(
        ["h5dump", "-d", "/Timestep_0/id_1", str(file)], check=True, capture_output=True, text=True
    )
    assert "H5T_STD_I32LE" in dump.stdout and "( 16 ) / ( 16 )" in dump.stdout
    values = [int(x) for line in re.findall(r"\(\d+\): (.*)", dump.stdout) for x in re.findall(r"\d+", line)]
    expected = [((k * 2654435761) ^ (rank * 97 + 6 * 7919)) & 0xFFFFFF for rank in (0, 1) for k in range(8)]
    assert values == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["DIM_1=viel"], "is not a number"),
        (["READ_OPTION=CS"], "choose one of FULL, PARTIAL, STRIDED"),
        (["COMPRESS=YES"], "is not supported"),
        (["FULL"], "is not a setting"),
        (["COLLECTIVE_DATA=1"], "must be YES or NO"),
        (["DIM_2=4"], "raise num_dims"),
        (["READ_OPTION=STRIDED", "BLOCK_SIZE=65", "STRIDE_SIZE=64"], "blocks no longer than the stride"),
        (["--config", "nowhere.cfg"], "cannot be read"),
    ],
)
def test_bad_input_is_one_line(capfd: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    mpi = next((m for m in ("mpich", "openmpi") if has_hdf5(m)), None)
    if mpi is None:
        pytest.skip("no MPI with HDF5 here")
    assert main(["io", "bench", "hdf5", "--mpi", mpi, "-n", "2", "--stock", "-o", "out", *arguments]) == 2
    captured = capfd.readouterr()
    assert message in captured.err + captured.out and "Traceback" not in captured.err


def test_settings_are_read_from_a_file_of_h5bench(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mpi = next((m for m in ("mpich", "openmpi") if has_hdf5(m)), None)
    if mpi is None:
        pytest.skip("no MPI with HDF5 here")
    settings = ["# h5bench's", "MEM_PATTERN=INTERLEAVED", "TIMESTEPS=1", "", "DIM_1=1 K", "MODE=SYNC"]
    (folder / "sample.cfg").write_text("\n".join(settings))
    records = bench(capfd, "hdf5", mpi, "--repeats", "1", "--config", "sample.cfg", "TIMESTEPS=2")
    params = records_of_kind(records, "measurement")[0]["params"]
    assert (params["mem_pattern"], params["timesteps"], params["dims"]) == ("INTERLEAVED", 2, "1024 x 1 x 1")
