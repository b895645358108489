#!/usr/bin/env python3
"""The time that ``assay --help`` takes, beside that of a Python that does nothing: what everybody waits for who types
``assay``, and each step of a completion. A test of the gate holds the list of modules that it imports."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from figures import exit_code_of, figure

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 21
LIMIT_S = 0.15


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main() -> None:
    help_command, nothing = [str(ROOT / "assay"), "--help"], [sys.executable, "-c", ""]
    seconds(help_command)  # compiles, and reads the files into memory
    times = [(seconds(help_command), seconds(nothing)) for _ in range(ROUNDS)]
    peer = sorted(t for _, t in times)[ROUNDS // 2]
    figure(
        "node_start_help", [t for t, _ in times], LIMIT_S, "lower", "s", peer=f"python -c '': {peer:.3f} s"
    )


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
