#!/usr/bin/env python3
"""The overhead of the network engine: without a network (bench-net-engine), then over MPI (bench-net-verify).

bench-net-verify runs two ranks on this machine over the first MPI that works here. Both programs print one JSON line
per figure.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, pass_on  # noqa: E402 - the path comes first

from assay.launch.engines import engines_folder  # noqa: E402 - the path comes first
from assay.launch.launchers import default_launcher  # noqa: E402
from assay.launch.placement import HERE, Segment  # noqa: E402

LIMIT_S = 120


def output_of(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env=os.environ | (environment or {}),
    )
    return done.stdout


def main() -> None:
    pass_on(output_of([engines_folder() / "bench-net-engine"]))
    launcher = default_launcher()
    program = engines_folder() / f"bench-net-verify-{launcher.flavour}"
    command = launcher.command(HERE, [Segment([socket.gethostname()] * 2)], [str(program)])
    pass_on(output_of(command, launcher.environment(HERE)))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
