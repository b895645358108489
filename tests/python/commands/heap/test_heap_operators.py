"""Operators new and delete are recorded exactly, whoever defines them: libstdc++, an allocator, the program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from heap_runs import LIMIT_S, REQUIREMENTS, ROOT, load_profile, run_heap, stack_metrics

pytestmark = [*REQUIREMENTS, pytest.mark.programs]

ALLOCATORS = {
    "jemalloc": "libjemalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
    "mimalloc": "libmimalloc.so.2",
}
LIBRARIES = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"

# The allocations of each function of tests/fixtures/heap/operators.cpp: blocks, bytes, bytes that are not freed.
PLANTED = {
    "single": (100, 2400, 0),
    "array": (50, 2000, 400),
    "nothrow": (50, 30 * 56 + 20 * 72, 0),
    "aligned": (50, 40 * 128 + 10 * 192, 2 * 192),
    "aligned_nothrow": (20, 15 * 256 + 5 * 320, 0),
    "by_malloc": (60, 960, 320),
    "strings": (25, 25 * 1001, 0),
    "single_in_thread": (80, 80 * 88, 0),
    "keep_reserve": (1, 4000, 0),
    "early": (1, 480, 480),
    "plugin": (35, 35 * 96, 5 * 96),
}


def compile_source(output: Path, source: str, *options: str) -> Path:
    subprocess.run(
        [
            *("g++", "-std=c++17", "-O1", "-g", "-fPIC", "-pthread", *options),
            ROOT / "tests/fixtures/heap" / source,
            *("-o", output),
        ],
        check=True,
        timeout=LIMIT_S,
    )
    return output


def link_program(executable: Path, operators: Path, *options: str) -> Path:
    subprocess.run(
        ["g++", "-pthread", operators, *options, "-o", executable, "-ldl"], check=True, timeout=LIMIT_S
    )
    return executable


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_source(tmp_path_factory.mktemp("plugin") / "plugin.so", "plugin.cpp", "-shared")


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_source(tmp_path_factory.mktemp("operators") / "operators.o", "operators.cpp", "-c")


def library_of(allocator: str) -> Path:
    library = LIBRARIES / ALLOCATORS[allocator]
    if not library.is_file():
        pytest.skip(f"no {library.name} here")
    return library


def recorded_allocations(run: Path) -> dict[str, tuple[int, int, int]]:
    """Blocks, bytes, and bytes not freed of each planted function, including its callees."""
    profile = load_profile(run)
    totals = dict.fromkeys(PLANTED, (0, 0, 0))
    for stack in stack_metrics(profile):
        names = [location.function.partition("(")[0] for location in profile.calls.callers(stack.node)]
        for name in PLANTED:
            if name in names:
                before = totals[name]
                totals[name] = (before[0] + stack.count, before[1] + stack.bytes, before[2] + stack.leaked)
    return totals


@pytest.mark.parametrize(
    ("allocator", "binding"),
    [
        ("jemalloc", "linked late"),
        *(
            pytest.param(*case, marks=pytest.mark.acceptance("profile"))
            for case in (
                ("jemalloc", "preloaded"),
                ("tcmalloc", "linked"),
                ("tcmalloc", "preloaded"),
                ("mimalloc", "linked"),
                ("mimalloc", "preloaded"),
            )
        ),
    ],
)
def test_operators_of_a_preloaded_or_linked_allocator(
    allocator: str,
    binding: str,
    operators: Path,
    plugin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = library_of(allocator)
    flag = "-Wl,-z,lazy" if binding == "linked late" else "-Wl,-z,now"
    if binding == "preloaded":
        monkeypatch.setenv("LD_PRELOAD", str(library))
        program = link_program(tmp_path / "program", operators)
    else:
        program = link_program(tmp_path / "program", operators, "-Wl,--no-as-needed", str(library), flag)
    # mimalloc is written in C: it ends the program when memory is refused, so no bad_alloc is thrown.
    arguments, expected = ["refuse"], PLANTED
    if allocator == "mimalloc":
        arguments, expected = [], {**PLANTED, "keep_reserve": (0, 0, 0)}
    done = run_heap(tmp_path / "run", program, plugin, *arguments)
    assert (done.returncode, done.stdout) == (9, "done\n"), done.stderr
    assert recorded_allocations(tmp_path / "run") == expected


def test_operators_of_the_standard_library(operators: Path, plugin: Path, tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", link_program(tmp_path / "program", operators), plugin, "refuse")
    assert (done.returncode, done.stdout) == (9, "done\n"), done.stderr
    assert recorded_allocations(tmp_path / "run") == PLANTED


def test_operators_that_the_program_defines(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's operators are called as often as without recording, also if an allocator that has operators is
    preloaded."""
    monkeypatch.setenv("LD_PRELOAD", str(library_of("jemalloc")))
    program = compile_source(tmp_path / "program", "operators.cpp", "-DREPLACED", "-rdynamic", "-ldl")
    command = [program, plugin, "refuse"]
    bare = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    done = run_heap(tmp_path / "run", *command)
    assert done.stdout.startswith("replaced ") and done.stdout.endswith("done\n")
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout)
    assert recorded_allocations(tmp_path / "run") == PLANTED
