"""Options that select what is recorded: sizes, samples, ranks, dumps."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from heap_runs import (
    ASSAY,
    LIMIT_S,
    REQUIREMENTS,
    load_profile,
    run_heap,
    total_of_function,
)

from assay.profile.heap import HeapProfile
from assay.profile.profiles import load_dumps, load_profiles

pytestmark = [*REQUIREMENTS, pytest.mark.programs]


def test_at_least_records_blocks_of_that_size_and_more(planted: Path, tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", planted, "grow", options=["--at-least", "40kB"])
    node = total_of_function(load_profile(tmp_path / "run"), "grow")
    # 1001 of the sizes 10, 20 ... 50,000 are at least 40,000. A few smaller blocks have a usable size of 40,000.
    assert 1001 <= node.count <= 1004
    assert "blocks under 39.1 KiB were left out" in done.stderr


def test_a_sample_is_small_and_says_so(planted: Path, tmp_path: Path) -> None:
    """About 1,220 samples stand for 5 MB: half as much would be 17 standard deviations off."""
    done = run_heap(tmp_path / "run", planted, "churn", options=["--sample", "4KiB"])
    profile = load_profile(tmp_path / "run")
    assert 2_500_000 < total_of_function(profile, "churn").bytes < 7_500_000
    assert profile.trace.events < 20_000
    assert "figures are estimates" in done.stderr


@pytest.mark.acceptance("profile")
@pytest.mark.statistical("1 in 1,000: the least disturbed of three runs of milliseconds may be disturbed")
@pytest.mark.parametrize("scenario", ["churn", "grow"])
def test_a_sample_estimates_the_whole(planted: Path, tmp_path: Path, scenario: str) -> None:
    shares = []
    for run in ("first", "second", "third"):
        done = run_heap(tmp_path / run, planted, scenario, options=["--sample", "4KiB"])
        profile = load_profile(tmp_path / run)
        node = total_of_function(profile, scenario)
        planted_bytes = 5_000_000 if scenario == "churn" else 10 * 5000 * 5001 // 2
        assert node.bytes == pytest.approx(planted_bytes, rel=0.25)
        assert profile.trace.events < 20_000
        assert "figures are estimates" in done.stderr
        spent = sum(calls.seconds for thread in profile.threads for calls in thread.calls.values())
        shares.append(spent / profile.process.seconds)
    # The program runs for milliseconds. An interrupted call stands for many, so a disturbance only adds.
    assert 0 < min(shares) < 1


RANKED = 'if test "$OMPI_COMM_WORLD_RANK" = 2; then "$0" leak; else "$0" tiny; fi; exit 0'


@pytest.mark.acceptance("profile")  # starts MPI jobs
@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="no Open MPI")
def test_ranks_are_summed_and_the_outlier_is_named(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "4"]
    program = [*mpirun, "sh", "-c", RANKED, str(planted)]
    done = run_heap(tmp_path / "run", *program)
    assert "4 ranks" in done.stderr and "outliers: 1" in done.stderr
    assert "rank 2 (pid" in done.stderr
    alone = tmp_path / "alone"
    run_heap(alone, *program, options=["--only-ranks", "2"])
    (only,) = [
        profile
        for profile in load_profiles(alone)
        if profile.process.rank and "planted" in profile.process.program
    ]
    assert only.process.rank == "2"
    assert total_of_function(only, "leak").leaked == 1_000_000


def dumped(run: Path, planted: Path, *options: str, by: int | None = None) -> list[HeapProfile]:
    """The dumps of a program that waits until one is there. ``by``: a signal that is to cause it."""
    process = subprocess.Popen(
        [ASSAY, "heap", "-o", run, *options, "--", planted, "waits"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    if by is not None:
        process.send_signal(by)
    deadline = time.monotonic() + LIMIT_S
    while not list((run / "heap").glob("*.dump1.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.communicate("go on\n", timeout=LIMIT_S)
    assert process.returncode == 7
    return load_dumps(run)


def test_sigusr1_dumps_a_profile_while_the_program_runs(planted: Path, tmp_path: Path) -> None:
    (dump,) = dumped(tmp_path / "run", planted, by=signal.SIGUSR1)
    whole = load_profile(tmp_path / "run")
    assert not dump.process.complete and whole.process.complete
    assert 0 < total_of_function(dump, "churn").count <= total_of_function(whole, "churn").count == 50_000


def test_ctrl_c_during_a_dump_keeps_the_dump(planted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run/heap"
    process = subprocess.Popen(
        [ASSAY, "heap", "-o", tmp_path / "run", "--", planted, "waits"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + LIMIT_S
    while not list(folder.glob("*.dump1.json*")):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=LIMIT_S)
    assert len(load_dumps(tmp_path / "run")) == 1 and not list(folder.glob("*.part"))


def test_dump_at_dumps_a_program_that_holds_its_memory(planted: Path, tmp_path: Path) -> None:
    assert dumped(tmp_path / "run", planted, "--dump-at", "1MB")


@pytest.mark.acceptance("profile")  # resident memory is sampled in time
def test_dump_at_dumps_profiles_above_a_heap_size(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "fragments", options=["--dump-at", "40MB"])
    dumps = load_dumps(tmp_path / "run")
    assert dumps and all("interleave" in str(dump.calls.locations) for dump in dumps)
