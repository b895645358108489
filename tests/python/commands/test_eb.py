"""``assay eb``: bad input is one line, the outcome follows the ledger, a search finds a planted top, Ctrl-C keeps what
was measured. The engine is planted; the real one has tests of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import planted_events_engine as planted
import pytest

from assay.cli import main
from assay.launch.engines import probe
from assay.records.run import Run
from assay.records.schema import Measurement

ROOT = Path(__file__).resolve().parents[3]
HERE = ("--transport", "null", "-n", "4")


def environment(folder: Path, **plan: object) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        **planted.install(folder, plan, probe()),
    }


def assay(env: dict[str, str], *arguments: str, limit: float = 120) -> subprocess.CompletedProcess[str]:
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
        ([*HERE, "--size", "0"], "size"),
        ([*HERE, "--size", "4TiB"], "fragment"),
        ([*HERE, "--size", "1GiB", "--credits", "1024"], "GiB are free"),
        ([*HERE, "--credits", "0"], "--credits"),
        ([*HERE, "--credits", "1000000"], "--credits"),
        ([*HERE, "--parallel", "-1"], "--parallel"),
        ([*HERE, "--input-rate", "fast"], "rate"),
        ([*HERE, "--budget", "0"], "--budget"),
        ([*HERE, "--filters", "3"], "--filters 3"),
        ([*HERE, "--schedule", "shift", "--at-once"], "both given"),
        ([*HERE, "--schedule-file", "/no/such/file"], "/no/such/file"),
        ([*HERE, "--sizes-file", "/no/such/file"], "/no/such/file"),
        ([*HERE, "--launcher", "openmpi"], "--launcher"),
        (["--transport", "rapidio", "-n", "2"], "rapidio"),
        (["--transport", "ofi:rapidio", "-n", "2"], "no provider 'rapidio'"),
        (["--transport", "null", "-w", "node[1-2]"], "no network"),
        (["-w", "no-such-host-1,no-such-host-2"], "no-such-host-1"),
        (["--lab", "no-such-lab"], "no-such-lab"),
        (["tune", *HERE, "--try", "credits"], "PARAMETER=VALUES"),
        (["tune", *HERE, "--try", "credits=0,1"], "credits"),
        (["tune", *HERE, "--try", "colour=1"], "colour"),
        (["tune", *HERE, "--try", "schedule=zigzag"], "zigzag"),
        (["tune", *HERE, "--try", "credits=2,2"], "twice"),
        (["tune", *HERE, "--full", "--points", "3"], "both given"),
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


def test_a_schedule_for_other_ranks_is_refused_with_its_line(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.txt"
    schedule.write_text("1 2 0\n")
    done = assay(environment(tmp_path), *HERE, "--schedule-file", str(schedule))
    assert done.returncode == 2 and "schedule.txt:1: 3 destinations for 4 ranks" in done.stderr


def test_a_clean_ledger_passes_with_its_table_and_its_line_over_time(tmp_path: Path) -> None:
    done = assay(environment(tmp_path), *HERE, "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "events built" in done.stdout and "over 10 s" in done.stdout
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize("metric", ["fragments_corrupt", "fragments_duplicate", "fragments_lost"])
def test_a_wrong_or_lost_fragment_fails(metric: str, tmp_path: Path) -> None:
    done = assay(environment(tmp_path, ledger={metric: 1.0}), *HERE, "-o", str(tmp_path / "run"))
    assert done.returncode == 1 and "FAIL" in done.stdout


@pytest.mark.parametrize("metric", ["fragments_corrupt", "events_built"])
def test_what_was_not_counted_does_not_pass(metric: str, tmp_path: Path) -> None:
    done = assay(environment(tmp_path, drop=[metric]), *HERE, "-o", str(tmp_path / "run"))
    assert done.returncode == 2 and "INCONCLUSIVE" in done.stdout


def test_an_engine_that_fails_is_named_and_does_not_pass(tmp_path: Path) -> None:
    done = assay(environment(tmp_path, die=True), *HERE, "-o", str(tmp_path / "run"))
    assert done.returncode == 2 and "rank 1 has no memory" in done.stdout
    assert "Traceback" not in done.stderr


def test_interruption_keeps_the_slices(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", "eb", *HERE, "-o", str(run)],
        env=environment(tmp_path, hang=True),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    records, deadline = run / "records.jsonl", time.monotonic() + 60
    while time.monotonic() < deadline:
        if records.is_file() and records.read_text().count("events.slices") >= 30:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    kept = Run.load(run)
    assert kept.info.state == "partial" and kept.info.outcome != "PASS"
    slices = [r for r in kept.records if isinstance(r, Measurement) and r.name == "events.slices"]
    assert len(slices) == 30


TRIED = [
    "fragment=64KiB,128KiB,256KiB,512KiB,1MiB",
    "credits=1,2,4,8",
    "parallel=1,2,4,8,16",
    "schedule=shift,random,all",
    "protocol=push",
]


@pytest.mark.slow
def test_a_search_finds_the_planted_top_at_a_tenth_of_the_grid(tmp_path: Path) -> None:
    grid = [word for axis in TRIED for word in ("--try", axis)]
    done = assay(
        environment(tmp_path, landscape=True), "tune", *HERE, *grid, "--json", "-o", str(tmp_path / "run")
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    points = [
        r
        for r in data["records"]
        if r["kind"] == "measurement" and r["name"] == "events.tune" and r["metric"] == "throughput"
    ]
    measured = sum(r["summary"]["n"] for r in points)
    assert measured <= 5 * 4 * 5 * 3 // 10
    best = max(points, key=lambda r: r["summary"]["median"])
    assert best["summary"]["median"] >= 0.98e9, best
    weights = {
        r["params"]["parameter"]: r["summary"]["median"]
        for r in data["records"]
        if r.get("metric") == "importance"
    }
    assert set(weights) == {"fragment", "credits", "parallel", "schedule", "protocol"}


def test_a_search_in_which_no_point_can_be_measured_does_not_pass(tmp_path: Path) -> None:
    done = assay(environment(tmp_path, die=True), "tune", *HERE, "--points", "3", "-o", str(tmp_path / "run"))
    assert done.returncode == 2, done.stdout
