"""How a command ends: by SIGTERM and Ctrl-C, during its imports, by a defect, and when nobody reads its output."""

from __future__ import annotations

import errno
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.cli import main
from assay.errors import UserError
from assay.records.run import Run
from assay.records.schema import Finding, Measurement, Summary

pytestmark = pytest.mark.programs

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300.0
COMMAND = [sys.executable, "-m", "assay"]
CRITERIA = 800  # verdicts and findings, more than a pipe holds


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), **more}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    result = Run.create("net", ["assay", "net"], path=tmp_path / "run")
    summary = Summary(n=5, median=2e9)
    result.append(Measurement(name="network.all_to_all", metric="bandwidth", unit="B/s", summary=summary))
    result.append(Finding(rule="planted", cause="a cause that is not judged", severity="warning"))
    result.finish("complete")
    criteria = [
        f'[[criterion]]\nmetric = "network.all_to_all/bandwidth"\nwhere = {{ size = "{size} B" }}\nmin = "1 GB/s"\n'
        for size in range(1, CRITERIA)
    ]
    (tmp_path / "many.toml").write_text("\n".join(criteria))
    return result.path


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_pipe_is_not_an_error(run: Path, options: list[str]) -> None:
    """As with "| head", standard error stays empty, and the exit code is that of the verdict: 2, inconclusive."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "judge", str(run), str(run.parent / "many.toml"), *options],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        timeout=LIMIT_S,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 2


@pytest.mark.parametrize("options", [["list"], ["list", "--json"], ["--help"], ["dance"]])
def test_closed_pipes_of_both_streams_do_not_change_the_exit_code(options: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, *options], stdout=writing, stderr=writing, env=environment(), timeout=LIMIT_S
    )
    os.close(writing)
    assert done.returncode == (2 if options == ["dance"] else 0)


@pytest.mark.parametrize("verb", ["heap", "numa"])
@pytest.mark.parametrize(("ended", "status"), [(3, 3), (0, 2)])
def test_a_full_disk_after_the_program_leaves_its_status(
    verb: str,
    ended: int,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out/run.json")

    monkeypatch.setattr(Run, "finish", fail)
    assert main([verb, "-o", str(tmp_path / "run"), "--", "sh", "-c", f"exit {ended}"]) == status
    assert "out/run.json: no space left to write to" in capfd.readouterr().err


@pytest.mark.parametrize("options", [["list"], ["--help"], ["--version"]])
def test_a_full_disk_under_standard_output_is_one_line(options: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *options],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            timeout=LIMIT_S,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("assay: no space left") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(("options", "status"), [(["list"], 0), (["dance"], 2)])
def test_a_full_disk_under_standard_error_changes_no_exit_code(options: list[str], status: int) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *options], stdout=subprocess.DEVNULL, stderr=full, env=environment(), timeout=LIMIT_S
        )
    assert done.returncode == status


def test_a_terminal_that_is_closed_changes_no_exit_code() -> None:
    program = """
import os, pty, sys
terminal, terminal_end = pty.openpty()
os.dup2(terminal_end, 1), os.dup2(terminal_end, 2), os.close(terminal_end)
sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = os.fdopen(1, "w"), os.fdopen(2, "w")
from assay.report.streams import prepare_output
prepare_output()
print("before"), sys.stdout.flush()
os.close(terminal)
print("after"), print("after", file=sys.stderr), sys.stdout.flush(), sys.exit(7)
"""
    assert subprocess.run([sys.executable, "-c", program], env=environment(), timeout=LIMIT_S).returncode == 7


def test_a_terminal_of_no_known_width_is_printed_to(run: Path) -> None:
    terminal, terminal_end = pty.openpty()
    with open(terminal, "rb", buffering=0, closefd=True) as shown:
        subprocess.run(
            [*COMMAND, "judge", str(run), "net"],
            stdout=terminal_end,
            env=environment(COLUMNS="0"),
            timeout=LIMIT_S,
        )
        os.close(terminal_end)
        assert b"INCONCLUSIVE" in shown.read(1 << 16)


def test_results_are_shown_where_the_report_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise UserError("cannot write run/report.html: Is a directory", "name a writable file with -o")

    monkeypatch.setattr("assay.measure.session.build_report", fail)
    out = str(tmp_path / "run")
    assert main(["heap", "-o", out, "--", "sh", "-c", "exit 0"]) == 2
    shown = capfd.readouterr()
    assert "allocated " in shown.err and "report:" not in shown.err
    assert "cannot write run/report.html" in shown.err


def test_a_terminal_without_the_characters_gets_escapes(run: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "report", str(run), "--html", str(run / "5 \u00b5s.html")],
        capture_output=True,
        text=True,
        env=environment(PYTHONIOENCODING="ascii"),
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{run}/5 \\xb5s.html\n"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "raise LookupError('planted\\nfault')",
            "defect of Assay: LookupError: planted; fault (sitecustomize.py:4)",
        ),
        ("raise AssertionError", "defect of Assay: AssertionError (sitecustomize.py:4)"),
        ("raise RecursionError('deep')", "defect of Assay: RecursionError: deep"),
        ("open('/no/such/file')", "/no/such/file: No such file or directory"),
        ("b'\\xff'.decode()", "defect of Assay: UnicodeDecodeError: 'utf-8' codec"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_a_defect_is_one_line_with_exit_code_2(
    tmp_path: Path, fault: str, message: str, traced: bool
) -> None:
    """The defect is planted in a verb. Exit code 1 would mean that the machine has failed."""
    (tmp_path / "sitecustomize.py").write_text(
        f"from assay.commands.list import List\n\ndef planted(self, args):\n    {fault}\n\nList.run = planted\n"
    )
    more = {"ASSAY_TRACEBACK": "1"} if traced else {}
    done = subprocess.run(
        [*COMMAND, "list"],
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=f"{tmp_path}:{ROOT / 'python'}", **more),
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout) == (2, "")
    *before, line = done.stderr.splitlines()
    assert line.startswith(f"assay: {message}"), done.stderr
    assert "; fix: " in line
    assert bool(before) == traced


def list_with_modules_of(folder: Path) -> subprocess.CompletedProcess[str]:
    """``assay list`` where the modules of a folder take the place of others."""
    return subprocess.run(
        [*COMMAND, "list"],
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=f"{folder}:{ROOT / 'python'}"),
        timeout=LIMIT_S,
    )


def test_a_missing_module_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "ClusterShell.py").write_text("")
    done = list_with_modules_of(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("assay: cannot start: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_imports_is_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    """The signal is planted in a library that Assay imports. An interrupted import must not count as a broken
    module."""
    planted = tmp_path / "ClusterShell"
    planted.mkdir()
    (planted / "__init__.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\n")
    done = list_with_modules_of(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def checkout(folder: Path, before: str) -> None:
    """The script in a folder of its own, with a Python that runs lines of a shell before it starts."""
    shutil.copy(ROOT / "assay", folder)
    (folder / "python").symlink_to(ROOT / "python")
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n{before}exec {sys.executable} "$@"\n')
    python.chmod(0o755)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_python_starts_is_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    """The signal is planted before Python starts: it is pending, as the script blocks it."""
    if subprocess.run(["env", "--block-signal=INT", "true"], capture_output=True).returncode:
        pytest.skip("optional: this env blocks no signals")
    checkout(tmp_path, f"kill -{number.name.removeprefix('SIG')} $$\n")
    done = subprocess.run(
        [tmp_path / "assay", "list"], capture_output=True, text=True, env=environment(), timeout=LIMIT_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_the_measurements_and_writes_the_report(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The signal is sent twice, as 'timeout' does, after the first measurement."""
    options = ["--budget", "0.5s", "--repeats", "3", "--bytes", "4MiB", "--threads", "1", "-o", "run"]
    process = subprocess.Popen(
        [*COMMAND, "io", "device", ".", *options],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        records = tmp_path / "run" / "records.jsonl"
        while not records.is_file() or b'"bandwidth"' not in records.read_bytes():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "Traceback" not in err and "report:" in out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "partial"
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize(("no_color", "styled"), [("", True), ("1", False)])
def test_no_color_means_no_escape_sequence(run: Path, no_color: str, styled: bool) -> None:
    terminal, terminal_end = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "judge", str(run), "net"],
        stdout=terminal_end,
        stderr=terminal_end,
        stdin=terminal_end,
        env=environment(NO_COLOR=no_color, TERM="xterm"),
    )
    os.close(terminal_end)
    output = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        output += part
    process.wait(timeout=LIMIT_S)
    os.close(terminal)
    assert b"INCONCLUSIVE" in output
    assert (b"\x1b[" in output) == styled


@pytest.mark.parametrize(
    "parent",
    [
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})",
    ],
    ids=["ignored", "blocked"],
)
def test_the_exit_code_of_a_program_is_its_own_whatever_a_parent_does_with_sigchld(
    parent: str, tmp_path: Path
) -> None:
    code = f"import os, signal, sys; {parent}; os.execvp(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            *COMMAND,
            "heap",
            "-o",
            str(tmp_path / "run"),
            "--",
            "sh",
            "-c",
            "exit 3",
        ],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=LIMIT_S,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
