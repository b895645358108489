"""Command lines of IOR, RDBench and h5bench have the same meaning in ``assay io bench``: data, stonewall, choice of
readers, and files of results. Several are those of the test suite Peanuts."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema_of_ior
import numpy as np
import pytest
from storage_benches import (
    HDF5_MPIS,
    MPIS,
    bench,
    has_hdf5,
    in_acceptance,
    is_available,
    median,
    plant,
    records_of_kind,
)

from assay.cli import main
from assay.launch.engines import engines_folder

pytestmark = pytest.mark.programs

SIGNATURE = -1401473791
PACKETS = ["timestamp", "offset", "incompressible", "random"]
PAGE, TRANSFER, BLOCK = 4096, 8192, 65536


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


Records = list[dict[str, Any]]


def run(
    capfd: pytest.CaptureFixture[str],
    benchmark: str,
    mpi: str,
    command: list[str],
    variant: Sequence[str] = ("--stock",),
    **options_of_bench: Any,
) -> Records:
    """Runs a command line of the original benchmark into a new run folder."""
    if Path("out").exists():
        Path("out").rename(f"out-{len(list(Path().glob('out*')))}")
    records = bench(
        capfd, benchmark, mpi, "--repeats", "1", "--", *command, variant=variant, **options_of_bench
    )
    if "--store" in variant:  # the files have what was acknowledged in memory
        assert main(["io", "drain", "--timeout", "240s", variant[-1]]) == 0
        capfd.readouterr()
    return records


def ior_command(file: Path, *options: str, block: int = BLOCK, transfer: int = TRANSFER) -> list[str]:
    return ["ior", "-a", "MPIIO", "-g", "-G", str(SIGNATURE), "-k", "-e", "-i", "1", "-s", "1", "-b", str(block),
            "-t", str(transfer), "-o", str(file), *options]  # fmt: skip


def transfer_words(file: Path) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The words of each rank's transfers: [rank, transfer, word]; the first word of a page is a hash of its offset."""
    return np.fromfile(file, "<u8").reshape(2, BLOCK // TRANSFER, TRANSFER // 8)


@pytest.mark.parametrize("mpi", MPIS)
def test_ior_as_peanuts_calls_it(folder: Path, capfd: pytest.CaptureFixture[str], mpi: str) -> None:
    """Three starts: a write, a remote read and a local read, each with its JSON. A negative -G is read as unsigned."""
    file = folder / "testfile"
    for number, options in enumerate((["-w"], ["-r", "-C", "-Q", "1"], ["-r"])):
        summary = folder / f"ior_summary_{number}.json"
        outputs = ["-O", "summaryFormat=JSON", "-O", f"summaryFile={summary}"]
        records = run(capfd, "ior", mpi, ior_command(file, "-l", "timestamp", *outputs, *options))
        wrong = [
            r["summary"]["median"] for r in records_of_kind(records, "measurement") if r["metric"] == "wrong"
        ]
        assert wrong == ([] if "-w" in options else [0])
        *verified, fault_free = sorted(v["criterion"] for v in records_of_kind(records, "verdict"))
        assert (fault_free, len(verified)) == ("no fault was found", 0 if "-w" in options else 1)
        ior_json = json.loads(summary.read_text())
        jsonschema_of_ior.check(ior_json)
        (result,) = ior_json["tests"][0]["Results"][0]
        assert result["access"] == ("write" if "-w" in options else "read")
        assert ior_json["summary"][0]["xsizeMiB"] == 2 * BLOCK / 2**20
    words = transfer_words(file)
    for rank in (0, 1):
        assert set(words[rank, :, 2::2][:, 255:][:, 1:].ravel()) == {rank << 32 | SIGNATURE & 0xFFFFFFFF}
        assert (words[rank, :, 1::2] == np.arange(8, TRANSFER, 16)).all()
    assert median(run(capfd, "ior", mpi, ior_command(file, "-r", "-R", "-l", "t")), "wrong") == 0
    unsigned = ior_command(file, "-r", "-R", "-l", "t", "-G", str(SIGNATURE & 0xFFFFFFFF))
    assert median(run(capfd, "ior", mpi, unsigned), "wrong") == 0
    other = ior_command(file, "-r", "-l", "t", "-G", "7")
    assert median(run(capfd, "ior", mpi, other, status=1), "wrong") == 2 * BLOCK // TRANSFER


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("packet", PACKETS)
def test_each_type_of_data_is_written_and_compared(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str, packet: str
) -> None:
    file = folder / "testfile"
    written = run(capfd, "ior", mpi, ior_command(file, "-w", "-W", "-l", packet))
    assert median(written, "wrong") == 0
    words = transfer_words(file)
    inner = np.delete(words, [0, PAGE // 8], axis=2)
    repeats = {"timestamp": True, "random": True, "offset": False, "incompressible": False}
    assert (inner == inner[:, :1]).all() == repeats[packet]
    if packet == "offset":
        assert (words[..., 1::2].ravel() == np.arange(8, 2 * BLOCK, 16)).all()
    if packet in ("random", "incompressible"):
        assert len(set(inner[:, 0].ravel())) == inner[:, 0].size
    offset = BLOCK + 3 * TRANSFER + 77  # rank 1's fourth transfer
    data = bytearray(file.read_bytes())
    data[offset] ^= 4
    file.write_bytes(data)
    records = run(capfd, "ior", mpi, ior_command(file, "-r", "-R", "-l", packet), status=1)
    (wrong,) = records_of_kind(records, "corruption")
    assert (wrong["params"]["file_offset"], wrong["params"]["writer"], wrong["message"]) == (offset, 1, 3)


@pytest.mark.parametrize("mpi", MPIS)
def test_readers_are_placed_at_random(folder: Path, capfd: pytest.CaptureFixture[str], mpi: str) -> None:
    """A wrong byte in each block shows which rank reads it."""
    file, ranks = folder / "testfile", 4
    run(capfd, "ior", mpi, ior_command(file, "-w"), ranks=ranks)
    data = bytearray(file.read_bytes())
    for rank in range(ranks):
        data[rank * BLOCK + 99] ^= 1
    file.write_bytes(data)

    def writers(seed: int) -> tuple[int, ...]:
        command = ior_command(file, "-r", "-R", "-Z", "-X", str(seed))
        records = run(capfd, "ior", mpi, command, ranks=ranks, status=1)
        assert {r["params"].get("data") for r in records_of_kind(records, "corruption")} == {
            "a random rank's"
        }
        pairs = {r["params"]["reader"]: r["params"]["writer"] for r in records_of_kind(records, "corruption")}
        return tuple(pairs[rank] for rank in range(ranks))

    writers_by_seed = [writers(seed) for seed in (1, 2, 3)]
    assert len(set(writers_by_seed)) > 1
    assert writers(1) == writers_by_seed[0]


def blocks_written(file: Path, block: int, transfer: int) -> list[int]:
    """The number of transfers of each rank that are in the file."""
    data = file.read_bytes().ljust(2 * block, b"\0")
    return [
        sum(
            any(data[offset : offset + transfer])
            for offset in range(rank * block, (rank + 1) * block, transfer)
        )
        for rank in (0, 1)
    ]


# 1024 transfers; rank 1 needs 2 ms for each. How many rank 0 does within a stonewall depends on the machine, so tests
# that count them belong to acceptance. In the gate a file of counts is made and read.
SLOW = {"block": 4 << 20, "transfer": 4096}


@in_acceptance
@pytest.mark.parametrize("mpi", MPIS)
def test_a_stonewall_stops_each_rank(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    """Transfers that were not written are not read and not counted."""
    file = folder / "testfile"
    plant(monkeypatch, mpi, slow="1:2000")
    records = run(capfd, "ior", mpi, ior_command(file, "-w", "-r", "-R", "-W", "-D", "1", **SLOW))
    fast, slow = blocks_written(file, **SLOW)
    assert 0 < slow <= 501 < fast
    assert median(records, "moved", op="write") == (fast + slow) * 4096
    assert median(records, "moved", op="read") <= (fast + slow) * 4096
    assert {
        r["summary"]["median"] for r in records_of_kind(records, "measurement") if r["metric"] == "wrong"
    } == {0}
    rate = median(records, "bandwidth", op="write") * median(records, "total_time", op="write")
    assert rate == pytest.approx((fast + slow) * 4096)
    assert median(records, "transfer_time", op="write") >= 1


@in_acceptance
@pytest.mark.parametrize("mpi", MPIS)
def test_collective_calls_stop_together(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    file = folder / "testfile"
    plant(monkeypatch, mpi, slow="1:2000")
    records = run(capfd, "ior", mpi, ior_command(file, "-w", "-c", "-D", "1", **SLOW))
    fast, slow = blocks_written(file, **SLOW)
    assert 0 < slow == fast < 1024
    assert median(records, "moved") == (fast + slow) * 4096


@in_acceptance
@pytest.mark.parametrize("mpi", MPIS)
def test_wear_out_brings_every_rank_to_the_fastest(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    file = folder / "testfile"
    plant(monkeypatch, mpi, slow="1:2000")
    command = ior_command(file, "-w", "-D", "1", "-O", "stoneWallingWearOut=1", **SLOW)
    records = run(capfd, "ior", mpi, command)
    fast, slow = blocks_written(file, **SLOW)
    assert slow == fast > 501
    assert median(records, "moved") == (fast + slow) * 4096
    assert median(records, "transfer_time") >= slow * 0.002
    assert median(records, "stonewall_bandwidth") <= (fast + 501) * 4096
    again = ior_command(file, "-r", "-R", "-O", f"stoneWallingWearOutIterations={fast}", **SLOW)
    monkeypatch.delenv("LD_PRELOAD")
    read = run(capfd, "ior", mpi, again)
    assert (median(read, "moved"), median(read, "wrong")) == (2 * fast * 4096, 0)


@pytest.mark.parametrize("mpi", MPIS)
def test_a_status_file_carries_a_stonewall_to_a_later_read(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    """Rank 1 writes fewer transfers. A later read reads exactly the written transfers of each rank."""
    file, status = folder / "testfile", folder / "status"
    plant(monkeypatch, mpi, slow="1:2000")
    outputs = ["-O", f"stoneWallingStatusFile={status}"]
    run(capfd, "ior", mpi, ior_command(file, "-w", "-D", "1", *outputs, **SLOW))
    written = blocks_written(file, **SLOW)
    assert [int(line) for line in status.read_text().splitlines()] == written and written[1] <= 501
    monkeypatch.delenv("LD_PRELOAD")
    read = run(capfd, "ior", mpi, ior_command(file, "-r", "-R", *outputs, **SLOW))
    assert (median(read, "moved"), median(read, "wrong")) == (sum(written) * 4096, 0)
    status.write_text("7\n")
    refused = run(capfd, "ior", mpi, ior_command(file, "-r", *outputs, **SLOW), status=2)
    assert any(
        f"{status} does not hold the transfers of 2 ranks" in f["problem"]
        for f in records_of_kind(refused, "failure")
    )


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("variant", ["--stock", "--accelerated"])
def test_a_view_places_the_same_bytes(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str, variant: str
) -> None:
    """-V writes three segments of interleaved blocks, as without a view. -Y and -E are tested as well."""
    shape = ["-s", "3", "-l", "offset"]
    for name, options in (("offsets", []), ("view", ["-V", "-Y", "-v", "-v", "-A", "3"])):
        records = run(
            capfd, "ior", mpi, ior_command(folder / name, "-w", "-W", *shape, *options), variant=[variant]
        )
        assert median(records, "wrong") == 0
    assert (folder / "offsets").read_bytes() == (folder / "view").read_bytes()
    assert len((folder / "view").read_bytes()) == 3 * 2 * BLOCK
    larger = (folder / "view").read_bytes() + b"kept"
    (folder / "view").write_bytes(larger)
    run(capfd, "ior", mpi, ior_command(folder / "view", "-w", "-E", *shape), variant=[variant])
    assert (folder / "view").read_bytes() == larger
    run(capfd, "ior", mpi, ior_command(folder / "view", "-w", *shape), variant=[variant])
    assert (folder / "view").read_bytes() == larger[:-4]


@pytest.fixture(params=["file", pytest.param("memory", marks=in_acceptance)])
def accelerated(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The options of an accelerated benchmark at each level, with a new store."""
    store = tempfile.mkdtemp(prefix="assay-test-io-", dir="/dev/shm")
    yield ["--accelerated", "--until", request.param, "--store", store]
    shutil.rmtree(store)


def skip_without_accelerator(mpi: str) -> None:
    if not (engines_folder() / f"libassay-io-{mpi}.so").is_file():
        pytest.skip(f"no accelerator for {mpi} here")


@pytest.mark.parametrize("mpi", MPIS)
def test_ior_of_peanuts_with_the_accelerator(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str, accelerated: list[str]
) -> None:
    """The accelerator writes the same file as the MPI's own I/O, and each reads the other's file."""
    skip_without_accelerator(mpi)
    options = ["-l", "timestamp", "-O", "summaryFormat=JSON", "-O", f"summaryFile={folder}/ior.json"]
    for name, variant in (("stock", ["--stock"]), ("fast", accelerated)):
        run(capfd, "ior", mpi, ior_command(folder / name, "-w", *options), variant=variant)
        (result,) = json.loads((folder / "ior.json").read_text())["tests"][0]["Results"][0]
        assert result["access"] == "write" and result["bwMiB"] > 0
    for name, variant in (("stock", accelerated), ("fast", ["--stock"])):
        read = run(
            capfd,
            "ior",
            mpi,
            ior_command(folder / name, "-r", "-R", "-C", "-Q", "1", *options),
            variant=variant,
        )
        assert median(read, "wrong") == 0
        assert {r["params"]["io"] for r in records_of_kind(read, "measurement")} == {
            variant[0].removeprefix("--")
        }
    assert (folder / "stock").read_bytes() == (folder / "fast").read_bytes()


@pytest.mark.parametrize("mpi", MPIS)
def test_rdbench_of_peanuts_with_the_accelerator(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str, accelerated: list[str]
) -> None:
    """Snapshots are equal to the last bit."""
    skip_without_accelerator(mpi)
    for name, variant in (("stock", ["--stock"]), ("fast", accelerated)):
        command = ["rdbench", "--length", "64", "--output", f"{folder}/{name}_", "--nomkdir"]
        command += ["--iotype", "view"]
        command += ["--steps", "20", "--interval", "10", "--disable-initial-output", "--xnp", "2", "--nosync"]
        records = run(capfd, "reaction-diffusion", mpi, command, variant=variant)
        assert median(records, "wrong") == 0
    names = [f"64x64-32x64-{number:06}.bin" for number in (0, 1)]
    for name in names:
        assert (folder / f"stock_{name}").read_bytes() == (folder / f"fast_{name}").read_bytes()


@pytest.mark.parametrize("mpi", HDF5_MPIS)
def test_h5bench_of_peanuts_with_the_accelerator(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str, accelerated: list[str]
) -> None:
    """The MPI's own I/O reads a file that the accelerator wrote, and the other way round."""
    skip_without_accelerator(mpi)
    lines = ["MEM_PATTERN=CONTIG", "FILE_PATTERN=CONTIG", "TIMESTEPS=2", "COLLECTIVE_DATA=NO", "READ_OPTION=FULL",
             "EMULATED_COMPUTE_TIME_PER_TIMESTEP=0 s", "NUM_DIMS=1", "DIM_1=4 K"]  # fmt: skip
    (folder / "h5.cfg").write_text("\n".join(lines) + "\n")
    for writer, reader in ((accelerated, ["--stock"]), (["--stock"], accelerated)):
        run(capfd, "hdf5", mpi, ["h5bench_write", "h5.cfg", "rw.h5"], variant=writer)
        assert (
            median(run(capfd, "hdf5", mpi, ["h5bench_read", "h5.cfg", "rw.h5"], variant=reader), "wrong") == 0
        )
        (folder / "rw.h5").unlink()


@pytest.mark.parametrize(
    ("benchmark", "command", "message"),
    [
        ("ior", ["-w", "-O", "stoneWallingStatusFile=f"], "the write has no stonewall"),
        ("ior", ["-w", "-Y", "-D", "3"], "cannot be synced after each write and stonewalled"),
        ("ior", ["--quick"], "unrecognized arguments: --quick"),
        ("reaction-diffusion", ["--quick"], "unrecognized arguments: --quick"),
        ("hdf5", ["QUICK=1"], "the setting QUICK is not supported"),
        ("ior", ["-l", "zeros"], "'zeros' is not one of timestamp, offset, incompressible, random"),
        ("ior", ["-O", "lustreStripeCount=4"], "-O lustreStripeCount=4: it is not a directive"),
        ("ior", ["-O", "summaryFormat=CSV"], "only JSON is supported"),
        ("ior", ["-O", "summaryFile=x"], "summaryFile and summaryFormat=JSON are not both given"),
        ("ior", ["-O", "fsync=yes"], "'yes' is not 0 or 1"),
        ("ior", ["-G", "--5"], "expected one argument"),
        ("ior", ["-G", "4294967296"], "signature"),
        ("ior", ["-C", "-Z"], "reordered in two ways"),
        ("ior", ["-O", "stoneWallingWearOut=1"], "needs the time of the stonewall"),
        (
            "reaction-diffusion",
            ["--disable-initial-output", "-s", "5", "-i", "10"],
            "no snapshot would be written",
        ),
        ("reaction-diffusion", ["--nomkdir", "-L", "24", "-o", "nowhere/o_"], "cannot open nowhere/o_"),
        ("reaction-diffusion", ["-L", "24", "-o", "/proc/no/o_"], "cannot make the folder /proc/no"),
        ("hdf5", ["h5bench_write", "a.cfg"], "not a command line of h5bench; fix: h5bench_write CONFIG FILE"),
        ("hdf5", ["h5bench_read", "nowhere.cfg", "rw.h5"], "cannot be read"),
        ("hdf5", ["BENCHMARK_TYPE=read"], "the file to read is not given"),
        ("hdf5", ["BENCHMARK_TYPE=append"], "is not supported"),
    ],
)
def test_contradicting_options_are_one_line(
    capfd: pytest.CaptureFixture[str], benchmark: str, command: list[str], message: str
) -> None:
    is_installed = has_hdf5 if benchmark == "hdf5" else is_available
    mpi = next((m for m in ("mpich", "openmpi") if is_installed(m)), None)
    if mpi is None:
        pytest.skip("no MPI here")
    arguments = ["--mpi", mpi, "-n", "2", "--stock", "--repeats", "1", "-o", "out"]
    assert main(["io", "bench", benchmark, *arguments, "--", *command]) == 2
    captured = capfd.readouterr()
    output = " ".join((captured.err + captured.out).split())
    assert message in output and "Traceback" not in output


RESULT_FILES = [("ior", "--ior-json"), ("reaction-diffusion", "--rdbench-json"), ("hdf5", "--h5bench-csv")]


@pytest.mark.parametrize(("benchmark", "option"), RESULT_FILES)
@pytest.mark.parametrize(
    ("file", "reason"),
    [("nowhere/x", "No such file or directory"), ("there", "Is a directory"), ("file/x", "Not a directory")],
)
def test_a_result_file_that_cannot_be_written_is_refused_before_the_run(
    folder: Path, capfd: pytest.CaptureFixture[str], benchmark: str, option: str, file: str, reason: str
) -> None:
    is_installed = has_hdf5 if benchmark == "hdf5" else is_available
    mpi = next((m for m in ("mpich", "openmpi") if is_installed(m)), None)
    if mpi is None:
        pytest.skip("no MPI here")
    Path("there").mkdir()
    Path("file").write_text("")
    arguments = ["--mpi", mpi, "-n", "2", "--stock", "--repeats", "1", "--json", "-o", "out"]
    assert main(["io", "bench", benchmark, *arguments, option, file]) == 2
    captured = capfd.readouterr()
    assert f"{option} {file}: {reason}; fix: give a path that can be written" in " ".join(
        captured.err.split()
    )
    assert captured.out == "" and not Path("out").exists()


@pytest.mark.parametrize("mpi", MPIS)
def test_a_result_file_stays_until_the_results_are_there(
    folder: Path, capfd: pytest.CaptureFixture[str], mpi: str
) -> None:
    """One that exists is kept where a run is refused, a new one is not left empty; one in the run's folder is taken."""
    Path("old.json").write_text("old")
    command = [
        "io",
        "bench",
        "ior",
        "--mpi",
        mpi,
        "-n",
        "2",
        "--stock",
        "--repeats",
        "1",
        "--json",
        "-o",
        "out",
    ]
    for file in ("old.json", "new.json"):
        assert main([*command, "--ior-json", file, "--", "-w", "-b", "512t"]) == 2
    assert Path("old.json").read_text() == "old" and not Path("new.json").exists()
    capfd.readouterr()
    assert main([*command, "--ior-json", "out/ior.json", "--", "-w", "-t", "4k", "-b", "8k"]) == 0
    assert json.loads(capfd.readouterr().out)["run"] and json.loads(Path("out/ior.json").read_text())["tests"]


@pytest.mark.parametrize("mpi", MPIS)
def test_rdbench_as_peanuts_calls_it(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    """The options write no initial snapshot and read none back, so a planted wrong byte stays unnoticed."""
    command = ["rdbench", "--length", "32", "--output", str(folder / "o_1"), "--nomkdir", "--iotype", "view",
               "--steps", "20", "--interval", "10", "--disable-initial-output", "--xnp", "2", "--nosync"]  # fmt: skip
    validated = run(capfd, "reaction-diffusion", mpi, command)
    assert median(validated, "wrong") == 0
    names = [f"o_132x32-16x32-{number:06}.bin" for number in (0, 1)]
    assert sorted(path.name for path in folder.glob("o_1*")) == names
    correct = [np.fromfile(folder / name) for name in names]
    assert not np.array_equal(*correct)
    plant(monkeypatch, mpi, flip="1000")
    capfd.readouterr()
    Path("out").rename("before")
    arguments = ["--mpi", mpi, "-n", "2", "--stock", "--repeats", "1", "-o", "out"]
    arguments += ["--rdbench-json", "rd.json"]
    command += ["--iotype", "manual", "--novalidate", "--prettify"]
    assert main(["io", "bench", "reaction-diffusion", *arguments, "--", *command]) == 0
    wrong = [np.flatnonzero(np.fromfile(folder / name).view("u8") != cells.view("u8"))
             for name, cells in zip(names, correct, strict=True)]  # fmt: skip
    assert [list(cells) for cells in wrong] == [[1000 // 8]] * 2
    assert b'"wrong"' not in Path("out/records.jsonl").read_bytes()
    text = Path("rd.json").read_text()
    rdbench = json.loads(text)
    assert text.startswith('{\n    "version"')
    assert (rdbench["validate"], rdbench["initialOutput"], rdbench["sync"], rdbench["nfiles"]) == (
        False,
        False,
        False,
        2,
    )


@pytest.mark.parametrize("mpi", MPIS)
def test_rdbench_creates_its_folder(folder: Path, capfd: pytest.CaptureFixture[str], mpi: str) -> None:
    run(capfd, "reaction-diffusion", mpi, ["-L", "32", "-s", "2", "-i", "2", "-o", "new/nested/folder/o_"])
    assert len(list((folder / "new/nested/folder").iterdir())) == 2


@pytest.mark.parametrize("mpi", HDF5_MPIS)
def test_h5bench_as_peanuts_calls_it(folder: Path, capfd: pytest.CaptureFixture[str], mpi: str) -> None:
    """One start writes the file and another reads it, each with its CSV. A value that is changed in between is
    found."""
    common = ["MEM_PATTERN=CONTIG", "FILE_PATTERN=CONTIG", "TIMESTEPS=2", "COLLECTIVE_DATA=NO",
              "COLLECTIVE_METADATA=NO", "EMULATED_COMPUTE_TIME_PER_TIMESTEP=0 s",
              "NUM_DIMS=3", "DIM_1=8", "DIM_2=8", "DIM_3=8"]  # fmt: skip
    for op, options in (("write", []), ("read", ["READ_OPTION=FULL"])):
        lines = [*common, *options, f"CSV_FILE={folder}/output-{op}.csv"]
        (folder / f"{op}.cfg").write_text("\n".join(lines) + "\n")

    def h5bench(op: str, **options_of_bench: Any) -> Records:
        return run(capfd, "hdf5", mpi, [f"h5bench_{op}", f"{op}.cfg", "rw.h5"], **options_of_bench)

    assert {r["params"]["op"] for r in records_of_kind(h5bench("write"), "measurement")} == {"write"}
    records = h5bench("read")
    assert {r["params"]["op"] for r in records_of_kind(records, "measurement")} == {"read"}
    assert median(records, "wrong") == 0
    for op in ("write", "read"):
        csv = (folder / f"output-{op}.csv").read_text()
        assert (
            csv.startswith("metric, value, unit")
            and csv.count("operation,") == 1
            and f"operation, {op}," in csv
        )
    data = bytearray((folder / "rw.h5").read_bytes())
    value = (1 * 2654435761 ^ 6 * 7919) & 0xFFFFFF  # id_1 of rank 0's second particle in the first step
    offset = data.find(value.to_bytes(4, "little"))
    assert offset > 0
    data[offset] ^= 1
    (folder / "rw.h5").write_bytes(data)
    assert median(h5bench("read", status=1), "wrong") == 1
