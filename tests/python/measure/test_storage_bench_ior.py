"""``assay io bench ior`` finds planted faults (a wrong byte at its offset, a slow rank, a rank that hangs) and writes
IOR's JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_of_ior
import pytest
from storage_benches import (
    MPIS,
    bench,
    in_acceptance,
    is_available,
    plant,
    records_of_kind,
    show_run_cut_after_each_record,
)

from assay.cli import main
from assay.launch.engines import engines_folder

pytestmark = pytest.mark.programs

FAULTY_FS = engines_folder().parent / "tests/faulty_fs/libfaulty-fs.so"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    left = [path for path in tmp_path.rglob("assay-io-*") if path.is_dir()]
    assert left == []  # scratch folders


def ior(
    capfd: pytest.CaptureFixture[str], mpi: str, *arguments: str, status: int = 0
) -> list[dict[str, Any]]:
    return bench(capfd, "ior", mpi, *arguments, status=status)


@pytest.mark.parametrize("mpi", MPIS)
def test_the_json_of_ior_has_each_write_and_read(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str
) -> None:
    """Each repetition has a write and a read, whose bandwidth is bytes divided by time."""
    arguments = [
        "--",
        "-w",
        "-r",
        "-W",
        "-R",
        "-t",
        "47008",
        "-b",
        "470080",
        "-s",
        "4",
        "-i",
        "2",
        "-C",
        "-e",
        "-g",
    ]
    records = ior(capfd, mpi, "--repeats", "2", "--ior-json", "ior.json", *arguments)
    ior_json = json.loads((folder / "ior.json").read_text())
    jsonschema_of_ior.check(ior_json)
    (test,) = ior_json["tests"]
    assert [[record["access"] for record in both] for both in test["Results"]] == [["write", "read"]] * 4
    moved = 2 * 4 * 470080
    for record in (record for both in test["Results"] for record in both):
        assert record["bwMiB"] * record["totalTime"] == pytest.approx(moved / 2**20)
        assert record["iops"] * record["wrRdTime"] == pytest.approx(2 * 40)
        assert record["totalTime"] >= max(record["openTime"], record["wrRdTime"], record["closeTime"])
        assert record["xferKiB"] == 47008 / 1024
    assert {record["operation"] for record in ior_json["summary"]} == {"write", "read"}
    percentiles = [r["summary"] for r in records_of_kind(records, "measurement") if r["metric"] == "latency"]
    assert all(s["n"] == 2 * 2 * 40 and s["min"] <= s["median"] <= s["p99"] <= s["max"] for s in percentiles)
    read = {
        r["params"]["data"]
        for r in records_of_kind(records, "measurement")
        if r["params"].get("op") == "read"
    }
    assert read == {"another rank's"}
    show_run_cut_after_each_record(folder / "out")


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("option", ["-W", "-R"])
def test_a_wrong_byte_is_reported_with_its_offset(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str, option: str
) -> None:
    """Rank 1's block begins at 65536: byte 70003 is in its second transfer of 4096."""
    plant(monkeypatch, mpi, flip="70003")
    arguments = ["--repeats", "1", "--", "-w", "-r", option, "-t", "4k", "-b", "64k"]
    records = ior(capfd, mpi, *arguments, status=1)
    corruptions = records_of_kind(records, "corruption")
    assert {r["params"]["file_offset"] for r in corruptions} == {70003}
    assert {(r["params"]["writer"], r["message"], r["offset"]) for r in corruptions} == {
        (1, 1, 70003 - 65536 - 4096)
    }
    (finding,) = (f for f in records_of_kind(records, "finding") if f["rule"] == "wrong_data")
    assert "offset 70003" in finding["cause"]
    wrong = int(corruptions[0]["expected"], 16) ^ int(corruptions[0]["observed"], 16)
    assert wrong.bit_count() == 1


@pytest.mark.parametrize("mpi", MPIS)
def test_stale_data_are_detected_without_full_comparison(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str
) -> None:
    """A file is written with one signature and read with another."""
    file = str(folder / "kept")
    ior(capfd, mpi, "--repeats", "1", "-t", "4k", "-b", "64k", "-G", "7", "-k", "--", "-w", "-o", file)
    (folder / "out").rename(folder / "before")
    same = ior(capfd, mpi, "--repeats", "1", "-t", "4k", "-b", "64k", "-G", "7", "-k", "--", "-r", "-o", file)
    assert records_of_kind(same, "corruption") == []
    (folder / "out").rename(folder / "again")
    other = ior(
        capfd, mpi, "--repeats", "1", "-t", "4k", "-b", "64k", "-G", "8", "--", "-r", "-o", file, status=1
    )
    wrong = [r["summary"]["median"] for r in records_of_kind(other, "measurement") if r["metric"] == "wrong"]
    assert wrong == [2 * 16]
    assert not (folder / "kept").exists()  # without -k


@in_acceptance
@pytest.mark.parametrize("mpi", MPIS)
def test_a_slow_rank_is_named(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    plant(monkeypatch, mpi, slow="1:2000")
    records = ior(capfd, mpi, "--repeats", "3", "-t", "4k", "-b", "64k")
    findings = [f for f in records_of_kind(records, "finding") if f["rule"] == "straggler"]
    assert [f["subject"]["rank"] for f in findings] == [1]
    assert findings[0]["severity"] == "warning" and "rank 1 on" in findings[0]["cause"]


@in_acceptance
@pytest.mark.parametrize("mpi", MPIS)
def test_a_hanging_rank_is_named(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    plant(monkeypatch, mpi, stall="1")
    records = ior(capfd, mpi, "--repeats", "1", "--timeout", "2s", "-t", "4k", "-b", "8k", status=2)
    assert any(
        re.search("rank 1 on .* writes for more than 2 s", f["problem"])
        for f in records_of_kind(records, "failure")
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "4k", "-b", "6k"], "is not a multiple of a transfer"),
        (["-a", "POSIX"], "only MPIIO is supported"),
        (["-t", "4x"], "is no number of IOR"),
        (["-S"], "-S is not supported: strided data types"),
        (["--sizes", "4k", "-t", "4k"], "--sizes and -t are both given"),
        (["--node-counts", "2"], "there are only 1 hosts"),
        (["--folder", "/proc/nowhere"], "cannot write to /proc/nowhere"),
        (["--", "-r"], "signature of the existing file"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    mpi = next((m for m in ("mpich", "openmpi") if is_available(m)), None)
    if mpi is None:
        pytest.skip("no MPI here")
    assert main(["io", "bench", "ior", "--mpi", mpi, "--stock", "-o", "out", *arguments]) == 2
    captured = capfd.readouterr()
    assert message in captured.err + captured.out
    assert "Traceback" not in captured.err


def test_a_missing_accelerator_is_detected(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with the library's name that is not a library: the engine checks which library provides MPI-IO."""
    if not is_available("openmpi"):
        pytest.skip("no openmpi here")
    engines = folder / "engines"
    engines.mkdir()
    for path in engines_folder().iterdir():
        os.symlink(path, engines / path.name)
    fake = engines / "libassay-io-openmpi.so"
    fake.unlink(missing_ok=True)
    fake.write_bytes(b"no library")
    monkeypatch.setenv("ASSAY_ENGINES", str(engines))
    arguments = ["--mpi", "openmpi", "--accelerated", "--repeats", "1", "-t", "4k", "-b", "1m"]
    assert main(["io", "bench", "ior", *arguments]) == 2
    assert "the accelerator is not loaded" in capfd.readouterr().out


def has_accelerator(mpi: str) -> bool:
    return is_available(mpi) and (engines_folder() / f"libassay-io-{mpi}.so").is_file()


@pytest.mark.parametrize("mpi", MPIS)
def test_stock_and_accelerated_alternate(folder: Path, capfd: pytest.CaptureFixture[str], mpi: str) -> None:
    """Both are verified in every byte, and the ratio of each round is that of its own figures."""
    if not has_accelerator(mpi):
        pytest.skip(f"no accelerator for {mpi} here")
    arguments = [
        "--both",
        "--repeats",
        "3",
        "--json",
        "-o",
        "out",
        "--sizes",
        "4k,64k",
        "--store-size",
        "256M",
    ]
    ior = ["-b", "1m", "-C", "-e", "-w", "-r", "-W", "-R"]
    assert main(["io", "bench", "ior", "--mpi", mpi, "-n", "2", *arguments, "--", *ior]) == 0
    records = json.loads(capfd.readouterr().out)["records"]
    figures = [r for r in records_of_kind(records, "measurement") if r["metric"] == "bandwidth"]
    order = list(dict.fromkeys((r["params"]["round"], r["params"]["io"]) for r in figures))
    assert order == [
        (1, "stock"),
        (1, "accelerated"),
        (2, "accelerated"),
        (2, "stock"),
        (3, "stock"),
        (3, "accelerated"),
    ]
    speedups = [r for r in records_of_kind(records, "measurement") if r["name"] == "storage.speedup"]
    assert len(speedups) == 2 * 2 * 2  # sizes, operations, with and without opening and closing
    (record,) = (r for r in speedups if r["params"]["figure"] == "bandwidth" and r["params"]["op"] == "write"
              and r["params"]["transfer"] == 65536)  # fmt: skip
    rates = {
        (r["params"]["round"], r["params"]["io"]): r["summary"]["median"]
        for r in figures
        if r["params"]["op"] == "write" and r["params"]["transfer"] == 65536
    }
    assert record["samples"] == pytest.approx(
        [rates[k, "accelerated"] / rates[k, "stock"] for k in (1, 2, 3)]
    )


@pytest.mark.skipif(not is_available("mpich"), reason="no mpich here")
def test_a_run_that_has_failed_is_resumed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A write that fails ends the run; resumed without the fault it runs only the missing steps."""
    arguments = ["--repeats", "2", "-t", "4k", "-b", "64k"]
    with pytest.MonkeyPatch.context() as context:
        context.setenv("LD_PRELOAD", str(FAULTY_FS))
        context.setenv("FAULTY_FS", "write:EIO")
        context.setenv("FAULTY_FS_FILES", f"{folder}/*")
        failed = ior(capfd, "mpich", *arguments, status=2)
    assert any("Input/output error" in f["problem"] or "cannot write" in f["problem"]
               for f in records_of_kind(failed, "failure"))  # fmt: skip
    assert main(["run", "--resume", "out"]) == 0
    capfd.readouterr()
    run = json.loads((folder / "out" / "run.json").read_text())
    assert run["state"] == "complete" and len(run["completed"]) == 2
    assert main(["run", "--resume", "out"]) == 2
    assert "complete" in capfd.readouterr().err


@pytest.mark.parametrize("mpi", MPIS)
def test_a_fallback_is_not_measured_as_accelerated(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str
) -> None:
    """The store is too small. The error is reported, and no bandwidth is recorded."""
    if not has_accelerator(mpi):
        pytest.skip(f"no accelerator for {mpi} here")
    arguments = ["--accelerated", "--repeats", "1", "--store-size", "1M", "-t", "4k", "-b", "1m"]
    assert main(["io", "bench", "ior", "--mpi", mpi, "-n", "2", "-o", "out", *arguments]) == 2
    captured = capfd.readouterr()
    assert "is too small" in captured.out and "Traceback" not in captured.err
    assert b'"bandwidth"' not in (folder / "out" / "records.jsonl").read_bytes()
