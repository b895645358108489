"""The runner of the suites (packaging/suites.py), on planted parts: what failed, why, and where the output lies."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from processes import ends

pytestmark = pytest.mark.slow

RUNNER = Path(__file__).parents[3] / "packaging" / "suites.py"


@pytest.fixture(scope="module")
def suites() -> ModuleType:
    spec = importlib.util.spec_from_file_location("suites", RUNNER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["suites"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def junit(*cases: str) -> str:
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"


PASSED = '<testcase classname="a" name="good"/>'
SKIPPED = '<testcase classname="a" name="left"><skipped/></testcase>'
FAILED = '<testcase classname="a" name="bad"><failure message="5 is not 6&#10;more"/></testcase>'
OF_CTEST = (
    '<testcase classname="engines.core" name="engines.core" status="fail"><failure message="Failed"/>'
    "<system-out>x.cpp:3: ERROR: CHECK( 1 == 2 ) is NOT correct!</system-out></testcase>"
)
REPEATED = (
    '<testcase classname="a" name="chance"><properties>'
    '<property name="repeated" value="failed passed passed"/></properties></testcase>'
)


def part(suites: ModuleType, tmp_path: Path, text: str, status: int = 0, limit_s: float = 300) -> object:
    source = tmp_path / "results"
    source.write_text(text)
    command = ["sh", "-c", f"echo hello; cp {source} {{junit}}; exit {status}"]
    return suites.Part("area", "planted", command, limit_s)


def test_results_are_counted(suites: ModuleType, tmp_path: Path) -> None:
    result = suites.run(
        part(suites, tmp_path, junit(PASSED, SKIPPED, FAILED, OF_CTEST, REPEATED), 1), tmp_path
    )
    assert (result.passed, result.repeated) == (2, 1)
    assert result.failures == [
        "a bad: 5 is not 6",
        "engines.core: x.cpp:3: ERROR: CHECK( 1 == 2 ) is NOT correct!",
    ]
    assert Path(result.log).read_text() == "hello\n"


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        (junit(PASSED), 3, "planted: exit code 3: hello"),
        (junit(), 0, "planted: ran no test"),
        ("", 0, "planted: no results"),
        ("<testsuites><test", 0, "planted: no results"),
    ],
)
def test_a_part_that_proves_nothing_has_failed(
    text: str, status: int, reason: str, suites: ModuleType, tmp_path: Path
) -> None:
    result = suites.run(part(suites, tmp_path, text, status), tmp_path)
    assert len(result.failures) == 1 and result.failures[0].startswith(reason)


def test_a_part_that_does_not_end_is_ended_with_all_that_it_started(
    suites: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "GRACE_S", 0.1)
    pid = tmp_path / "pid"
    script = f"trap '' INT; sleep 1000 & echo $! >{pid}; echo started; wait; wait; sleep 1000"
    # The limit begins before the shell runs: the test does not depend on how far it came.
    result = suites.run(suites.Part("area", "hangs", ["sh", "-c", script], 1), tmp_path)
    assert "hangs: ended after its limit" in result.failures[0]
    if pid.exists() and pid.read_text().strip():
        assert ends(int(pid.read_text()))


def test_the_last_40_lines_name_the_failing_tests(suites: ModuleType, tmp_path: Path) -> None:
    failures = [f"test_{n}: because of {n}" for n in range(50)]
    results = [
        suites.Result("Python", 7, 0, 60, failures, str(tmp_path / "python.log")),
        suites.Result("C++", 9, 0, 60),
    ]
    lines = suites.summary(results, "gate").splitlines()
    assert len(lines) <= 40 and lines[-1] == f"the whole output: {tmp_path / 'python.log'}"
    assert failures[0] in lines and "more, in" in lines[-2] and "summary.txt" in lines[-2]
    assert [line.split()[1:4] for line in lines[1:3]] == [["7", "50", "0"], ["9", "0", "0"]]


def test_ctrl_c_ends_the_part_and_tells_what_ran(tmp_path: Path) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(RUNNER.parent)!r})
import pathlib, suites
suites.BUILD = pathlib.Path({str(tmp_path)!r})
suites.GRACE_S = 0.1
wait = "echo ready; exec sleep 1000"
suites.gate = lambda _: [suites.Part("first", "first", ["true"], 300),
                         suites.Part("second", "second", ["sh", "-c", wait], 300)]
sys.exit(suites.main(["gate"]))
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        pass
    os.kill(process.pid, signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait() == 130
    assert "ended by SIGINT after 2 of 2 parts" in rest and "first             1      0" in rest
    assert "second: ended by SIGINT" in rest


def test_a_signal_before_a_part_waits_starts_no_further_part(
    suites: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "GRACE_S", 0.1)
    monkeypatch.setattr(suites, "received", ["SIGTERM"])
    result = suites.run(suites.Part("a", "a", ["sleep", "1000"], 300), tmp_path)
    assert result.failures == ["a: ended by SIGTERM"] and result.seconds < 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "gate, acceptance"),
        (["all"], "gate, acceptance"),
        (["acceptance", "moon"], "unknown area 'moon'"),
    ],
)
def test_bad_arguments_are_one_line(arguments: list[str], message: str) -> None:
    run = subprocess.run([sys.executable, str(RUNNER), *arguments], capture_output=True, text=True)
    assert run.returncode == 2 and message in run.stderr and run.stderr.count("\n") == 1


def test_every_area_has_parts(suites: ModuleType) -> None:
    areas = {part.area for part in suites.acceptance("")}
    assert set(suites.pytest_areas()) <= areas
    assert [part.name for part in suites.acceptance("storage")] == ["python-storage", "chaos", "bench-io"]


def test_a_continued_run_skips_only_what_ended_on_the_same_commit(
    suites: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "acceptance").mkdir()
    ran = tmp_path / "ran"

    def parts(_: str) -> list[object]:
        commands = {"good": "true", "bad": "false", "cut": "true"}
        return [
            suites.Part(name, name, ["sh", "-c", f"echo {name} >>{ran}; {command}"], 300)
            for name, command in commands.items()
        ]

    def run(commit: str, *arguments: str) -> list[str]:
        monkeypatch.setattr(suites, "checked_out", lambda: commit)
        ran.write_text("")
        assert suites.main(["acceptance", *arguments]) == 1
        return ran.read_text().split()

    monkeypatch.setattr(suites, "BUILD", tmp_path)
    monkeypatch.setattr(suites, "acceptance", parts)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert run("one", "--continue") == ["good", "bad", "cut"]
    (tmp_path / "acceptance" / "cut.json").write_text("{")
    capsys.readouterr()
    assert run("one", "--continue") == ["cut"]
    table = capsys.readouterr().out
    assert "good              1      0" in table and "bad: exit code 1" in table
    assert run("one") == ["good", "bad", "cut"]
    assert run("two", "--continue") == ["good", "bad", "cut"]
    assert run("", "--continue") == run("", "--continue") == ["good", "bad", "cut"]  # changed sources


def test_a_part_that_was_cut_runs_again(
    suites: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "GRACE_S", 0.1)
    part = suites.Part("a", "a", ["sleep", "1000"], 300)
    monkeypatch.setattr(suites, "received", ["SIGTERM"])
    suites.run(part, tmp_path, "one")
    assert suites.ended_before(part, tmp_path, "one") is None
