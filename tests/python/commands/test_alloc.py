"""``assay alloc`` on allocators whose costs are planted: faults and retention found exactly, slowness and growth named;
recorded programs replayed call for call. No figure here depends on how fast or how busy the machine is."""

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
from assay.launch.engines import engines_folder
from assay.measure.alloc import parse_sizes, thread_counts
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
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planted(name: str) -> str:
    return str(PLANTED / f"libplanted_{name}.so")


def study(capfd: pytest.CaptureFixture[str], allocators: str, *arguments: str) -> Records:
    assert main(["alloc", "--json", "-o", "out", "--allocators", allocators, *arguments]) == 0
    records: Records = json.loads(capfd.readouterr().out)["records"]
    return records


def medians(records: Records, metric: str, allocator: str = "", **where: Any) -> list[float]:
    return [
        r["summary"]["median"]
        for r in records
        if r["kind"] == "measurement"
        and r["metric"] == metric
        and "summary" in r
        and allocator in ("", r["params"]["allocator"])
        and all(r["params"].get(key) == value for key, value in where.items())
    ]


def findings(records: Records, severity: str) -> list[str]:
    return [r["cause"] for r in records if r["kind"] == "finding" and r.get("severity") == severity]


@pytest.mark.slow
def test_faults_are_counted_exactly(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One in malloc, and one for each page at first touch, of every block in every cycle, by one thread or two."""
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
def test_retention_is_exact_and_growth_is_named(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A page before each block and the block's own, again in each cycle; of the one that gives all back, nothing."""
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
def test_a_slow_one_is_found_slow(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """20 microseconds in each malloc; a machine that is busy can only add to that."""
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
def test_what_the_two_methods_see(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Around malloc alone a large block costs next to nothing; around malloc and one store a page, its pages."""
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
    records = Run.load(place / "out").records
    assert (place / "out" / "report.html").is_file()
    times = {r.metric: r.summary.median for r in records if getattr(r, "params", {}).get("state") == "first"}  # type: ignore[union-attr]
    assert times["malloc_touch"] > 10 * times["malloc"]


@pytest.mark.slow
def test_random_lifetimes(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One page more for each block, given back with it: much while small blocks live, nothing at the end."""
    records = study(capfd, f"glibc,{planted('fault')}", "--only", "mixed", "--quick")
    assert medians(records, "retained", "libplanted_fault.so") == [0]
    (planted_ratio,), (glibc_ratio,) = (
        medians(records, "peak_over_live", allocator) for allocator in ("libplanted_fault.so", "glibc")
    )
    assert planted_ratio > 5 > glibc_ratio > 1


@pytest.mark.slow
def test_every_question_of_every_allocator_here(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["alloc", "--quick", "--sizes", "64,64KiB", "-o", "out"]) == 0
    out = capfd.readouterr().out
    for title in ("malloc + free, 1 thread", "page faults", "resident after free", "threads, each with its own blocks",
                  "handed over", "random sizes and lifetimes", "advice: for small blocks"):  # fmt: skip
        assert title in out
    for name in LIBRARIES:
        assert find_library(name)[1] in out
    run = Run.load(place / "out")
    assert run.info.state == "complete"


def test_one_that_is_not_here_is_waived(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIBRARIES, "jemalloc", ("libjemalloc-of-nobody.so.2", "libjemalloc2"))
    records = study(capfd, "glibc,jemalloc", "--only", "mixed", "--quick")
    (waived,) = [r for r in records if r.get("status") == "waived"]
    assert waived["params"]["allocator"] == "jemalloc" and "apt-get install libjemalloc2" in waived["reason"]


def test_what_does_not_fit_is_waived(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    records = study(capfd, "glibc", "--only", "sizes", "--sizes", "64,4096GiB", "--threads", "1", "--quick")
    (waived,) = [r for r in records if r.get("status") == "waived"]
    assert waived["params"]["size"] == 4096 << 30 and "GB are available" in waived["reason"]
    assert medians(records, "malloc", size=64)


@pytest.mark.slow
def test_huge_pages_off_and_settings(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = "glibc+nohuge,glibc+huge,glibc+GLIBC_TUNABLES=glibc.malloc.arena_max=1"
    records = study(capfd, names, "--only", "retention", "--sizes", "64MiB", "--quick")
    assert medians(records, "huge", "glibc+nohuge", size=64 << 20) == [0]
    assert len(medians(records, "live")) == 3


# ---- replay


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("no compiler for the planted program")
    where = tmp_path_factory.mktemp("planted") / "planted"
    source = ROOT / "tests/fixtures/heap/planted.cpp"
    command = ["g++", "-std=c++17", "-O2", "-g", "-pthread", source, "-o", where]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return where


def recorded(program: Path, what: str) -> None:
    command = [ASSAY, "heap", "-o", "before", "--", program, what]
    subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)


def replay(capfd: pytest.CaptureFixture[str], allocators: str, *arguments: str) -> Records:
    assert main(["alloc", "replay", "before", "-o", "out", "--json", "-a", allocators, *arguments]) == 0
    records: Records = json.loads(capfd.readouterr().out)["records"]
    return records


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "mallocs", "reallocs", "frees"),
    [
        ("churn", 50_000, 0, 50_000),
        ("grow", 1, 4_999, 1),
        ("threads", 80_000, 0, 80_000),
        ("handover", 1_000, 0, 1_000),
        ("ways", 12, 0, 12),
        ("leak", 10, 0, 0),
    ],
)
def test_a_replay_makes_the_planted_calls(
    what: str,
    mallocs: int,
    reallocs: int,
    frees: int,
    program: Path,
    place: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And those of the run-time library, which are a few: its buffers, and two of each thread."""
    recorded(program, what)
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
def test_a_replay_shows_what_an_allocator_takes(
    program: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Blocks of 200 bytes, each on a page of its own after one for its size: two faults a block, and two pages."""
    recorded(program, "handover")
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


def test_a_trace_that_is_cut_off_is_refused(
    program: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded(program, "churn")
    (trace,) = (place / "before" / "heap").glob("*.heap")
    Path("short.heap").write_bytes(trace.read_bytes()[:-7])
    refused(capfd, ["replay", "short.heap"], "damaged")


def test_a_trace_of_a_part_is_refused(program: Path, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = [ASSAY, "heap", "--at-least", "1kB", "-o", "before", "--", program, "leak"]
    subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    refused(capfd, ["replay", "before"], "only a part of the allocations")


# ---- what a user may get wrong


def refused(capfd: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(["alloc", *arguments]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and says in err, err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
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
        (["replay", "/etc/passwd"], "no heap trace"),
        (["replay", "."], "run.json"),
        (["replay", "/etc/passwd", "--sizes", "16"], "--sizes is an option of the study"),
        (["--no-touch"], "--no-touch is an option of replay"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], says: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused(capfd, arguments, says)


def test_a_library_that_is_no_allocator(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (libm,) = {
        Path(failure)
        for failure in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6")
        if Path(failure).exists()
    } or {None}
    if libm is None:
        pytest.skip("no libm where it is looked for")
    refused(capfd, ["-a", str(libm)], "does not serve malloc")


def test_half_an_allocator(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refused(capfd, ["-a", planted("half")], "serves realloc")


def test_sizes_and_threads() -> None:
    assert parse_sizes("16B:1KiB") == [16, 64, 256, 1024]
    assert parse_sizes("16:100") == [16, 64, 100]
    assert parse_sizes("20MB,16") == [16, 20_000_000]
    assert [thread_counts(cores) for cores in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_names_of_allocators(tmp_path: Path) -> None:
    plain = shutil.copy(planted("fault"), tmp_path / "lib+one.so")
    (with_plus,) = parse_allocators(str(plain))
    assert (with_plus.name, with_plus.settings) == ("lib+one.so", ())
    (off,) = parse_allocators(f"{planted('fault')}+nohuge")
    assert off.name == "libplanted_fault.so+nohuge" and not off.huge_pages
    jemalloc, glibc = parse_allocators("jemalloc+MALLOC_CONF=thp:always,narenas:1,glibc")
    assert (jemalloc.settings, glibc.name) == (("MALLOC_CONF=thp:always,narenas:1",), "glibc")
    assert parse_allocators("glibc+arena1")[0].environment() == "GLIBC_TUNABLES=glibc.malloc.arena_max=1"


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(place: Path) -> None:
    arguments = ["alloc", "-a", "glibc", "--only", "sizes", "--sizes", "16B:16MiB", "--json", "-o", "out"]
    process = subprocess.Popen(
        [ASSAY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    deadline = time.monotonic() + LIMIT_S
    records = place / "out" / "records.jsonl"
    while time.monotonic() < deadline and not (records.exists() and b"malloc_touch" in records.read_bytes()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    report = json.loads(out)
    assert report["run"]["state"] == "partial"
    assert medians(report["records"], "malloc", size=16)
