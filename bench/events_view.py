#!/usr/bin/env python3
"""What the live view of `assay eb` costs: processor time of the program that shows it, over all processors' time.

The ranks are other processes. In turns, the program's standard error is a terminal, which has a view that is drawn
with each report of the ranks, and /dev/null. The figure is the difference of its processor times over the time of the
run and the number of processors: what the ranks could have had instead.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from figures import exit_code_of, figure  # noqa: E402

ROUNDS = 2
SECONDS = 8
LIMIT_S = 60
POLL_S = 0.05
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "TERM": "xterm"}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Of the process alone, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def drain(terminal: int) -> None:
    """Reads what is shown, until the terminal is closed."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass


def view_seconds(shown: bool) -> float:
    """Processor seconds of a run's program."""
    terminal, other_end = pty.openpty()
    reader = threading.Thread(target=drain, args=(terminal,), daemon=True)
    reader.start()
    with tempfile.TemporaryDirectory(prefix="assay-view-") as folder:
        command = [sys.executable, "-m", "assay", "eb", "--transport", "tcp", "-n", "2", "--alone"]
        process = subprocess.Popen(
            [*command, "--budget", f"{SECONDS}s", "-o", f"{folder}/run"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=other_end if shown else subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        os.close(other_end)
        deadline = time.monotonic() + LIMIT_S
        try:
            # A process that has ended keeps its times until it is waited for.
            while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if time.monotonic() > deadline:
                    raise SystemExit(f"bench: {' '.join(command[2:])} did not end within {LIMIT_S} s")
                time.sleep(POLL_S)
            used = processor_seconds(process.pid)
        finally:
            process.terminate()
            code = process.wait(LIMIT_S)
    reader.join(LIMIT_S)
    os.close(terminal)
    if code not in (0, 1):
        raise SystemExit(f"bench: {' '.join(command[2:])} ended with exit code {code}")
    return used


def main() -> None:
    shares = []
    for _ in range(ROUNDS):
        extra = view_seconds(True) - view_seconds(False)
        shares.append(extra / SECONDS / (os.cpu_count() or 1))
    figure("events.view.share_of_processors", shares, 0.005, "lower")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
