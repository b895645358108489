#!/usr/bin/env python3
"""Peak memory bandwidth of `assay mem`, compared with likwid-bench and hpcc's STREAM on the same cores, in turns; and
late requests of the paced workload at half of the peak.

The best kernel of each program counts. Bytes are counted as STREAM and likwid count them: those that the loop names.
Assay also counts the cache lines that regular stores read (write-allocate); they are subtracted. likwid prints the mean
of a second, Assay the median of passes. STREAM prints its best pass of ten, which is compared with Assay's best pass.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure, waived  # noqa: E402 - the path comes first

from assay.launch.engines import probe  # noqa: E402 - the path comes first
from assay.measure.workload import load_workload  # noqa: E402

ROUNDS = {"likwid-bench": 6, "hpcc STREAM": 3}
LIMIT_S = 300
LIKWID = ("load_avx512", "copy_mem_avx512")  # its fastest on all machines seen
STREAM = ("Copy", "Scale", "Add", "Triad")
# hpcc's vectors are of N^2 / cores / 3 doubles: 96 MB in all. It solves a system of N equations besides: minutes.
HPL_N = 6000
# Bytes that the loop names over bytes that it moves, write-allocate included.
NAMED_SHARE = {"read": 1.0, "write": 1 / 2, "copy": 2 / 3, "triad": 3 / 4}
CORES = len(os.sched_getaffinity(0))


def records(*arguments: str) -> list[dict[str, object]]:
    lines = subprocess.run(
        [probe(), "run", *arguments], capture_output=True, timeout=LIMIT_S, check=True
    ).stdout
    return [record for line in lines.splitlines() if (record := json.loads(line))["kind"] == "measurement"]


def assay_bandwidth() -> tuple[float, float]:
    """B/s that the loops name, of the best kernel on all cores: median and best pass."""
    figures = []
    for record in records("node.memory", "--budget", "0.5"):
        params, summary = record["params"], record["summary"]
        assert isinstance(params, dict) and isinstance(summary, dict)
        share = NAMED_SHARE[params["operation"]] if params["line_reads"] == "counted" else 1.0
        if params["threads"] == CORES:
            figures.append((summary["median"] * share, summary["max"] * share))
    return max(median for median, _ in figures), max(best for _, best in figures)


def likwid_bandwidth() -> float:
    best = 0.0
    for kernel in LIKWID:
        command = ["likwid-bench", "-t", kernel, "-w", f"N:384MB:{CORES}", "-s", "1"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout
        if match := re.search(r"MByte/s:\s+([\d.]+)", output):
            best = max(best, float(match[1]) * 1e6)
    return best


def stream_bandwidth() -> float:
    """hpcc's StarSTREAM, one process a core: the best of its four kernels, summed over the processes."""
    with tempfile.TemporaryDirectory() as folder:
        example = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text()
        text = re.sub(r"^1000 +Ns", f"{HPL_N}         Ns", example, flags=re.M)
        text = re.sub(r"^2( +)Ps", r"1\1Ps", text, flags=re.M)
        text = re.sub(r"^2( +)Qs", rf"{CORES}\1Qs", text, flags=re.M)
        Path(folder, "hpccinf.txt").write_text(text)
        command = ["mpirun", "--oversubscribe", "-np", str(CORES), "hpcc"]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        subprocess.run(
            command, cwd=folder, env=os.environ | allowed, timeout=LIMIT_S, check=True, capture_output=True
        )
        output = Path(folder, "hpccoutf.txt").read_text()
    figures = {name: float(value) for name, value in re.findall(r"StarSTREAM_(\w+)=([\d.]+)", output)}
    return max(figures[name] * 1e9 * CORES for name in STREAM)


def late_at_half_of_peak(peak: float) -> float:
    """The share of late requests at half of the peak, B/s; at real-time priority where that is allowed, as the authors
    of the acceptance test (COBALT2) advise."""
    workload = load_workload("cobalt2")
    desired = 621e9 / 8
    scale = str(0.5 * peak / desired)
    arguments = ["--workload", workload, "--budget", "10", "--scale", scale]
    measurements = records("node.memory_paced", *arguments, *(["--realtime"] if os.geteuid() == 0 else []))
    return next(float(record["summary"]["median"]) for record in measurements if record["metric"] == "late")  # type: ignore[index]


def ratios_to_peer(name: str, peer: Callable[[], float], best: bool) -> list[float]:
    """Assay's bandwidth over the peer's, for each round. Assay runs before and after the peer, because the speed of a
    shared machine drifts. ``best``: compares best passes, else medians."""
    ratios = []
    before = assay_bandwidth()[best]
    for _ in range(ROUNDS[name]):
        theirs, after = peer(), assay_bandwidth()[best]
        ratios.append((before + after) / 2 / theirs)
        print(
            f"bench: ours {before / 1e9:.1f}, {name} {theirs / 1e9:.1f}, ours {after / 1e9:.1f} GB/s",
            file=sys.stderr,
        )
        before = after
    return ratios


# The figure, the program that it needs, its peer, and whether best passes are compared.
PEERS = (
    ("node.memory peak over likwid-bench", "likwid-bench", "likwid-bench", likwid_bandwidth, False),
    ("node.memory best pass over hpcc STREAM", "hpcc", "hpcc STREAM", stream_bandwidth, True),
)


def main() -> None:
    for name, program, peer, measure, best in PEERS:
        if shutil.which(program):
            figure(name, ratios_to_peer(peer, measure, best), 0.98, "higher", peer=peer)
        else:
            waived(name, f"{program} is not installed")
    peaks = [assay_bandwidth()[0] for _ in range(3)]
    figure("node.memory peak", peaks, None, "higher", "B/s")
    late = [late_at_half_of_peak(statistics.median(peaks)) for _ in range(3)]
    figure("node.memory_paced late at half of peak", late, 0, "lower")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
