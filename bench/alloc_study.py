#!/usr/bin/env python3
"""The overhead and the accuracy of the allocator study, under glibc with blocks of 16 bytes.

- the study's empty loop over its malloc/free pair
- the study's pair against the pair of a plain program (programs/pairs.cpp)
- that program's calls, recorded and replayed, against the plain program

Study and plain program run in turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure  # noqa: E402 - the path comes first

from assay.launch.engines import engines_folder  # noqa: E402 - the path comes first

ROUNDS = 7
PAIRS = 20_000_000
LIMIT_S = 300
ENGINE = engines_folder() / "assay-alloc"
PLAIN = engines_folder() / "bench-pairs"


def output_of(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout


def medians(*arguments: str) -> dict[str, float]:
    """Medians of a measurement under glibc, by metric; of several records of a metric, the last."""
    records = [json.loads(line) for line in output_of(ENGINE, "run", *arguments).splitlines()]
    return {r["metric"]: r["summary"]["median"] for r in records if r["kind"] == "measurement"}


def replayed_pair(folder: Path) -> float:
    """Seconds of a malloc/free pair of the plain program, recorded and replayed."""
    output_of(engines_folder() / "assay-heap", "record", folder, "--", PLAIN, "1000000")
    (trace,) = folder.glob("*.heap")
    output_of(ENGINE, "prepare", trace, folder / "script")
    figures = medians("profile.alloc.replay", "--no-touch", "--script", str(folder / "script"))
    return figures["time"] / figures["calls"] * 2


def main() -> None:
    loops, pairs, replays = [], [], []
    for _ in range(ROUNDS):
        plain = float(output_of(PLAIN, str(PAIRS)))
        study = medians("profile.alloc.cycle", "--sizes", "16", "--seconds", "0.5")
        loops.append(study["overhead"] / study["pair"])
        pairs.append(abs(study["pair"] / plain - 1))
        with tempfile.TemporaryDirectory() as folder:
            replays.append(abs(replayed_pair(Path(folder)) / plain - 1))
    figure("alloc.loop over a 16 B pair", loops, 0.10, "lower")
    figure("alloc.pair off that of a plain program", pairs, 0.15, "lower", peer="a plain program")
    figure("alloc.replayed pair off that of a plain program", replays, 0.30, "lower", peer="a plain program")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
