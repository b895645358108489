"""The marks of the acceptance suite, on small test files that pytest runs in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from acceptance import AREAS, Attempts

pytestmark = pytest.mark.slow

FIXTURES = Path(__file__).parents[2] / "fixtures"

COUNTED = """
import pathlib, pytest

def outcomes(name, *planted):
    path = pathlib.Path(name)
    n = int(path.read_text()) if path.exists() else 0
    path.write_text(str(n + 1))
    assert planted[n], f"attempt {n} of {name}"

@pytest.fixture(scope="module")
def measured():
    path = pathlib.Path("measured")
    path.write_text(str(int(path.read_text()) + 1 if path.exists() else 1))
    return path.read_text()
"""


def run_pytest(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(COUNTED + text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    acceptance(area)\n    statistical(alarm)\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "acceptance", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(FIXTURES)}
    )


def statistical(*planted: bool) -> str:
    return f"""
@pytest.mark.acceptance("network")
@pytest.mark.statistical("1 in 1000: a planted one")
def test_chance():
    outcomes("chance", *{planted})
"""


@pytest.mark.parametrize(
    ("planted", "passes", "attempts"),
    [
        ((True, False, False), True, 1),
        ((False, True, True), True, 3),
        ((False, False, True), False, 2),
        ((False, True, False), False, 3),
    ],
)
def test_two_of_three_decide(planted: tuple[bool, ...], passes: bool, attempts: int, tmp_path: Path) -> None:
    run = run_pytest(tmp_path, statistical(*planted))
    assert (run.returncode == 0) == passes, run.stdout + run.stderr
    assert (tmp_path / "chance").read_text() == str(attempts)
    printed = re.findall(r"attempt (\d) (passed|failed)", run.stdout)
    outcomes = ["passed" if value else "failed" for value in planted[:attempts]]
    assert printed == ([] if attempts == 1 else [(str(n + 1), o) for n, o in enumerate(outcomes)])


def test_a_repetition_measures_anew(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
@pytest.mark.acceptance("network")
@pytest.mark.statistical("1 in 1000: a planted one")
@pytest.mark.parametrize("name", ["first", "second"])
def test_chance(measured, name):
    assert name == "second" or measured == "2" or measured == "3", measured
""",
    )
    assert run.returncode == 0, run.stdout
    assert (tmp_path / "measured").read_text() == "3"


def test_a_repetition_is_in_the_junit_file(tmp_path: Path) -> None:
    run_pytest(tmp_path, statistical(False, True, True), "--junitxml", "out.xml")
    text = (tmp_path / "out.xml").read_text()
    assert '<property name="repeated" value="failed passed passed"' in text and 'failures="0"' in text


def test_an_area_is_chosen(tmp_path: Path) -> None:
    text = "\n".join(f"@pytest.mark.acceptance('{area}')\ndef test_{area}(): pass" for area in AREAS)
    run = run_pytest(tmp_path, text + "\ndef test_of_the_gate(): pass", "--area", "storage")
    assert f"1 passed, {len(AREAS)} deselected" in run.stdout, run.stdout


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ("@pytest.mark.acceptance", "acceptance takes one of"),
        ("@pytest.mark.acceptance('moon')", "acceptance takes one of"),
        ("@pytest.mark.statistical('1 in 10')", "belongs to the acceptance suite"),
        ("@pytest.mark.acceptance('node')\n@pytest.mark.statistical", "the chance of a false alarm"),
    ],
)
def test_marks_that_do_not_say_what_they_must_are_refused(marks: str, message: str, tmp_path: Path) -> None:
    run = run_pytest(tmp_path, f"{marks}\ndef test_it(): pass")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR and message in run.stderr + run.stdout


def test_attempts_decide() -> None:
    assert Attempts(["skipped"]).decided()
    assert not Attempts(["failed", "passed"]).decided()
