"""Real programs do the same with and without ``assay heap``; ``make test-programs`` compares more of them."""

from __future__ import annotations

from pathlib import Path

import heap_programs
import pytest
from heap_programs import PROGRAMS, Program, compare, difference
from heap_runs import REQUIREMENTS

from assay.profile.profiles import load_profiles

pytestmark = [*REQUIREMENTS, pytest.mark.programs]

QUICK = [program for program in PROGRAMS if program.quick]


def in_suite(program: Program) -> object:
    """The gate runs one program, the acceptance suite the others."""
    marks = [] if program.name == "python3" else [pytest.mark.acceptance("profile")]
    return pytest.param(program, marks=marks, id=program.name)


@pytest.mark.parametrize("program", [in_suite(program) for program in QUICK])
def test_a_recorded_program_behaves_the_same(program: Program, tmp_path: Path) -> None:
    if (name := heap_programs.missing_executable(program)) is not None:
        pytest.skip(f"optional: no {name} here; Debian: apt-get install {program.package}")
    problem, line = compare(program, tmp_path)
    assert problem is None, line
    profiles = load_profiles(tmp_path / "profile")
    assert sum(p.totals.count for p in profiles) > 0
    assert all(p.trace.lost_events == 0 for p in profiles)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ('test -z "$ASSAY_HEAP"', "exit code 0, recorded 1"),
        ('echo "${ASSAY_HEAP:+is recorded}"', "output b'\\n', recorded b'is recorded\\n'"),
        ('[ -z "$ASSAY_HEAP" ] || echo more >made', "the file made"),
    ],
    ids=["exit code", "output", "file"],
)
def test_a_planted_difference_is_reported(command: str, problem: str, tmp_path: Path) -> None:
    """The planted program detects that it is recorded, and behaves differently."""
    assert compare(Program("planted", "dash", command, files=("made",)), tmp_path)[0] == problem


def test_a_program_that_hangs_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_programs, "LIMIT_S", 1)
    hangs = heap_programs.run(Program("planted", "dash", "sleep 600"), tmp_path / "work", recorded=None)
    ends = heap_programs.Result(b"", 0, {})
    assert difference(ends, hangs) == "no end within 1 s, recorded"
    assert difference(hangs, ends) == "no end within 1 s, bare"


def test_a_program_that_cannot_be_prepared_is_reported(tmp_path: Path) -> None:
    problem, line = compare(Program("planted", "dash", "true", prepare="exit 7"), tmp_path)
    assert problem is not None and "exit status 7" in problem
    assert "cannot be prepared" in line


def test_a_pattern_of_paths_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "arch").mkdir()
    program = Program("planted", "dash", "true", needs=("sh", f"{tmp_path}/*/lib.so"))
    assert heap_programs.missing_executable(program) == f"{tmp_path}/*/lib.so"
    (tmp_path / "arch/lib.so").touch()
    assert heap_programs.missing_executable(program) is None
