"""Recording does not change programs: exceptions, signals, coroutines, forks, kills, real programs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from heap_attached import compile_source
from heap_runs import (
    ASSAY,
    LIMIT_S,
    PRINT_ARENA_FOLDER,
    REQUIREMENTS,
    build_planted,
    functions_on_stack,
    load_profile,
    run_heap,
    stack_metrics,
    total_of_function,
)

from assay.profile.profiles import load_profiles
from assay.records.run import Run

pytestmark = [*REQUIREMENTS, pytest.mark.programs]


@pytest.mark.parametrize("scenario", ["throw", "longjmp"])
def test_stacks_are_right_after_exceptions_and_longjmp(planted: Path, tmp_path: Path, scenario: str) -> None:
    done = run_heap(tmp_path / "run", planted, scenario)
    assert (done.returncode, done.stdout) == (7, "done\n")
    name, blocks = (
        ("throwing", 21 + 1) if scenario == "throw" else ("jumping", 21)
    )  # plus the exception's text
    assert total_of_function(load_profile(tmp_path / "run"), name).count == 100 * blocks


def test_signals_during_allocations(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "signals")
    assert total_of_function(load_profile(tmp_path / "run"), "churn").count == 300_000


def test_threads_whose_first_allocation_is_in_pthread_getattr_np(planted: Path, tmp_path: Path) -> None:
    """pthread_getattr_np allocates while it holds its lock."""
    run_heap(tmp_path / "run", planted, "attributes")
    profile = load_profile(tmp_path / "run")
    assert total_of_function(profile, "leak").leaked == 10 * 1000
    counts = [
        stack.count for stack in stack_metrics(profile) if stack.site.function.endswith("pthread_getattr_np")
    ]
    assert sum(counts) == 10
    for stack in stack_metrics(profile):
        if stack.leaked == 10 * 1000:
            assert any("clone" in function for function in functions_on_stack(profile, stack.node))


@pytest.mark.parametrize("kind", ["-pie", "-no-pie"])
def test_executables_with_separated_segments_are_unwound(kind: str, tmp_path: Path) -> None:
    """Linking for pages of 2 MiB separates .eh_frame from the code in memory."""
    program = build_planted(tmp_path / "apart", kind, "-Wl,-z,max-page-size=0x200000")
    run_heap(tmp_path / "run", program, "leak")
    profile = load_profile(tmp_path / "run")
    nodes = [
        stack.node
        for stack in stack_metrics(profile)
        if stack.count and stack.site.function.startswith("leak")
    ]
    assert nodes and all({"main", "_start"} <= functions_on_stack(profile, k) for k in nodes)


def test_stacks_of_coroutines_are_unwound(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "coroutine")
    profile = load_profile(tmp_path / "run")
    assert (total_of_function(profile, "leak").count, total_of_function(profile, "leak").leaked) == (
        500,
        500_000,
    )
    (leaking,) = (stack.node for stack in stack_metrics(profile) if stack.leaked == 500_000)
    callers = [location.function for location in profile.calls.callers(leaking)]
    assert any(function.startswith("yielding") for function in callers), callers


def test_a_forked_child_has_its_own_profile(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "fork")
    processes = {
        (p.process.parent, total_of_function(p, "leak").bytes) for p in load_profiles(tmp_path / "run")
    }
    assert {size for _, size in processes} == {1000, 2000}
    parent = next(p for p in load_profiles(tmp_path / "run") if total_of_function(p, "leak").bytes == 1000)
    assert any(ancestor == parent.process.pid and size == 2000 for ancestor, size in processes)


def test_an_exec_gives_a_second_profile_of_the_same_process(planted: Path, tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", planted, "exec")
    assert done.returncode == 7
    before, after = sorted(load_profiles(tmp_path / "run"), key=lambda p: p.totals.count)
    assert before.process.pid == after.process.pid
    assert total_of_function(before, "leak").leaked == 3000
    assert total_of_function(after, "churn").count == 50_000


def test_a_program_killed_by_sigkill_keeps_its_profile(planted: Path, tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", planted, "killed")
    assert done.returncode == 128 + signal.SIGKILL
    profile = load_profile(tmp_path / "run")
    assert not profile.process.complete
    assert total_of_function(profile, "leak").leaked == 50_000
    assert total_of_function(profile, "churn").count == 20_000


@pytest.mark.parametrize("arguments", [["exit at once"], ["two lines"]])
def test_exit_and_exec_count_as_complete(small: Path, tmp_path: Path, arguments: list[str]) -> None:
    """The shell ends by exec, the program by _exit or by returning from main."""
    run_heap(tmp_path / "run", "sh", "-c", 'exec "$0" "$@"', small, *arguments)
    assert [profile.process.complete for profile in load_profiles(tmp_path / "run")] == [True, True]


def test_sigterm_to_assay_ends_the_program(small: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [ASSAY, "heap", "-o", tmp_path / "run", "--", *PRINT_ARENA_FOLDER, small, "waits"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    arenas = Path(process.stdout.readline().strip())
    assert process.stdout.readline() == "ready\n" and arenas.is_dir()
    process.terminate()
    _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + signal.SIGTERM and "did not end by itself" in stderr
    (killed,) = (p for p in load_profiles(tmp_path / "run") if not p.process.complete)
    assert killed.trace.lost_events == killed.trace.damaged_bytes == killed.trace.unreadable_chunks == 0
    assert total_of_function(killed, "two_lines").leaked == 1_000_010
    assert not arenas.exists()


def test_arguments_that_are_not_utf8_are_passed_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [ASSAY, "heap", "-o", tmp_path / "run", "--", "printf", "%s", b"a\xffb"],
        capture_output=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout) == (0, b"a\xffb")
    assert Run.load(tmp_path / "run").info.command[-1] == "a\\xffb"


def test_a_program_that_allocates_nothing_has_a_profile(tmp_path: Path) -> None:
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


def test_a_library_loaded_just_before_sigkill_is_recorded(tmp_path: Path) -> None:
    late = compile_source(tmp_path / "late.so", "late.c", "-shared", "-fPIC")
    (tmp_path / "loads.c").write_text(LOADS_LATE)
    program = compile_source(tmp_path / "loads", tmp_path / "loads.c")
    assert run_heap(tmp_path / "run", program, late).returncode == 128 + signal.SIGKILL
    assert total_of_function(load_profile(tmp_path / "run"), "of_library").count == 30


def test_ctrl_c_ends_the_program_and_keeps_the_profile(planted: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [ASSAY, "heap", "-o", tmp_path / "run", "--", planted, "slow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert total_of_function(load_profile(tmp_path / "run"), "leak").leaked == 12_345


def test_buffers_are_removed_after_the_run(planted: Path, tmp_path: Path) -> None:
    arenas, *_ = run_heap(tmp_path / "run", *PRINT_ARENA_FOLDER, planted, "fork").stdout.splitlines()
    assert Path(arenas).is_absolute() and not Path(arenas).exists()
    assert not list((tmp_path / "run/heap").glob("*.part"))
