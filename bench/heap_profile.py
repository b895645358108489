#!/usr/bin/env python3
"""The overhead of ``assay heap``, compared with Debian's heaptrack and valgrind (DHAT).

The programs are one that does nearly nothing but allocate (programs/churn.cpp), with one thread and with two; a Python
program; and recursive ones (programs/recursion.cpp). The trace's size and the analyser's speed are measured as well.
Profilers run in turns. The time is the program's own, from its first to its last allocation, without start-up and
analysis.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure  # noqa: E402 - the path comes first

from assay.launch.engines import engines_folder  # noqa: E402 - the path comes first

ROUNDS = 5
BLOCKS = 20_000_000
PEER_BLOCKS = 2_000_000  # for heaptrack, whose overhead is measured per block
DHAT_BLOCKS = 200_000  # for DHAT, which is slower still
LIMIT_S = 300
CHURN = engines_folder() / "bench-churn"
RECURSION = engines_folder() / "bench-recursion"
PYTHON = """
import json, re, time
start = time.perf_counter()
for k in range(100):
    text = json.dumps([{"key%d" % i: [i, str(i)] for i in range(2000)}])
    json.loads(text)
    re.findall(r"key(\\d+)", text)
print(time.perf_counter() - start)
"""


def seconds(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> float:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=True, env=environment
    )
    return float(next(line for line in done.stdout.splitlines() if line.replace(".", "").isdigit()))


def record(command: Sequence[str | Path], folder: str, options: Sequence[str] = ()) -> tuple[float, Path]:
    """Returns the program's seconds under the recorder, and the trace of the largest process."""
    directory = Path(tempfile.mkdtemp(dir=folder))
    recorded_s = seconds([engines_folder() / "assay-heap", "record", *options, directory, "--", *command])
    return recorded_s, max(directory.glob("*.heap"), key=lambda path: path.stat().st_size)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        slowdowns: dict[int, list[float]] = {1: [], 2: []}
        costs, dhat, raw_sizes, sizes, speeds = [], [], [], [], []
        for _ in range(ROUNDS):
            for threads in slowdowns:
                plain_s = seconds([CHURN, str(BLOCKS), str(threads)])
                recorded_s, trace = record([CHURN, str(BLOCKS), str(threads)], folder)
                slowdowns[threads].append(recorded_s / plain_s)
                if threads == 1:
                    trace.unlink()
                    continue
                start = time.perf_counter()
                analysis = subprocess.run(
                    [engines_folder() / "assay-heap", "analyse", trace], capture_output=True, check=True
                )
                events = json.loads(analysis.stdout)["trace"]["events"]
                speeds.append(events / (time.perf_counter() - start))
                raw_sizes.append(trace.stat().st_size / events)
                subprocess.run([engines_folder() / "assay-heap", "pack", trace], check=True)
                sizes.append(trace.stat().st_size / events)
                trace.unlink()
                overhead = (recorded_s - plain_s) / BLOCKS
                plain_s = seconds([CHURN, str(PEER_BLOCKS), str(threads)])
                peer = seconds(["heaptrack", "-o", f"{folder}/peer", CHURN, str(PEER_BLOCKS), str(threads)])
                costs.append((peer - plain_s) / PEER_BLOCKS / overhead)
                plain_s = seconds([CHURN, str(DHAT_BLOCKS), str(threads)])
                command = ["valgrind", "--tool=dhat", f"--dhat-out-file={folder}/dhat"]
                dhat.append(
                    (seconds([*command, CHURN, str(DHAT_BLOCKS), str(threads)]) - plain_s)
                    / DHAT_BLOCKS
                    / overhead
                )
        figure("heap.slowdown, 2 threads", slowdowns[2], 2.5, "lower")
        figure(
            "heap.slowdown of 2 threads over that of 1",
            [b / a for a, b in zip(slowdowns[1], slowdowns[2], strict=True)],
            1.2,
            "lower",
        )
        figure("heap.overhead of heaptrack over ours", costs, 5, "higher", peer="heaptrack")
        figure("heap.overhead of valgrind's DHAT over ours", dhat, 5, "higher", peer="valgrind")
        figure("heap.trace bytes an event while recording", raw_sizes, 3, "lower", "B")
        figure("heap.trace bytes an event", sizes, 1.2, "lower", "B")
        figure("heap.analysis", speeds, 15e6, "higher", "1/s")
        python, stacks = [], []
        command = ["env", "PYTHONMALLOC=malloc", "/usr/bin/python3", "-c", PYTHON]
        for _ in range(ROUNDS):
            plain_s = seconds(command)
            python.append(record(command, folder)[0] / plain_s)
            stacks.append(record(command, folder, ["--no-python"])[0] / plain_s)
        figure("heap.slowdown of Python", python, 2.2, "lower")
        figure("heap.slowdown of Python, C stacks alone", stacks, 2.2, "lower")
        for shape in (("tree", "15", "40"), ("parser", "14", "400")):
            ratios = []
            for _ in range(ROUNDS):
                recorded_s = record([RECURSION, *shape], folder)[0]
                ratios.append(recorded_s / seconds(["heaptrack", "-o", f"{folder}/peer", RECURSION, *shape]))
            figure(
                f"heap.time of a recursive {shape[0]} over heaptrack's",
                ratios,
                0.5,
                "lower",
                peer="heaptrack",
            )


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
