"""Damaged and packed traces, and programs that cannot be recorded, which are named in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from heap_runs import (
    ASSAY,
    LIMIT_S,
    REQUIREMENTS,
    build_planted,
    run_heap,
    usage_error,
)

from assay.cli import main
from assay.launch.engines import engines_folder
from assay.records.run import Run

pytestmark = [*REQUIREMENTS, pytest.mark.programs]


@pytest.mark.parametrize(
    ("scenario", "blocks"),
    [pytest.param("live", 400_000, marks=pytest.mark.acceptance("profile")), ("large", 20_000)],
)
def test_many_live_blocks_in_bounded_memory(small: Path, tmp_path: Path, scenario: str, blocks: int) -> None:
    """Their addresses, and their ids in a packed trace, share most of their bits."""
    tool = engines_folder() / "assay-heap"
    subprocess.run([tool, "record", tmp_path, "--", small, scenario], check=True, timeout=LIMIT_S)
    (trace,) = tmp_path.glob("*.heap")
    for _ in range(2):
        analysis = subprocess.run(
            ["sh", "-c", 'ulimit -v 2000000; exec "$0" analyse "$1"', tool, trace],
            capture_output=True,
            check=True,
            timeout=LIMIT_S,
        )
        assert blocks <= json.loads(analysis.stdout)["totals"]["frees"] < blocks + 100
        subprocess.run([tool, "pack", trace], check=True, timeout=LIMIT_S)


def test_a_truncated_trace_shows_what_it_holds(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "churn")
    (trace,) = (tmp_path / "run/heap").glob("*.heap")
    trace.with_suffix(".json").unlink()
    trace.write_bytes(trace.read_bytes()[:-200])
    done = subprocess.run(
        [ASSAY, "heap", "show", tmp_path / "run"], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0
    assert "the trace is damaged" in done.stdout or "did not end by itself" in done.stdout


@pytest.mark.parametrize(
    "scenario",
    [
        "ways",
        "handover",
        *(pytest.param(name, marks=pytest.mark.acceptance("profile")) for name in ("grow", "threads")),
    ],
)
def test_packing_loses_nothing(planted: Path, tmp_path: Path, scenario: str) -> None:
    """A trace gives the same figures as recorded, packed (and much smaller), and packed twice."""
    tool = engines_folder() / "assay-heap"
    subprocess.run([tool, "record", tmp_path, "--", planted, scenario], capture_output=True, timeout=LIMIT_S)
    (trace,) = tmp_path.glob("*.heap")
    analyses, sizes = [], []
    for _ in range(3):
        output = subprocess.run([tool, "analyse", trace], capture_output=True, check=True, timeout=LIMIT_S)
        analysis = json.loads(output.stdout)
        del analysis["trace"]
        del (
            analysis["fragmentation"],
            analysis["touches"],
        )  # need addresses, which a packed trace does not have
        analyses.append(analysis)
        sizes.append(trace.stat().st_size)
        subprocess.run([tool, "pack", trace], check=True, timeout=LIMIT_S)
    assert analyses[0] == analyses[1] == analyses[2]
    assert sizes[1] < sizes[0]
    if scenario == "threads":
        assert sizes[1] < sizes[0] / 10


def test_a_missing_program_is_one_line(tmp_path: Path) -> None:
    error = usage_error("--", "no-such-program", cwd=tmp_path)
    assert error.startswith("assay: cannot run no-such-program; fix: check that it is on PATH")
    assert error.count("\n") == 1


def test_a_static_program_runs_unrecorded(tmp_path: Path) -> None:
    static = build_planted(tmp_path / "static", "-static")
    done = run_heap(tmp_path / "run", static, "leak")
    assert (done.returncode, done.stdout) == (7, "done\n")  # its own exit code
    assert "nothing was recorded" in done.stderr and "statically linked" in done.stderr


def test_a_setuid_program_runs_unrecorded(planted: Path, tmp_path: Path) -> None:
    """The loader ignores LD_PRELOAD for setuid programs."""
    if os.geteuid() != 0:
        pytest.skip("making a setuid program needs root")
    other = tmp_path / "setuid"
    shutil.copy(planted, other)
    os.chown(other, 65534, 65534)
    other.chmod(0o4755)
    done = run_heap(tmp_path / "run", other, "leak")
    assert done.stdout == "done\n"
    assert "nothing was recorded" in done.stderr and "as another user" in done.stderr


@pytest.mark.parametrize(("option", "limit"), [("-v", "ulimit -v"), ("-f", "ulimit -f")])
def test_a_limit_that_leaves_no_room_for_records_is_named(
    planted: Path, tmp_path: Path, option: str, limit: str
) -> None:
    kibibytes = {"-v": 600_000, "-f": 2000}[option]
    script = f'ulimit {option} {kibibytes}; exec "$0" heap -o "$1" -- "$2" leak'
    done = subprocess.run(
        ["bash", "-c", script, ASSAY, tmp_path / "run", planted],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.stdout == "done\n"
    assert (
        f"nothing was recorded of {planted}" in done.stderr
        and f"or does {limit} leave no room" in done.stderr
    )


def test_wrong_runs_and_sizes_are_refused(tmp_path: Path) -> None:
    assert "a is not a run" in usage_error("diff", "a", "b", cwd=tmp_path)
    assert "'-5' is not a quantity" in usage_error("--at-least", "-5", "--", "true", cwd=tmp_path)


def test_a_criterion_limits_a_programs_leaks(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_heap(tmp_path / "run", planted, "leak")
    spec = tmp_path / "memory.toml"
    limit = '[[criterion]]\nmetric = "profile.heap/leaked"\nmax = "{}"\n'
    for most, status in (("2 MB", 0), ("500 kB", 1)):
        spec.write_text(limit.format(most))
        assert main(["judge", str(tmp_path / "run"), str(spec)]) == status, capsys.readouterr().out


def test_a_missing_command_is_refused(tmp_path: Path) -> None:
    assert "no program given" in usage_error(cwd=tmp_path)


def test_a_run_without_a_trace_is_refused(tmp_path: Path) -> None:
    Run.create("net", ["assay", "net"], path=tmp_path / "run")
    assert "no heap trace" in usage_error("show", "run", cwd=tmp_path)


@pytest.mark.parametrize(
    ("scenario", "size"),
    [pytest.param("signals", "200k", id="while it runs"), pytest.param("leak", "4k", id="at its end")],
)
def test_a_full_disk_ends_the_recording_and_not_the_program(
    planted: Path, tmp_path: Path, scenario: str, size: str
) -> None:
    """The program goes on and ends normally; what was written before is kept."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", small], check=True, timeout=LIMIT_S
    )
    try:
        folder = small / "heap"
        folder.mkdir()
        done = subprocess.run(
            [engines_folder() / "assay-heap", "record", folder, "--", planted, scenario],
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (7, "done\n")
        assert "No space left on device" in done.stderr and "is not recorded" in done.stderr
    finally:
        subprocess.run(["umount", "--lazy", small], check=True, timeout=LIMIT_S)
