#!/usr/bin/env python3
"""The time to capture a call stack of about 20 frames, without a profiler around it: bench-heap-unwind prints it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, pass_on  # noqa: E402 - the path comes first

from assay.launch.engines import engines_folder  # noqa: E402 - the path comes first

LIMIT_S = 120


def main() -> None:
    program = engines_folder() / "bench-heap-unwind"
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
    pass_on(done.stdout)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
