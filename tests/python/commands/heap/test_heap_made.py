"""Stacks through code that is generated at run time (JIT), with names from perf's map file."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from heap_runs import LIMIT_S, REQUIREMENTS, ROOT, load_profile, run_heap, stack_metrics, total_of_function

from assay.profile.heap import HeapProfile
from assay.report.heap import UNKNOWN_CODE, problems

pytestmark = [
    pytest.mark.programs,
    *REQUIREMENTS,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="optional: followed on x86-64 alone"),
]

SCRIPT = """
function leaf(size) { return Buffer.allocUnsafeSlow(size); }
function work(rounds) { let sum = 0; for (let k = 0; k < rounds; ++k) sum += leaf(100000 + k).length; return sum; }
console.log(work(200));
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    executable = tmp_path_factory.mktemp("generated") / "generated"
    command = ["g++", "-std=c++17", "-O2", "-g", ROOT / "tests/fixtures/heap/generated.cpp", "-o", executable]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return executable


@pytest.fixture
def delete_maps_of() -> Iterator[list[int]]:
    """A list of process numbers, whose map files are deleted at the end of the test."""
    processes: list[int] = []
    yield processes
    for pid in processes:
        Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)


def stack_of(profile: HeapProfile, function: str) -> list[str]:
    """The stack of the only allocation site in this function, innermost first."""
    (stack,) = [s for s in stack_metrics(profile) if s.count and s.site.function.startswith(function)]
    return [location.function for location in profile.calls.callers(stack.node)]


@pytest.mark.parametrize(
    ("naming", "name", "file", "line"),
    [
        ("named", "int planted.Made.function(int, long)", "", 0),
        ("v8", "planted", "/nowhere/planted.js", 12),
        ("unnamed", UNKNOWN_CODE, "", 0),
    ],
)
def test_stacks_continue_through_generated_code(
    program: Path, naming: str, name: str, file: str, line: int, delete_maps_of: list[int], tmp_path: Path
) -> None:
    done = run_heap(tmp_path / "run", program, naming)
    profile = load_profile(tmp_path / "run")
    delete_maps_of.append(profile.process.pid)
    assert (done.returncode, done.stdout) == (0, "done\n")
    functions = stack_of(profile, "allocate")
    assert [f.partition("(")[0] for f in functions if f in ("main", name)] == [name.partition("(")[0], "main"]
    total = total_of_function(profile, "allocate")
    assert (total.count, total.bytes) == (100, 100_000)
    (location,) = [p for p in profile.calls.locations if p.function == name]
    assert (location.file, location.line, location.module) == (file, line, "")
    assert any("--perf-basic-prof" in problem for problem in problems(profile)) == (naming == "unnamed")


@pytest.mark.acceptance("profile")  # V8 compiles in other threads, at times of its own
def test_functions_of_nodejs_are_named(
    delete_maps_of: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack goes from the C program through V8 and the script's functions to the C function that allocates."""
    node = subprocess.run([ROOT / "packaging/setup.sh", "node"], capture_output=True, text=True, check=True)
    monkeypatch.chdir(tmp_path)  # node writes a log into its working directory
    script = tmp_path / "script.js"
    script.write_text(SCRIPT)
    arguments = ["--perf-basic-prof", "--interpreted-frames-native-stack", script]
    done = run_heap(tmp_path / "run", Path(node.stdout.strip()) / "node", *arguments)
    assert (done.returncode, done.stdout) == (0, f"{sum(range(100000, 100200))}\n")
    profile = load_profile(tmp_path / "run")
    delete_maps_of.append(profile.process.pid)
    size = 0
    for stack in stack_metrics(profile):
        functions = [location.function for location in profile.calls.callers(stack.node)]
        if not stack.count or "leaf" not in functions:
            continue
        size += stack.bytes
        inner, outer = functions[: functions.index("leaf")], functions[functions.index("leaf") :]
        assert "work" in outer and outer[-1] in ("_start", "clone", "__clone3"), outer
        assert any(re.search("node::|v8::", f) for f in inner)
    assert size >= sum(range(100000, 100200))
    lines = {(p.function, p.line) for p in profile.calls.locations if p.file == str(script)}
    assert {("leaf", 2), ("work", 3)} <= lines
