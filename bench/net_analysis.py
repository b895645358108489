#!/usr/bin/env python3
"""The culprit's model at size: time and memory for a full matrix, and what it finds in a sampled one.

    4096 x 4096   every pair measured, two hosts slow on one side; analysed in a process of its own, so that
                  the peak memory is its own, the matrix included; processor time, one thread
    10,000        ten random shifts, hosts that lose 10 % on one side planted; share found with the right
                  side, and how many others are flagged in a run

Prints one JSON line a figure. No peer does this analysis; the limits are Assay's own.
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
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python" / "explain")]

from planted import sampled  # noqa: E402 - the path comes first

from assay.explain import PairMatrix, suspects  # noqa: E402

SIZE, HOSTS, SHIFTS, RUNS = 4096, 10_000, 10, 5
NOISE = 0.025  # of a pair, relative


def figure(name: str, values: list[float], unit: str, limit: float, better: str) -> None:
    median = float(np.median(values))
    spread = float(np.ptp(values))
    line = {"name": name, "value": median, "unit": unit, "limit": limit, "better": better}
    print(json.dumps(line | {"peer": None, "spread": spread}), flush=True)


def analyse_full_matrix() -> None:
    """In the process of its own: prints seconds, peak bytes, and whether both culprits were named."""
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
    figure("net.analysis.4096.time", [run[0] for run in runs], "s", 10, "lower")
    figure("net.analysis.4096.peak_rss", [run[1] for run in runs], "B", 2 * 2**30, "lower")
    figure("net.analysis.4096.named", [float(run[2]) for run in runs], "1", 1, "higher")
    named, false, seconds = [], [], []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        bad = rng.choice(HOSTS, HOSTS // 100, replace=False).tolist()
        transmit, receive = dict.fromkeys(bad[::2], 0.9), dict.fromkeys(bad[1::2], 0.9)
        truth = {("transmit", f"n{i}") for i in transmit} | {("receive", f"n{i}") for i in receive}
        matrix = sampled(HOSTS, SHIFTS, rng, transmit, receive, NOISE)
        begin = time.process_time()
        flagged = {(suspect.side, suspect.hosts[0]) for suspect in suspects(matrix)}
        seconds.append(time.process_time() - begin)
        named.append(len(truth & flagged) / len(truth))
        false.append(float(len(flagged - truth)))
    figure("net.analysis.10000x10.found", named, "1", 1.0, "higher")
    figure("net.analysis.10000x10.false_flags", [float(np.mean(false))], "1", 1.6, "lower")
    figure("net.analysis.10000x10.time", seconds, "s", 10, "lower")


if __name__ == "__main__":
    analyse_full_matrix() if sys.argv[1:] == ["full"] else main()
