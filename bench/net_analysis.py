#!/usr/bin/env python3
"""The search for slow hosts in large pair matrices: time, peak memory and accuracy.

    4096 x 4096   every pair measured, two hosts slow in one direction each; CPU time of one thread, and the peak
                  memory of a separate process, matrix included
    10,000        ten random shifts measured, 1 % of the hosts lose 10 % in one direction; share of them that is
                  named with the right direction, and the number of healthy hosts that are named

Prints one JSON line per figure. No other program does this analysis; the limits are Assay's own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python" / "explain"), str(ROOT / "bench")]

from figures import exit_code_of, figure  # noqa: E402 - the path comes first
from planted import sampled_matrix  # noqa: E402 - the path comes first

from assay.explain import PairMatrix, suspects  # noqa: E402

SIZE, HOSTS, SHIFTS, RUNS = 4096, 10_000, 10, 5
NOISE = 0.025  # of a pair, relative


def analyse_full_matrix() -> None:
    """Runs in a separate process. Prints seconds, peak bytes, and whether exactly the two slow hosts were named."""
    rng = np.random.default_rng(1)
    bandwidth = np.exp(rng.normal(0, NOISE, (SIZE, SIZE)).astype(np.float32))
    bandwidth[7] *= 0.8
    bandwidth[:, 4000] *= 0.8
    matrix = PairMatrix.from_dense(bandwidth, [f"n{i}" for i in range(SIZE)])
    del bandwidth
    begin = time.process_time()
    named = {(suspect.side, suspect.hosts) for suspect in suspects(matrix)}
    seconds = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    is_right = named == {("transmit", ("n7",)), ("receive", ("n4000",))}
    print(json.dumps([seconds, peak, is_right]))


def main() -> None:
    runs = [
        json.loads(
            subprocess.run(
                [sys.executable, __file__, "full"], check=True, capture_output=True, timeout=120
            ).stdout
        )
        for _ in range(3)
    ]
    figure("net.analysis.4096.time", [run[0] for run in runs], 10, "lower", "s")
    figure("net.analysis.4096.peak_rss", [run[1] for run in runs], 2 * 2**30, "lower", "B")
    figure("net.analysis.4096.named", [float(run[2]) for run in runs], 1, "higher")
    named, false, seconds = [], [], []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        slow = rng.choice(HOSTS, HOSTS // 100, replace=False).tolist()
        transmit, receive = dict.fromkeys(slow[::2], 0.9), dict.fromkeys(slow[1::2], 0.9)
        truth = {("transmit", f"n{i}") for i in transmit} | {("receive", f"n{i}") for i in receive}
        matrix = sampled_matrix(HOSTS, SHIFTS, rng, transmit, receive, NOISE)
        begin = time.process_time()
        flagged = {(suspect.side, suspect.hosts[0]) for suspect in suspects(matrix)}
        seconds.append(time.process_time() - begin)
        named.append(len(truth & flagged) / len(truth))
        false.append(float(len(flagged - truth)))
    figure("net.analysis.10000x10.found", named, 1.0, "higher")
    figure("net.analysis.10000x10.false_flags", [float(np.mean(false))], 1.6, "lower")
    figure("net.analysis.10000x10.time", seconds, 10, "lower", "s")


if __name__ == "__main__":
    if sys.argv[1:] == ["full"]:
        analyse_full_matrix()
    else:
        sys.exit(exit_code_of(main))
