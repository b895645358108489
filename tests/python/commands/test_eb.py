"""``assay eb`` with a planted engine: bad input is one line, the verdict follows the ledger (the counts of events and
fragments), ``tune`` finds a planted maximum, and Ctrl-C keeps the measurements."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import planted_events_engine as planted
import pytest

from assay.cli import main
from assay.launch.engines import probe
from assay.records.run import Run
from assay.records.schema import Measurement

pytestmark = pytest.mark.programs

ROOT = Path(__file__).resolve().parents[3]
ON_FOUR_RANKS = ("--transport", "null", "-n", "4")


def environment(folder: Path, **plan: object) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        **planted.install(folder, plan, probe()),
    }


def assay(env: dict[str, str], *arguments: str, limit: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay", "eb", *arguments],
        capture_output=True,
        text=True,
        timeout=limit,
        env=env,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-n", "1"], "one rank alone"),
        (["-w", "localhost"], "one rank alone"),
        ([*ON_FOUR_RANKS, "--size", "0"], "size"),
        ([*ON_FOUR_RANKS, "--size", "4TiB"], "fragment"),
        ([*ON_FOUR_RANKS, "--size", "1GiB", "--credits", "1024"], "GiB are free"),
        ([*ON_FOUR_RANKS, "--credits", "0"], "--credits"),
        ([*ON_FOUR_RANKS, "--credits", "1000000"], "--credits"),
        ([*ON_FOUR_RANKS, "--parallel", "-1"], "--parallel"),
        ([*ON_FOUR_RANKS, "--input-rate", "fast"], "rate"),
        ([*ON_FOUR_RANKS, "--budget", "0"], "--budget"),
        ([*ON_FOUR_RANKS, "--filters", "3"], "--filters 3"),
        ([*ON_FOUR_RANKS, "--schedule", "shift", "--at-once"], "both given"),
        ([*ON_FOUR_RANKS, "--schedule-file", "/no/such/file"], "/no/such/file"),
        ([*ON_FOUR_RANKS, "--sizes-file", "/no/such/file"], "/no/such/file"),
        ([*ON_FOUR_RANKS, "--launcher", "openmpi"], "--launcher"),
        (["--transport", "rapidio", "-n", "2"], "rapidio"),
        (["--transport", "ofi:rapidio", "-n", "2"], "no provider 'rapidio'"),
        (["--transport", "null", "-w", "node[1-2]"], "no network"),
        ([*ON_FOUR_RANKS, "--restart", "2s"], "--restart"),
        (["--transport", "mpi", "-n", "2", "--heartbeat-ms", "50"], "--heartbeat-ms"),
        (["--transport", "ofi:shm", "-n", "2", "--restart", "2s"], "--restart"),
        (["-w", "no-such-host-1,no-such-host-2"], "no-such-host-1"),
        (["--lab", "no-such-lab"], "no-such-lab"),
        (["tune", *ON_FOUR_RANKS, "--try", "credits"], "PARAMETER=VALUES"),
        (["tune", *ON_FOUR_RANKS, "--try", "credits=0,1"], "credits"),
        (["tune", *ON_FOUR_RANKS, "--try", "colour=1"], "colour"),
        (["tune", *ON_FOUR_RANKS, "--try", "schedule=zigzag"], "zigzag"),
        (["tune", *ON_FOUR_RANKS, "--try", "credits=2,2"], "twice"),
        (["tune", *ON_FOUR_RANKS, "--full", "--points", "3"], "both given"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["eb", *arguments, "-o", str(run)]) == 2
    error = capsys.readouterr().err
    assert expected in error and len(error.strip().splitlines()) == 1, error
    assert not run.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-3 fixed 64Mibs\n", 'line 1: "64Mibs" is not a size from 1 to 268435456 bytes'),
        ("0-2 fixed 64MiB\n", "no sizes for source 3"),
        ("0 fixed 0\n* fixed 8\n", 'line 1: "0" is not a size from 1 to 268435456 bytes'),
        (
            "0-2 fixed 8\nfixed 524288\n",
            'sizes.txt, line 2: no sources before "fixed 524288"; fix: write whose sizes they are: 0-7 fixed 524288',
        ),
        ("choice 8:3 80:1 # all\n", 'line 1: no sources before "choice 8:3 80:1"; fix: '),
        ("fixed\n", 'line 1: no sources before "fixed"'),
        ("* fixed 64MiB\n7 fixed 1\n", "line 2: there is no source 7"),
    ],
)
def test_a_wrong_file_of_sizes_starts_nothing(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = tmp_path / "sizes.txt"
    sizes.write_text(text)
    run = tmp_path / "run"
    assert main(["eb", *ON_FOUR_RANKS, "--sizes-file", str(sizes), "-o", str(run)]) == 2
    error = capsys.readouterr().err
    assert expected in error and len(error.strip().splitlines()) == 1, error
    assert not run.exists()


def test_a_schedule_for_other_ranks_is_refused_with_its_line(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.txt"
    schedule.write_text("1 2 0\n")
    done = assay(environment(tmp_path), *ON_FOUR_RANKS, "--schedule-file", str(schedule))
    assert done.returncode == 2 and "schedule.txt:1: 3 destinations for 4 ranks" in done.stderr


def test_a_ledger_without_losses_passes_and_is_shown(tmp_path: Path) -> None:
    done = assay(environment(tmp_path), *ON_FOUR_RANKS, "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "events built" in done.stdout and "over 10 s" in done.stdout
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize("metric", ["fragments_corrupt", "fragments_duplicate", "fragments_lost"])
def test_a_wrong_or_lost_fragment_fails(metric: str, tmp_path: Path) -> None:
    done = assay(environment(tmp_path, ledger={metric: 1.0}), *ON_FOUR_RANKS, "-o", str(tmp_path / "run"))
    assert done.returncode == 1 and "FAIL" in done.stdout


def test_a_lost_rank_is_named_and_does_not_pass(tmp_path: Path) -> None:
    plan = environment(tmp_path, lost={2: 0.12}, ledger={"fragments_lost": 40.0, "events_incomplete": 40.0})
    done = assay(plan, *ON_FOUR_RANKS, "--policy", "mark", "-o", str(tmp_path / "run"))
    assert done.returncode == 1 and "FAIL" in done.stdout
    assert "t2" in done.stdout and "120 ms" in done.stdout


@pytest.mark.parametrize("metric", ["fragments_corrupt", "events_built"])
def test_a_missing_count_is_inconclusive(metric: str, tmp_path: Path) -> None:
    done = assay(environment(tmp_path, drop=[metric]), *ON_FOUR_RANKS, "-o", str(tmp_path / "run"))
    assert done.returncode == 2 and "INCONCLUSIVE" in done.stdout


def test_an_engine_that_fails_is_named_and_does_not_pass(tmp_path: Path) -> None:
    done = assay(environment(tmp_path, die=True), *ON_FOUR_RANKS, "-o", str(tmp_path / "run"))
    assert done.returncode == 2 and "rank 1 has no memory" in done.stdout
    assert "Traceback" not in done.stderr


def test_interruption_keeps_the_slices(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", "eb", *ON_FOUR_RANKS, "-o", str(run)],
        env=environment(tmp_path, hang=True),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    records = run / "records.jsonl"
    while not (records.is_file() and records.read_text().count("events.slices") >= 30):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    interrupted = Run.load(run)
    assert interrupted.info.state == "partial" and interrupted.info.outcome != "PASS"
    slices = [r for r in interrupted.records if isinstance(r, Measurement) and r.name == "events.slices"]
    assert len(slices) == 30


AXES = [
    "fragment=64KiB,128KiB,256KiB,512KiB,1MiB",
    "credits=1,2,4,8",
    "parallel=1,2,4,8,16",
    "schedule=shift,random,all",
    "protocol=push",
]


def records_of_tuning(tmp_path: Path, axes: list[str], *options: str) -> list[dict[str, Any]]:
    grid = [argument for axis in axes for argument in ("--try", axis)]
    arguments = [*ON_FOUR_RANKS, *grid, *options, "--json", "-o", str(tmp_path / "run")]
    done = assay(environment(tmp_path, landscape=True), "tune", *arguments)
    assert done.returncode == 0, done.stderr
    records: list[dict[str, Any]] = json.loads(done.stdout)["records"]
    return records


def throughputs(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of the measured points."""
    return [r for r in records if r.get("name") == "events.tune" and r["metric"] == "throughput"]


def test_tune_finds_the_planted_maximum_of_a_small_grid(tmp_path: Path) -> None:
    axes = ["fragment=256KiB", "credits=1,4", "parallel=8", "schedule=random,all", "protocol=push"]
    rates = {
        (r["params"]["credits"], r["params"]["schedule"]): r["summary"]["median"]
        for r in throughputs(records_of_tuning(tmp_path, axes, "--full"))
    }
    assert len(rates) == 4 and max(rates, key=rates.__getitem__) == (4, "random")


@pytest.mark.acceptance("events")
def test_tune_finds_the_planted_maximum_with_a_tenth_of_the_grid(tmp_path: Path) -> None:
    records = records_of_tuning(tmp_path, AXES)
    points = throughputs(records)
    measured = sum(r["summary"]["n"] for r in points)
    assert measured <= 5 * 4 * 5 * 3 // 10
    best = max(points, key=lambda r: r["summary"]["median"])
    assert best["summary"]["median"] >= 0.98e9, best
    weights = {
        r["params"]["parameter"]: r["summary"]["median"] for r in records if r.get("metric") == "importance"
    }
    assert set(weights) == {"fragment", "credits", "parallel", "schedule", "protocol"}


def test_tune_without_any_measured_point_is_inconclusive(tmp_path: Path) -> None:
    done = assay(
        environment(tmp_path, die=True), "tune", *ON_FOUR_RANKS, "--points", "3", "-o", str(tmp_path / "run")
    )
    assert done.returncode == 2, done.stdout
