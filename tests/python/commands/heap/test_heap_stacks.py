"""Programs that switch their C stacks (greenlets, coroutines, signal stacks) run as without ``assay heap``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from heap_runs import LIMIT_S, REQUIREMENTS, ROOT, functions_on_stack, load_profile, stack_metrics

from assay.launch.engines import engines_folder
from assay.profile.heap import HeapProfile
from assay.profile.profiles import load_profiles

pytestmark = [*REQUIREMENTS, pytest.mark.programs]

FIXTURES = ROOT / "tests/fixtures/heap"

# Greenlets that are left at different depths: each switch moves C stacks that differ in their frames.
SWITCHING = """
import greenlet
main = greenlet.getcurrent()
def deep(n):
    return deep(n - 1) if n else main.switch()
def body(n):
    for _ in range(20):
        kept.append(bytes(50_000))
        deep(n)
kept = []
greenlets = [greenlet.greenlet(body) for _ in range(6)]
for k, one in enumerate(greenlets): one.switch(3 * k)
for _ in range(20):
    for one in greenlets: one.switch()
"""
GREENLETS = SWITCHING + "print(len(kept), all(one.dead for one in greenlets))"


# As gunicorn with gevent: the master forks workers that switch greenlets, and kills one of them.
SERVER = f"""
import os, signal
ready, told = os.pipe()
workers = []
while len(workers) < 2 and (worker := os.fork()):
    workers.append(worker)
if len(workers) == 2:
    os.read(ready, 1), os.read(ready, 1)
    os.kill(workers[1], signal.SIGKILL)
    print([os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers])
    raise SystemExit
{SWITCHING}
os.write(told, b"r")
if len(workers) == 1: signal.pause()
raise SystemExit(3)
"""


def record(folder: Path, *command: str | Path, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Records a program into folder/heap; returns its exit code and its output."""
    (folder / "heap").mkdir()
    done = subprocess.run(
        [engines_folder() / "assay-heap", "record", folder / "heap", "--", *command],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environment,
    )
    for trace in (folder / "heap").glob("*.heap"):
        with trace.with_suffix(".json").open("wb") as into:
            subprocess.run([engines_folder() / "assay-heap", "analyse", trace], stdout=into, check=True)
    return done.returncode, done.stdout


def build(folder: Path, name: str, *options: str) -> Path:
    executable = folder / name
    subprocess.run(
        ["gcc", "-g", "-O1", "-fno-builtin", *options, FIXTURES / f"{name}.c", "-o", executable],
        check=True,
        timeout=LIMIT_S,
    )
    return executable


def large_blocks(profile: HeapProfile, function: str, size: int) -> int:
    """The number of blocks of at least a size that were allocated under a function."""
    return sum(
        stack.count
        for stack in stack_metrics(profile)
        if stack.min_size >= size and function in functions_on_stack(profile, stack.node)
    )


@pytest.mark.parametrize("allocator", ["malloc", "pymalloc"])
def test_a_python_program_that_switches_greenlets(allocator: str, tmp_path: Path) -> None:
    pytest.importorskip("greenlet")
    environment = {"PYTHONMALLOC": allocator}
    assert record(tmp_path, sys.executable, "-c", GREENLETS, environment=environment) == (0, "120 True\n")
    assert large_blocks(load_profile(tmp_path), "body", 50_000) == 120


def test_a_server_forks_workers_that_switch_greenlets_and_kills_one(tmp_path: Path) -> None:
    pytest.importorskip("greenlet")
    assert record(tmp_path, sys.executable, "-c", SERVER) == (0, "[3, -9]\n")
    profiles = load_profiles(tmp_path)
    assert len(profiles) == 3 and not any(profile.gap for profile in profiles)
    assert sorted(large_blocks(profile, "body", 50_000) for profile in profiles) == [0, 120, 120]
    assert sorted(profile.process.complete for profile in profiles) == [False, True, True]


def test_a_stale_state_of_an_interpreter_is_not_followed(tmp_path: Path) -> None:
    assert record(tmp_path, build(tmp_path, "stale", "-rdynamic")) == (0, "")
    profile = load_profile(tmp_path)
    assert large_blocks(profile, "stale", 4000) == 1  # the last, whose state is whole again
    of_3000 = [stack for stack in stack_metrics(profile) if stack.min_size == stack.max_size == 3000]
    assert [("stale" in functions_on_stack(profile, stack.node)) for stack in of_3000] == 2 * [True, False]


def test_a_program_that_runs_on_several_stacks(tmp_path: Path) -> None:
    program = build(tmp_path, "stacks")
    bare = subprocess.run([program], capture_output=True, text=True, timeout=LIMIT_S)
    assert record(tmp_path, program) == (bare.returncode, bare.stdout) == (7, bare.stdout)
    assert large_blocks(load_profile(tmp_path), "coroutine", 5000) == 3 * 4 * 50
