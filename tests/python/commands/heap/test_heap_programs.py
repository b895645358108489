"""Recording does not change programs: exceptions, signals, coroutines, forks, kills, real programs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from heap_attached import compiled
from heap_runs import (
    ASSAY,
    LIMIT_S,
    REQUIREMENTS,
    SAYS_ARENAS,
    build_planted,
    functions_on_stack,
    load_profile,
    run_heap,
    stacks_of,
    total_of,
)

from assay.profile.profiles import load_profiles
from assay.records.run import Run

pytestmark = [*REQUIREMENTS, pytest.mark.programs]


@pytest.mark.parametrize("what", ["throw", "longjmp"])
def test_leaving_frames_in_other_ways(planted: Path, tmp_path: Path, what: str) -> None:
    done = run_heap(tmp_path / "run", planted, what)
    assert (done.returncode, done.stdout) == (7, "done\n")
    name, blocks = ("throwing", 21 + 1) if what == "throw" else ("jumping", 21)  # plus the exception's text
    assert total_of(load_profile(tmp_path / "run"), name).count == 100 * blocks


def test_signals_in_the_middle(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "signals")
    assert total_of(load_profile(tmp_path / "run"), "churn").count == 300_000


def test_threads_that_ask_the_c_library_first(planted: Path, tmp_path: Path) -> None:
    """pthread_getattr_np allocates while it holds its lock."""
    run_heap(tmp_path / "run", planted, "attributes")
    profile = load_profile(tmp_path / "run")
    assert total_of(profile, "leak").leaked == 10 * 1000
    counts = [
        stack.count for stack in stacks_of(profile) if stack.site.function.endswith("pthread_getattr_np")
    ]
    assert sum(counts) == 10
    for stack in stacks_of(profile):
        if stack.leaked == 10 * 1000:
            assert any("clone" in function for function in functions_on_stack(profile, stack.node))


@pytest.mark.parametrize("kind", ["-pie", "-no-pie"])
def test_segments_that_lie_apart(kind: str, tmp_path: Path) -> None:
    """As linked for pages of 2 MiB: .eh_frame is then not mapped beside the code."""
    program = build_planted(tmp_path / "apart", kind, "-Wl,-z,max-page-size=0x200000")
    run_heap(tmp_path / "run", program, "leak")
    profile = load_profile(tmp_path / "run")
    nodes = [
        stack.node for stack in stacks_of(profile) if stack.count and stack.site.function.startswith("leak")
    ]
    assert nodes and all({"main", "_start"} <= functions_on_stack(profile, k) for k in nodes)


def test_a_coroutine_has_a_stack_of_its_own(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "coroutine")
    profile = load_profile(tmp_path / "run")
    assert (total_of(profile, "leak").count, total_of(profile, "leak").leaked) == (500, 500_000)
    (leaking,) = (stack.node for stack in stacks_of(profile) if stack.leaked == 500_000)
    callers = [location.function for location in profile.calls.callers(leaking)]
    assert any(function.startswith("yielding") for function in callers), callers


def test_a_fork_is_a_process_of_its_own(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "fork")
    processes = {(p.process.parent, total_of(p, "leak").bytes) for p in load_profiles(tmp_path / "run")}
    assert {size for _, size in processes} == {1000, 2000}
    parent = next(p for p in load_profiles(tmp_path / "run") if total_of(p, "leak").bytes == 1000)
    assert any(ancestor == parent.process.pid and size == 2000 for ancestor, size in processes)


def test_a_program_that_becomes_another(planted: Path, tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", planted, "exec")
    assert done.returncode == 7
    before, after = sorted(load_profiles(tmp_path / "run"), key=lambda p: p.totals.count)
    assert before.process.pid == after.process.pid
    assert total_of(before, "leak").leaked == 3000
    assert total_of(after, "churn").count == 50_000


def test_killed_without_a_word(planted: Path, tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", planted, "killed")
    assert done.returncode == 128 + signal.SIGKILL
    profile = load_profile(tmp_path / "run")
    assert not profile.process.complete
    assert total_of(profile, "leak").leaked == 50_000
    assert total_of(profile, "churn").count == 20_000


@pytest.mark.parametrize("arguments", [["exit at once"], ["two lines"]])
def test_ends_of_its_own(small: Path, tmp_path: Path, arguments: list[str]) -> None:
    """Also by _exit and by exec."""
    run_heap(tmp_path / "run", "sh", "-c", 'exec "$0" "$@"', small, *arguments)
    assert [profile.process.complete for profile in load_profiles(tmp_path / "run")] == [True, True]


def test_what_would_end_assay_ends_the_program(small: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [ASSAY, "heap", "-o", tmp_path / "run", "--", *SAYS_ARENAS, small, "waits"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    arenas = Path(process.stdout.readline().strip())
    assert process.stdout.readline() == "ready\n" and arenas.is_dir()
    process.terminate()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM and "did not end by itself" in stderr
    (killed,) = (p for p in load_profiles(tmp_path / "run") if not p.process.complete)
    assert killed.trace.lost_events == killed.trace.damaged_bytes == killed.trace.unreadable_chunks == 0
    assert total_of(killed, "two_lines").leaked == 1_000_010
    assert not arenas.exists()


def test_words_that_are_no_text(tmp_path: Path) -> None:
    done = subprocess.run(
        [ASSAY, "heap", "-o", tmp_path / "run", "--", "printf", "%s", b"a\xffb"],
        capture_output=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout) == (0, b"a\xffb")
    assert Run.load(tmp_path / "run").info.command[-1] == "a\\xffb"


def test_nothing_is_allocated(tmp_path: Path) -> None:
    run_heap(tmp_path / "run", "true")
    assert all(profile.totals.peak_seconds >= 0 for profile in load_profiles(tmp_path / "run"))


LOADS_LATE = """
#include <dlfcn.h>
#include <signal.h>
int main(int argc, char** argv) {
    void (*late)(int) = (void (*)(int))dlsym(dlopen(argv[1], RTLD_NOW), "late");
    late(30);
    return raise(SIGKILL);
}
"""


def test_killed_with_a_library_that_it_has_just_loaded(tmp_path: Path) -> None:
    late = compiled(tmp_path / "late.so", "late.c", "-shared", "-fPIC")
    (tmp_path / "loads.c").write_text(LOADS_LATE)
    program = compiled(tmp_path / "loads", tmp_path / "loads.c")
    assert run_heap(tmp_path / "run", program, late).returncode == 128 + signal.SIGKILL
    assert total_of(load_profile(tmp_path / "run"), "of_library").count == 30


def test_ctrl_c_ends_the_program_and_keeps_the_profile(planted: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [ASSAY, "heap", "-o", tmp_path / "run", "--", planted, "slow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert total_of(load_profile(tmp_path / "run"), "leak").leaked == 12_345


def test_nothing_is_left_behind(planted: Path, tmp_path: Path) -> None:
    arenas, *_ = run_heap(tmp_path / "run", *SAYS_ARENAS, planted, "fork").stdout.splitlines()
    assert Path(arenas).is_absolute() and not Path(arenas).exists()
    assert not list((tmp_path / "run/heap").glob("*.part"))
