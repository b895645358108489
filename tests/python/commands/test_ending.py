"""How a command ends: by SIGTERM as by Ctrl-C, in the middle of its imports, and when nobody reads what it prints."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from assay.records.run import Run
from assay.records.schema import Finding, Measurement, Summary

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60.0
COMMAND = [sys.executable, "-m", "assay"]
MANY = 2000  # verdicts and findings, more than a pipe holds


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), **more}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = Run.create("net", ["assay", "net"], path=tmp_path / "run")
    summary = Summary(n=5, median=2e9)
    made.append(Measurement(name="network.all_to_all", metric="bandwidth", unit="B/s", summary=summary))
    made.append(Finding(rule="planted", cause="a cause that is not judged"))
    made.finish("complete")
    criteria = [
        f'[[criterion]]\nmetric = "network.all_to_all/bandwidth"\nwhere = {{ size = "{size} B" }}\nmin = "1 GB/s"\n'
        for size in range(1, MANY)
    ]
    (tmp_path / "many.toml").write_text("\n".join(criteria))
    return made.path


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_pipe_is_no_error(run: Path, options: list[str]) -> None:
    """As with "| head": nothing on standard error, and no traceback's exit code."""
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
    # The table goes on to its verdict, which is inconclusive; of JSON, a line that cannot be written is the end.
    assert done.returncode == (0 if options else 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_imports_is_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    """Planted in the place of a library that Assay imports; it would go on as a broken module."""
    planted = tmp_path / "ClusterShell"
    planted.mkdir()
    (planted / "__init__.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\n")
    done = subprocess.run(
        [*COMMAND, "list"],
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=f"{tmp_path}:{ROOT / 'python'}"),
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "assay: interrupted\n")


@pytest.mark.slow
def test_sigterm_keeps_what_was_measured_and_writes_the_report(tmp_path: Path) -> None:
    """Sent twice, as 'timeout' does it, when the first figure has come."""
    options = ["--budget", "1s", "--repeats", "3", "--bytes", "4MiB", "--threads", "1", "-o", "run"]
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
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
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
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "judge", str(run), "net"],
        stdout=inside,
        stderr=inside,
        stdin=inside,
        env=environment(NO_COLOR=no_color, TERM="xterm"),
    )
    os.close(inside)
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
