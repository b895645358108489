"""``assay alloc`` on allocators with planted costs: page faults and retention are found exactly, a slow allocator and a
growing one are named, and recorded programs are replayed call for call. Figures that depend on the machine's speed or
load belong to the acceptance tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.commands.options import parse_sizes
from assay.launch.engines import engines_folder
from assay.measure.alloc import thread_counts
from assay.measure.allocators import LIBRARIES, find_library, parse_allocators
from assay.records.run import Run

ROOT = Path(__file__).parents[3]
ASSAY = ROOT / "assay"
PLANTED = engines_folder().parent / "tests" / "planted_allocators"
LIMIT_S = 300
PAGE = 4096

pytestmark = pytest.mark.skipif(
    not (engines_folder() / "assay-alloc").is_file() or not PLANTED.is_dir(),
    reason="the engines and the planted allocators are not built",
)

Records = list[dict[str, Any]]


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planted(name: str) -> str:
    return str(PLANTED / f"libplanted_{name}.so")


def study(capfd: pytest.CaptureFixture[str], allocators: str, *arguments: str) -> Records:
    assert main(["alloc", "--json", "-o", "out", "--allocators", allocators, *arguments]) == 0
    records: Records = json.loads(capfd.readouterr().out)["records"]
    return records


def medians(records: Records, metric: str, allocator: str = "", **params: Any) -> list[float]:
    return [
        r["summary"]["median"]
        for r in records
        if r["kind"] == "measurement"
        and r["metric"] == metric
        and "summary" in r
        and allocator in ("", r["params"]["allocator"])
        and all(r["params"].get(key) == value for key, value in params.items())
    ]


def findings(records: Records, severity: str) -> list[str]:
    return [r["cause"] for r in records if r["kind"] == "finding" and r.get("severity") == severity]


@pytest.mark.slow
def test_faults_are_counted_exactly(working_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The planted allocator has one fault in each malloc, and one for each page at first touch."""
    records = study(
        capfd,
        planted("fault"),
        "--only",
        "sizes",
        "--sizes",
        "4096,10000,1MiB",
        "--threads",
        "1,2",
        "--quick",
    )
    for size, pages in ((4096, 1), (10000, 3), (1 << 20, 256)):
        for threads in (1, 2):
            for state in ("first", "repeated"):
                where = {"size": size, "threads": threads, "state": state}
                assert medians(records, "malloc_faults", **where) == [1]
                assert medians(records, "first_touch_faults", **where) == [pages]
                assert medians(records, "retouch_faults", **where) == [0]
                assert medians(records, "free_faults", **where) == [0]


@pytest.mark.slow
def test_retention_is_exact_and_growth_is_named(
    working_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The leaking allocator retains a page and the block's pages for each block of each cycle, the other nothing."""
    both = f"{planted('leak')},{planted('fault')}"
    records = study(capfd, both, "--only", "retention", "--sizes", "64KiB", "--repeats", "6")
    batch = (16 << 20) // (64 << 10) * (PAGE + (64 << 10))
    for cycles in (1, 3, 6):
        assert medians(records, "retained", "libplanted_leak.so", cycles=cycles) == [cycles * batch]
        assert medians(records, "retained", "libplanted_fault.so", cycles=cycles) == [0]
    assert medians(records, "live", "libplanted_fault.so") == [batch]
    (cause,) = findings(records, "warning")
    assert cause.startswith("libplanted_leak.so never reuses freed memory")


@pytest.mark.slow
def test_a_slow_allocator_is_slow(working_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The planted allocator waits for 20 microseconds in each malloc. A busy machine can only add to that."""
    names = ["--only", "sizes,threads", "--sizes", "64", "--threads", "1", "--quick"]
    records = study(capfd, planted("slow"), *names)
    for metric in ("malloc", "malloc_touch", "pair"):
        (slow,) = medians(records, metric, state="repeated")
        assert slow >= 20e-6
    (rate,) = medians(records, "rate")
    assert rate <= 1 / 20e-6


@pytest.mark.acceptance("profile")
@pytest.mark.statistical(
    "1 in 1000, estimated: half of the calls of glibc, 0.1 us each, would have to be interrupted for 20 us"
)
def test_a_slow_allocator_is_found_slow(working_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    records = study(
        capfd,
        f"glibc,{planted('slow')}",
        "--only",
        "sizes,threads",
        "--sizes",
        "64",
        "--threads",
        "1",
        "--quick",
    )
    for metric in ("malloc", "malloc_touch", "pair"):
        (slow,) = medians(records, metric, "libplanted_slow.so", state="repeated")
        (usual,) = medians(records, metric, "glibc", state="repeated")
        assert slow >= 20e-6 > usual
    (rate,) = medians(records, "rate", "libplanted_slow.so")
    assert rate <= 1 / 20e-6
    assert findings(records, "advice") == ["for small blocks: glibc", "for blocks of mixed sizes: glibc"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "timed",
    [
        False,
        pytest.param(
            True,
            marks=[
                pytest.mark.acceptance("profile"),
                pytest.mark.statistical(
                    "1 in 1000, estimated: a single malloc would have to be interrupted for a millisecond"
                ),
            ],
        ),
    ],
)
def test_touching_is_included_in_malloc_touch_and_not_in_malloc(
    timed: bool, working_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The time of malloc alone excludes the page faults of a large block. The time of malloc and one store per page
    includes them."""
    assert (
        main(
            [
                "alloc",
                "-a",
                planted("fault"),
                "--only",
                "sizes",
                "--sizes",
                "64MiB",
                "--threads",
                "1",
                "-o",
                "out",
            ]
        )
        == 0
    )
    out = capfd.readouterr().out
    assert "For 64 MiB, first of a process" in out and "malloc alone" in out and "16384" in out
    records = Run.load(working_folder / "out").records
    assert (working_folder / "out" / "report.html").is_file()
    if not timed:
        return
    times = {r.metric: r.summary.median for r in records if getattr(r, "params", {}).get("state") == "first"}  # type: ignore[union-attr]
    assert times["malloc_touch"] > 10 * times["malloc"]


@pytest.mark.slow
def test_peak_over_live_of_random_lifetimes(working_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The planted allocator uses an additional page for each block and frees it with the block: its peak is high for
    small blocks, and nothing is retained."""
    records = study(capfd, f"glibc,{planted('fault')}", "--only", "mixed", "--quick")
    assert medians(records, "retained", "libplanted_fault.so") == [0]
    (planted_ratio,), (glibc_ratio,) = (
        medians(records, "peak_over_live", allocator) for allocator in ("libplanted_fault.so", "glibc")
    )
    assert planted_ratio > 5 > glibc_ratio > 1


TITLES = (
    *("malloc + free, 1 thread", "page faults", "resident after free", "threads, each with its own blocks"),
    *("handed over", "random sizes and lifetimes"),
)


@pytest.mark.slow
def test_every_experiment_has_its_table(working_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["alloc", "--quick", "--sizes", "64,64KiB", "-a", "glibc", "-o", "out"]) == 0
    out = capfd.readouterr().out
    assert [title for title in TITLES if title not in out] == []


@pytest.mark.acceptance("profile")
def test_every_experiment_with_every_installed_allocator(
    working_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["alloc", "--quick", "--sizes", "64,64KiB", "-o", "out"]) == 0
    out = capfd.readouterr().out
    for title in (*TITLES, "advice: for small blocks"):
        assert title in out
    for name in LIBRARIES:
        assert find_library(name)[1] in out
    run = Run.load(working_folder / "out")
    assert run.info.state == "complete"


def test_an_allocator_that_is_not_installed_is_waived(
    working_folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIBRARIES, "jemalloc", ("libjemalloc-of-nobody.so.2", "libjemalloc2"))
    records = study(capfd, "glibc,jemalloc", "--only", "mixed", "--quick")
    (waived,) = [r for r in records if r.get("status") == "waived"]
    assert waived["params"]["allocator"] == "jemalloc" and "apt-get install libjemalloc2" in waived["reason"]


def test_sizes_beyond_the_memory_are_waived(working_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    records = study(capfd, "glibc", "--only", "sizes", "--sizes", "64,4096GiB", "--threads", "1", "--quick")
    (waived,) = [r for r in records if r.get("status") == "waived"]
    assert waived["params"]["size"] == 4096 << 30 and "GB are available" in waived["reason"]
    assert medians(records, "malloc", size=64)


@pytest.mark.slow
def test_variants_without_huge_pages_and_with_settings(
    working_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = "glibc+nohuge,glibc+huge,glibc+GLIBC_TUNABLES=glibc.malloc.arena_max=1"
    records = study(capfd, names, "--only", "retention", "--sizes", "64MiB", "--quick")
    assert medians(records, "huge", "glibc+nohuge", size=64 << 20) == [0]
    assert len(medians(records, "live")) == 3


# ---- replay


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("no compiler for the planted program")
    executable = tmp_path_factory.mktemp("planted") / "planted"
    source = ROOT / "tests/fixtures/heap/planted.cpp"
    command = ["g++", "-std=c++17", "-O2", "-g", "-pthread", source, "-o", executable]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return executable


def record_program(program: Path, scenario: str) -> None:
    command = [ASSAY, "heap", "-o", "before", "--", program, scenario]
    subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)


def replay(capfd: pytest.CaptureFixture[str], allocators: str, *arguments: str) -> Records:
    assert main(["alloc", "replay", "before", "-o", "out", "--json", "-a", allocators, *arguments]) == 0
    records: Records = json.loads(capfd.readouterr().out)["records"]
    return records


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "mallocs", "reallocs", "frees"),
    [
        ("churn", 50_000, 0, 50_000),
        ("grow", 1, 4_999, 1),
        ("threads", 80_000, 0, 80_000),
        ("handover", 1_000, 0, 1_000),
        ("ways", 12, 0, 12),
        ("leak", 10, 0, 0),
    ],
)
def test_a_replay_repeats_the_planted_calls(
    scenario: str,
    mallocs: int,
    reallocs: int,
    frees: int,
    program: Path,
    working_folder: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The run-time library adds a few calls: its buffers, and two of each thread."""
    record_program(program, scenario)
    records = replay(capfd, "glibc", "--repeats", "1")
    calls = {
        r["metric"]: r["summary"]["n"] for r in records if r.get("metric") in ("malloc", "realloc", "free")
    }
    few = 40
    assert 0 <= calls["malloc"] - mallocs <= few
    assert calls.get("realloc", 0) == reallocs
    assert 0 <= calls.get("free", 0) - frees <= few
    assert medians(records, "calls") == [sum(calls.values())]


@pytest.mark.slow
def test_a_replay_measures_memory_and_faults_of_an_allocator(
    program: Path, working_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The planted allocator places each block of 200 bytes on its own page, after a page with its size: two pages and
    two faults per block."""
    record_program(program, "handover")
    records = replay(capfd, planted("fault"))
    (mallocs,) = [r["summary"]["n"] for r in records if r.get("metric") == "malloc"]
    (live,), (faults,) = medians(records, "peak_live"), medians(records, "faults")
    (peak,) = medians(records, "peak")
    assert live >= 200_000
    # The largest of the run-time library's own blocks has some 19 pages.
    assert 2 * mallocs <= faults <= 2 * mallocs + 60
    assert 1000 * 2 * PAGE <= peak <= 1000 * 2 * PAGE + live
    untouched = replay_untouched(capfd)
    assert medians(untouched, "faults")[0] < 1.1 * mallocs + 60


def replay_untouched(capfd: pytest.CaptureFixture[str]) -> Records:
    command = ["alloc", "replay", "before", "-o", "untouched", "--json", "-a", planted("fault"), "--no-touch"]
    assert main(command) == 0
    records: Records = json.loads(capfd.readouterr().out)["records"]
    return records


def test_a_truncated_trace_is_refused(
    program: Path, working_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record_program(program, "churn")
    (trace,) = (working_folder / "before" / "heap").glob("*.heap")
    Path("short.heap").write_bytes(trace.read_bytes()[:-7])
    expect_refusal(capfd, ["replay", "short.heap"], "damaged")


def test_a_trace_of_large_blocks_alone_is_refused(
    program: Path, working_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [ASSAY, "heap", "--at-least", "1kB", "-o", "before", "--", program, "leak"]
    subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    expect_refusal(capfd, ["replay", "before"], "only a part of the allocations")


# ---- wrong input


def expect_refusal(capfd: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["alloc", *arguments]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and message in err, err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--allocators", "ptmalloc9"], "unknown allocator 'ptmalloc9'"),
        (["--allocators", "/not/there.so"], "/not/there.so"),
        (["--allocators", "/etc/passwd"], "not a shared library"),
        (["--allocators", "/etc"], "not a file"),
        (["--allocators", "glibc+none"], "no variant 'none'"),
        (["--allocators", "glibc,glibc"], "twice"),
        (["--allocators", ","], "no allocator is named"),
        (["--sizes", "much"], "--sizes"),
        (["--sizes", "0"], "--sizes"),
        (["--sizes", "4GiB:16B"], "begins above its end"),
        (["--sizes", "16B:"], "--sizes"),
        (["--threads", "two"], "--threads"),
        (["--threads", "0"], "--threads"),
        (["--repeats", "0"], "--repeats"),
        (["--only", "everything"], "unknown question 'everything'"),
        (["play", "again"], "did you mean 'assay alloc replay RUN'"),
        (["replay"], "one run or one trace"),
        (["replay", "nowhere"], "nowhere does not exist"),
        (["replay", "/etc/passwd"], "is not a heap trace"),
        (["replay", "."], "run.json"),
        (["replay", "/etc/passwd", "--sizes", "16"], "--sizes is an option of the study"),
        (["--no-touch"], "--no-touch is an option of replay"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, working_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expect_refusal(capfd, arguments, message)


def test_a_library_without_malloc_is_refused(working_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (libm,) = {
        Path(failure)
        for failure in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6")
        if Path(failure).exists()
    } or {None}
    if libm is None:
        pytest.skip("no libm in the usual folders")
    expect_refusal(capfd, ["-a", str(libm)], "does not serve malloc")


def test_an_incomplete_allocator_is_refused(working_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expect_refusal(capfd, ["-a", planted("half")], "serves realloc")


def test_size_ranges_and_thread_counts_are_parsed() -> None:
    assert parse_sizes("16B:1KiB") == [16, 64, 256, 1024]
    assert parse_sizes("16:100") == [16, 64, 100]
    assert parse_sizes("20MB,16") == [16, 20_000_000]
    assert [thread_counts(cores) for cores in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_allocator_names_and_variants_are_parsed(tmp_path: Path) -> None:
    plain = shutil.copy(planted("fault"), tmp_path / "lib+one.so")
    (with_plus,) = parse_allocators(str(plain))
    assert (with_plus.name, with_plus.settings) == ("lib+one.so", ())
    (off,) = parse_allocators(f"{planted('fault')}+nohuge")
    assert off.name == "libplanted_fault.so+nohuge" and not off.huge_pages
    jemalloc, glibc = parse_allocators("jemalloc+MALLOC_CONF=thp:always,narenas:1,glibc")
    assert (jemalloc.settings, glibc.name) == (("MALLOC_CONF=thp:always,narenas:1",), "glibc")
    assert parse_allocators("glibc+arena1")[0].environment() == "GLIBC_TUNABLES=glibc.malloc.arena_max=1"


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(working_folder: Path) -> None:
    arguments = ["alloc", "-a", "glibc", "--only", "sizes", "--sizes", "16B:16MiB", "--json", "-o", "out"]
    process = subprocess.Popen(
        [ASSAY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    deadline = time.monotonic() + LIMIT_S
    records = working_folder / "out" / "records.jsonl"
    while time.monotonic() < deadline and not (records.exists() and b"malloc_touch" in records.read_bytes()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    report = json.loads(out)
    assert report["run"]["state"] == "partial"
    assert medians(report["records"], "malloc", size=16)
