#!/usr/bin/env python3
"""Peak memory bandwidth against likwid-bench and hpcc's STREAM, with the same cores, in turn; and the paced
workload at half of the peak.

Of each program the best kernel counts, in bytes that really move. likwid's load and *_mem kernels move what
it prints; STREAM (hpcc) prints a triad of regular stores as three bytes where four move, a copy as two where
three do, unless the compiler stored past the cache: the larger figure is taken, in the peer's favour.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from assay.launch.engines import probe  # noqa: E402 - the path comes first
from assay.measure.workload import load_workload  # noqa: E402

ROUNDS = 5
LIMIT_S = 180
LIKWID = ("load_avx512", "store_mem_avx512", "copy_mem_avx512", "stream_mem_avx512", "copy_avx512")
REGULAR = {"copy_avx512": 1.5}  # what moves over what likwid prints
STREAM = {"Copy": 1.5, "Scale": 1.5, "Add": 4 / 3, "Triad": 4 / 3}
CORES = len(os.sched_getaffinity(0))


def records(*words: str) -> list[dict[str, object]]:
    said = subprocess.run([probe(), "run", *words], capture_output=True, timeout=LIMIT_S, check=True).stdout
    return [one for line in said.splitlines() if (one := json.loads(line))["kind"] == "measurement"]


def ours() -> float:
    """B/s of the best kernel, all cores."""
    return max(
        float(one["summary"]["median"])  # type: ignore[index]
        for one in records("node.memory", "--seconds", "0.5")
        if one["params"]["threads"] == CORES  # type: ignore[index]
    )


def likwid() -> float:
    best = 0.0
    for kernel in LIKWID:
        words = ["likwid-bench", "-t", kernel, "-w", f"N:384MB:{CORES}", "-s", "1"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout
        if found := re.search(r"MByte/s:\s+([\d.]+)", said):
            best = max(best, float(found[1]) * 1e6 * REGULAR.get(kernel, 1.0))
    return best


def stream() -> float:
    """hpcc's StarSTREAM, one process a core: the best of its four kernels, summed over the processes."""
    with tempfile.TemporaryDirectory() as place:
        example = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text()
        text = re.sub(r"^1000 +Ns", "9000         Ns", example, flags=re.M)
        text = re.sub(r"^2( +)Ps", r"1\1Ps", text, flags=re.M)
        text = re.sub(r"^2( +)Qs", rf"{CORES}\1Qs", text, flags=re.M)
        Path(place, "hpccinf.txt").write_text(text)
        words = ["mpirun", "--oversubscribe", "-np", str(CORES), "hpcc"]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        subprocess.run(words, cwd=place, env=os.environ | allowed, timeout=LIMIT_S, check=True)
        said = Path(place, "hpccoutf.txt").read_text()
    figures = {name: float(value) for name, value in re.findall(r"StarSTREAM_(\w+)=([\d.]+)", said)}
    return max(figures[name] * 1e9 * factor * CORES for name, factor in STREAM.items())


def late_at_half(peak: float) -> float:
    workload = load_workload("cobalt2")
    desired = 621e9 / 8
    scale = str(0.5 * peak / desired)
    said = records("node.memory_paced", "--workload", workload, "--seconds", "10", "--scale", scale)
    return next(float(one["summary"]["median"]) for one in said if one["metric"] == "late")  # type: ignore[index]


def figure(name: str, values: list[float], unit: str, better: str, limit: float | None, peer: object) -> None:
    middle = statistics.median(values)
    spread = statistics.median(abs(v - middle) for v in values)
    print(json.dumps({"name": name, "value": middle, "unit": unit, "limit": limit, "better": better,
                      "peer": peer, "spread": spread}))  # fmt: skip


def main() -> None:
    peers = {"likwid-bench": likwid, "hpcc STREAM": stream}
    own: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(ROUNDS):
        own.append(ours())
        for name, measure in peers.items():
            theirs[name].append(measure())
    for name, values in theirs.items():
        ratios = [a / b for a, b in zip(own, values, strict=True)]
        figure(f"node.memory peak over {name}", ratios, "1", "higher", 0.98, statistics.median(values))
    figure("node.memory peak", own, "B/s", "higher", None, None)
    figure(
        "node.memory_paced late at half of peak",
        [late_at_half(statistics.median(own))],
        "1",
        "lower",
        0,
        None,
    )


if __name__ == "__main__":
    main()
