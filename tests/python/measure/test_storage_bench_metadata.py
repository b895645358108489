"""``assay io bench metadata``: counts are exact, and a file system that is slow, fails, or hides files is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from storage_benches import (
    MPIS,
    bench,
    in_acceptance,
    is_available,
    records_of_kind,
    show_run_cut_after_each_record,
)

from assay.cli import main
from assay.launch.engines import engines_folder

pytestmark = pytest.mark.programs

FAULTY_FS = engines_folder().parent / "tests/faulty_fs/libfaulty-fs.so"
ITEMS, RANKS = 20, 2
DIRECTORY_OPERATIONS = ["mkdir", "stat directory", "rmdir"]
FILE_OPERATIONS = ["create", "stat", "open", "readdir", "rename", "unlink"]
MPI_OPERATIONS = ["create", "open", "delete"]

Records = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def metadata(capfd: pytest.CaptureFixture[str], mpi: str, *options: str, **options_of_bench: Any) -> Records:
    return bench(
        capfd, "metadata", mpi, "--repeats", "1", "--", "-n", str(ITEMS), *options, **options_of_bench
    )


def plant(monkeypatch: pytest.MonkeyPatch, rule: str, files: str, rank: int = 0) -> None:
    if not FAULTY_FS.is_file():
        pytest.skip("the engines' tests are not built")
    for name, value in {
        "LD_PRELOAD": str(FAULTY_FS), "FAULTY_FS": rule, "FAULTY_FS_FILES": files, "FAULTY_FS_RANK": str(rank),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


def samples(records: Records, metric: str, api: str, op: str) -> list[float]:
    (matching,) = (
        r["samples"]
        for r in records_of_kind(records, "measurement")
        if r["metric"] == metric and (r["params"]["api"], r["params"]["op"]) == (api, op)
    )
    return list(matching)


def wrong(records: Records) -> dict[tuple[str, str], float]:
    """The operations with wrong items."""
    return {
        (r["params"]["api"], r["params"]["op"]): r["summary"]["median"]
        for r in records_of_kind(records, "measurement")
        if r["metric"] == "wrong" and r["summary"]["median"]
    }


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("unique", [False, True])
def test_counts_are_exact(folder: Path, capfd: pytest.CaptureFixture[str], mpi: str, unique: bool) -> None:
    """In a shared directory every rank lists the files of all ranks."""
    options = ["-i", "3", "-w", "100", "-e", "100", "-y", "-d", str(folder), *(["-u"] if unique else [])]
    records = metadata(capfd, mpi, *options)
    measured = {(r["params"]["api"], r["params"]["op"]) for r in records_of_kind(records, "measurement")}
    posix = [("posix", op) for op in (*DIRECTORY_OPERATIONS, *FILE_OPERATIONS)]
    assert measured == {*posix, *(("mpiio", op) for op in MPI_OPERATIONS)}
    for api, op in measured:
        listed = RANKS if op == "readdir" and not unique else 1
        counts = samples(records, "operations", api, op)
        assert counts == [RANKS * ITEMS * listed] * 3
        times, rates = samples(records, "time", api, op), samples(records, "rate", api, op)
        assert [rate * time for rate, time in zip(rates, times, strict=True)] == pytest.approx(counts)
        (latency,) = latency_records(records, api, op)
        assert latency["summary"]["n"] == (3 * RANKS if op == "readdir" else sum(counts))
    assert wrong(records) == {}
    assert {v["outcome"] for v in records_of_kind(records, "verdict")} == {"PASS"}
    assert sorted(path.name for path in folder.iterdir()) == ["out"]  # all items are gone
    show_run_cut_after_each_record(folder / "out")


def latency_records(records: Records, api: str, op: str) -> Records:
    return [
        r
        for r in records_of_kind(records, "measurement")
        if r["metric"] == "latency" and (r["params"]["api"], r["params"]["op"]) == (api, op)
    ]


@pytest.mark.parametrize("mpi", MPIS)
def test_files_or_directories_only(capfd: pytest.CaptureFixture[str], mpi: str) -> None:
    for options, ops in ((["-F", "-a", "POSIX"], FILE_OPERATIONS), (["-D"], DIRECTORY_OPERATIONS)):
        records = metadata(capfd, mpi, *options, "-i", "1")
        assert {r["params"]["op"] for r in records_of_kind(records, "measurement")} == set(ops)
        Path("out").rename(f"out-{options[0]}")


@pytest.mark.parametrize("mpi", MPIS)
def test_items_of_another_rank_are_used(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    """Rank 0 cannot open a certain file of rank 1. With a shift of 1 rank 0 fails once in each iteration, without a
    shift never."""
    plant(monkeypatch, "open:ENOENT", "*/file.1.7")
    records = metadata(capfd, mpi, "-a", "posix", "-i", "3", "-N", "1", status=1)
    assert wrong(records) == {("posix", "open"): 3}
    assert samples(records, "operations", "posix", "open") == [RANKS * ITEMS] * 3
    Path("out").rename("shifted")
    own = metadata(capfd, mpi, "-a", "posix", "-N", "0")
    assert wrong(own) == {}


@pytest.mark.parametrize("mpi", MPIS)
def test_a_listing_that_leaves_files_out_is_found(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    plant(monkeypatch, "readdir:HIDE", "*/file.*.3")
    records = metadata(capfd, mpi, "-F", "-a", "posix", "-i", "2", status=1)
    assert wrong(records) == {
        ("posix", "readdir"): 2 * RANKS
    }  # one file of each rank is missing in rank 0's listings
    assert samples(records, "operations", "posix", "readdir") == [RANKS * RANKS * ITEMS - RANKS] * 2


@in_acceptance
@pytest.mark.parametrize("mpi", MPIS)
def test_a_slow_rank_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    """Each open of rank 1 takes 10 ms."""
    plant(monkeypatch, "open:SLEEP10", "*/file.*", rank=1)
    records = bench(
        capfd, "metadata", mpi, "--repeats", "3", "--", "-n", str(ITEMS), "-F", "-a", "posix", "-i", "1"
    )
    times = [
        r["samples"]
        for r in records_of_kind(records, "measurement")
        if r["metric"] == "time" and r["params"]["op"] == "create"
    ]
    assert len(times) == 3 and min(min(round_samples) for round_samples in times) >= ITEMS * 0.01
    findings = [f for f in records_of_kind(records, "finding") if f["rule"] == "straggler"]
    assert 1 in [f["subject"]["rank"] for f in findings]


@pytest.mark.parametrize("mpi", MPIS)
def test_phases_after_a_stonewall_use_the_created_files(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    """Rank 1 cannot create its 1000 files within the stonewall."""
    plant(monkeypatch, "open:SLEEP25", "*/file.*", rank=1)
    options = ["-n", "1000", "-F", "-a", "posix", "-i", "1", "-W", "1", "-d", str(folder)]
    records = bench(capfd, "metadata", mpi, "--repeats", "1", "--", *options)
    (created,) = samples(records, "operations", "posix", "create")
    (opened,) = samples(records, "operations", "posix", "open")
    assert opened <= created < 2 * 1000
    assert samples(records, "time", "posix", "create")[0] >= 1
    assert wrong(records) == {}
    assert sorted(path.name for path in folder.iterdir()) == ["out"]


@in_acceptance
@pytest.mark.parametrize("mpi", MPIS)
def test_a_stonewall_stops_each_phase(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    """Rank 1 needs 25 ms to create a file, so it creates about 40 of 100,000. Rank 0 creates as many as it can. Later
    phases use only created files, and none is left."""
    plant(monkeypatch, "open:SLEEP25", "*/file.*", rank=1)
    options = ["-n", "100000", "-F", "-a", "posix", "-i", "1", "-W", "1", "-d", str(folder)]
    records = bench(capfd, "metadata", mpi, "--repeats", "1", "--", *options)
    (created,) = samples(records, "operations", "posix", "create")
    (opened,) = samples(records, "operations", "posix", "open")
    assert RANKS <= created < 2 * 100_000 and opened <= created
    (slow,) = (r for r in latency_records(records, "posix", "create"))
    assert slow["summary"]["n"] == created and slow["summary"]["max"] >= 0.025
    assert samples(records, "time", "posix", "create")[0] >= 1
    assert wrong(records) == {}
    assert sorted(path.name for path in folder.iterdir()) == ["out"]


@pytest.mark.parametrize("mpi", MPIS)
def test_a_refused_file_is_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    plant(monkeypatch, "open:EDQUOT", "*/file.1.7", rank=1)
    records = metadata(capfd, mpi, "-a", "posix", status=2)
    assert any("rank 1 on" in f["problem"] and "/file.1.7: Disk quota exceeded" in f["problem"]
               for f in records_of_kind(records, "failure"))  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-a", "S3"], "'S3' is not one of posix, mpiio, both"),
        (["-F", "-D"], "only files, and only directories, are asked for"),
        (["-D", "-a", "mpiio"], "MPI-IO has no directories"),
        (["-w", "8k", "-e", "4k"], "-e 4096: all of a file is read; fix: give -e the size of -w"),
        (["-n", "0"], "items"),
        (["-z", "3"], "-z is not supported: a tree of directories"),
        (["-d", "/proc/nowhere"], "cannot make the directory /proc/nowhere/assay-metadata"),
    ],
)
def test_contradicting_options_are_one_line(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    mpi = next((m for m in ("mpich", "openmpi") if is_available(m)), None)
    if mpi is None:
        pytest.skip("no MPI here")
    common = ["--mpi", mpi, "-n", "2", "--stock", "--repeats", "1", "-o", "out"]
    assert main(["io", "bench", "metadata", *common, "--", *arguments]) == 2
    captured = capfd.readouterr()
    output = " ".join((captured.err + captured.out).split())
    assert message in output and "Traceback" not in output


@pytest.mark.parametrize("mpi", MPIS)
def test_counts_of_mpi_files_are_the_same_when_accelerated(
    capfd: pytest.CaptureFixture[str], mpi: str
) -> None:
    if not (engines_folder() / f"libassay-io-{mpi}.so").is_file():
        pytest.skip(f"no accelerator for {mpi} here")
    arguments = ["--mpi", mpi, "-n", "2", "--both", "--json", "-o", "out", "--repeats", "1"]
    assert (
        main(
            ["io", "bench", "metadata", *arguments, "--", "-a", "mpiio", "-n", "10", "-w", "5000", "-i", "2"]
        )
        == 0
    )
    records: Records = json.loads(capfd.readouterr().out)["records"]
    for io in ("stock", "accelerated"):
        of_io = [r for r in records if r.get("params", {}).get("io") == io]
        assert all(samples(of_io, "operations", "mpiio", op) == [20, 20] for op in MPI_OPERATIONS)
        assert wrong(of_io) == {}
    speedups = [r for r in records_of_kind(records, "measurement") if r["name"] == "storage.speedup"]
    assert {r["params"]["op"] for r in speedups} == set(MPI_OPERATIONS)
