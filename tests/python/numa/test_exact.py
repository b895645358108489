"""Exact mode on programs whose accesses are known, and placements that are applied; on emulated nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from assay.commands.numa.compilers import commands_of
from assay.errors import UserError
from assay.measure.numa import FOLDER, load_profiles
from assay.numa.advice import advise
from assay.numa.profile import Counts, Profile, by_object, by_site

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[3]
FIXTURE = ROOT / "tests" / "fixtures" / "numa" / "placed.c"
COMPILERS = ["gcc", "clang-14"]
COUNT, REPEATS = 1 << 20, 10
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
two_processors = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has one node")


def assay(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay", "numa", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=ENVIRONMENT | environment,
    )


def build_counting(compiler: str, program: Path) -> Path:
    done = assay("cc", "-O1", "-pthread", FIXTURE, "-o", program, CC=compiler)
    assert done.returncode == 0, done.stderr
    return program


IN_SUITES = ["gcc", pytest.param("clang-14", marks=pytest.mark.acceptance("numa"))]


@pytest.fixture(scope="module", params=IN_SUITES)
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of known placement, compiled so that it counts its accesses."""
    return build_counting(request.param, tmp_path_factory.mktemp(request.param) / "placed")


def array_of(profile: Profile) -> int:
    return next(n for n in by_object(profile) if profile.name(n).startswith("allocate "))


def of_function(profile: Profile, function: str) -> Counts:
    counts = Counts()
    for location, accesses in by_site(profile).items():
        if location.function == function:
            for (thread, page), count in accesses.cells.items():
                counts.add(thread, page, count)
    return counts


def array_counts(profile: Profile) -> Counts:
    return by_object(profile)[array_of(profile)]


ENDED_WHILE_IT_REPORTS = """
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// In place of the C library's: a signal arrives before each write to the recording.
__attribute__((no_sanitize("thread"))) ssize_t write(int fd, const void* bytes, size_t count) {
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n > 5 && strncmp(path + n - 5, ".numa", 5) == 0) kill(getpid(), SIGTERM);
    return syscall(SYS_write, fd, bytes, count);
}

static volatile int values[100000];
int main(void) {
    for (int k = 0; k < 100000; ++k) values[k] = k;
    return 0;
}
"""


@pytest.mark.parametrize("compiler", IN_SUITES)
def test_a_signal_does_not_cut_the_report_off(compiler: str, tmp_path: Path) -> None:
    """As from mpirun, which ends all ranks once one has ended with an error."""
    (tmp_path / "program.c").write_text(ENDED_WHILE_IT_REPORTS)
    done = assay("cc", "-O1", tmp_path / "program.c", "-o", tmp_path / "program", CC=compiler)
    assert done.returncode == 0, done.stderr
    done = assay("-o", tmp_path / "run", "--", tmp_path / "program")
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    profile = load_profiles(tmp_path / "run" / FOLDER)[0]
    assert profile.is_exact and profile.recording.end is not None
    assert of_function(profile, "main").total >= 100_000


@two_processors
def test_every_access_is_counted(counted: Path, tmp_path: Path) -> None:
    done = assay("--emulate", "2", "-o", tmp_path / "run", "--", counted, "serial", 2)
    assert (done.returncode, done.stdout) == (7, "10\n"), done.stderr
    assert "unrecorded" not in done.stderr
    profile = load_profiles(tmp_path / "run" / FOLDER)[0]
    assert profile.is_exact and profile.recording.end is not None and profile.recording.end.lost == 0
    # A read and a write of each element in each repeat, and one write of each at the start.
    counts = array_counts(profile)
    accesses = COUNT * (2 * REPEATS + 1)
    # Objects are told apart by pages: the block's last elements may share a page with what follows.
    assert accesses - 512 * 21 <= counts.total <= accesses * 1.001
    assert counts.known == counts.total
    # All pages are on node 0, where half of the threads run.
    assert abs(counts.cells[1, 0] - COUNT * REPEATS) <= 512 * 20
    assert counts.by_page_node().get(1, 0) == 0
    written = sum(
        row.writes for row in profile.recording.accesses if profile.site(row.stack).function == "work"
    )
    assert COUNT * REPEATS <= written <= COUNT * REPEATS * 1.001
    assert of_function(profile, "initialise").by_thread_node().get(1, 0) == 0


@two_processors
def test_applied_advice_gives_the_predicted_placement(counted: Path, tmp_path: Path) -> None:
    before = assay("--emulate", "2", "-o", tmp_path / "before", "--", counted, "serial", 2)
    assert before.returncode == 7
    [advice] = advise(load_profiles(tmp_path / "before" / FOLDER)[0])
    assert advice.action == "spread" and 0.45 < advice.before < 0.5
    # The main thread's initialisation becomes remote where a part is another node's.
    assert advice.predicted == pytest.approx(0.5 / 21, abs=0.002)
    options = ["--emulate", "2", "--apply", tmp_path / "before", "-o", tmp_path / "after"]
    after = assay(*options, "--", counted, "serial", 2)
    assert (after.returncode, after.stdout) == (7, "10\n"), after.stderr
    measured = array_counts(load_profiles(tmp_path / "after" / FOLDER)[0]).remote_share
    assert measured == pytest.approx(advice.predicted, abs=0.02)
    shown = assay("diff", tmp_path / "before", tmp_path / "after", "--json")
    assert shown.returncode == 0
    [row] = [row for row in json.loads(shown.stdout)["objects"] if row["object"].startswith("allocate ")]
    assert row["before"]["remote_share"] == pytest.approx(advice.before)
    assert row["after"]["remote_share"] == pytest.approx(advice.predicted, abs=0.02)


@two_processors
def test_the_emulator_counts_what_compiled_programs_count(
    counted: Path, placed: Path, tmp_path: Path
) -> None:
    """The compiled program against the unmodified one: accesses of the lines that both count."""
    compiled = assay("--emulate", "2", "-o", tmp_path / "compiled", "--", counted, "serial", 2)
    emulated = assay(
        "--emulate", "2", "--every-access", "-o", tmp_path / "emulated", "--", placed, "serial", 2
    )
    assert (compiled.returncode, emulated.returncode, emulated.stdout) == (7, 7, "10\n"), emulated.stderr
    profiles = [load_profiles(tmp_path / run / FOLDER)[0] for run in ("compiled", "emulated")]
    assert profiles[1].recording.process.mode == "qemu"
    for function in ("initialise", "work"):
        written = [_written(profile, function) for profile in profiles]
        for nodes in (0, 1):
            assert written[1][nodes] == pytest.approx(written[0][nodes], rel=0.005, abs=8)


def _written(profile: Profile, function: str) -> list[int]:
    """Stores of a function by the thread's node."""
    rows = [row for row in profile.recording.accesses if profile.site(row.stack).function == function]
    return [sum(row.writes for row in rows if row.thread_node == node) for node in (0, 1)]


def test_counting_works_compiled_apart_or_with_the_link(tmp_path: Path) -> None:
    [alone] = commands_of("cc", ["-O2", "-c", "a.c"], tmp_path)
    assert "-fsanitize=thread" in alone and not any("rpath" in word for word in alone)
    compiled, linked = commands_of("cc", ["-O2", "a.c", "b.o", "-lm", "-o", "a"], tmp_path)
    assert "a.c" in compiled and "-lm" not in compiled and "b.o" not in compiled and "-c" in compiled
    assert "-fsanitize=thread" not in linked and "-lassay-numa-exact" in linked and "a.c" not in linked
    with pytest.raises(UserError, match="nothing to compile"):
        commands_of("c++", [], tmp_path)
