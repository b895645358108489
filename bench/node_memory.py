#!/usr/bin/env python3
"""Peak memory bandwidth of `assay mem`, compared with likwid-bench and hpcc's STREAM on the same cores, in turns; and
late requests of the paced workload at half of the peak. Assay runs before and after both peers, because the speed of a
shared machine drifts.

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
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure, waived  # noqa: E402 - the path comes first

from assay.launch.engines import probe  # noqa: E402 - the path comes first
from assay.measure.workload import load_workload  # noqa: E402

ROUNDS = 3
LIMIT_S = 300
POLL_S = 0.2
LIKWID = ("load_avx512", "copy_mem_avx512")  # its fastest on all machines seen
STREAM = ("Copy", "Scale", "Add", "Triad")
HPL_N = 4500  # each of hpcc's processes has three vectors of N^2 / cores / 3 doubles: 162 MB in all
END_OF_STREAM = "End of StarSTREAM section."
# Bytes that the loop names over bytes that it moves, write-allocate included.
NAMED_SHARE = {"read": 1.0, "write": 1 / 2, "copy": 2 / 3, "triad": 3 / 4}
CORES = len(os.sched_getaffinity(0))


def records(*arguments: str) -> list[dict[str, object]]:
    lines = subprocess.run(
        [probe(), "run", *arguments], capture_output=True, timeout=LIMIT_S, check=True
    ).stdout
    return [record for line in lines.splitlines() if (record := json.loads(line))["kind"] == "measurement"]


class Bandwidth(NamedTuple):
    """B/s that the loops name."""

    median: float
    best_pass: float


def assay_bandwidth() -> Bandwidth:
    """That of the best kernel on all cores."""
    figures = []
    for record in records("node.memory", "--budget", "0.5"):
        params, summary = record["params"], record["summary"]
        assert isinstance(params, dict) and isinstance(summary, dict)
        share = NAMED_SHARE[params["operation"]] if params["line_reads"] == "counted" else 1.0
        if params["threads"] == CORES:
            figures.append((summary["median"] * share, summary["max"] * share))
    return Bandwidth(max(median for median, _ in figures), max(best for _, best in figures))


def likwid_bandwidth() -> float:
    best = 0.0
    for kernel in LIKWID:
        command = ["likwid-bench", "-t", kernel, "-w", f"N:384MB:{CORES}", "-s", "1"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout
        if match := re.search(r"MByte/s:\s+([\d.]+)", output):
            best = max(best, float(match[1]) * 1e6)
    return best


def stream_bandwidth() -> float:
    """hpcc's StarSTREAM, one process a core: the best of its four kernels, summed over the processes. Half of hpcc's
    other tests come after it, so that it is ended then."""
    with tempfile.TemporaryDirectory() as folder:
        example = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text()
        text = re.sub(r"^1000 +Ns", f"{HPL_N}         Ns", example, flags=re.M)
        text = re.sub(r"^2( +)Ps", r"1\1Ps", text, flags=re.M)
        text = re.sub(r"^2( +)Qs", rf"{CORES}\1Qs", text, flags=re.M)
        Path(folder, "hpccinf.txt").write_text(text)
        command = ["mpirun", "--oversubscribe", "-np", str(CORES), "hpcc"]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        output, said = Path(folder, "hpccoutf.txt"), Path(folder, "said")
        with said.open("w") as file:
            job = subprocess.Popen(command, cwd=folder, env=os.environ | allowed, stdout=file, stderr=file)
        try:
            deadline = time.monotonic() + LIMIT_S
            while not (output.exists() and END_OF_STREAM in output.read_text()):
                if job.poll() is not None:
                    raise SystemExit(f"bench: no peer: hpcc ended: {said.read_text()[-500:].strip()}")
                if time.monotonic() > deadline:
                    raise SystemExit(f"bench: no peer: hpcc wrote no StarSTREAM within {LIMIT_S} s")
                time.sleep(POLL_S)
            text = output.read_text()
        finally:
            job.terminate()  # mpirun ends its processes
            with suppress(subprocess.TimeoutExpired):
                job.wait(LIMIT_S / 10)
            job.kill()
            job.wait()
    section = text[text.index("Begin of StarSTREAM section.") : text.index(END_OF_STREAM)]
    figures = {name: float(value) for name, value in re.findall(r"Average (\w+) GB/s ([\d.]+)", section)}
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


class Peer(NamedTuple):
    figure: str
    program: str  # that it needs
    name: str
    measure: Callable[[], float]  # B/s
    ours: Callable[[Bandwidth], float]  # what is compared with it


PEERS = (
    Peer(
        "node.memory peak over likwid-bench",
        "likwid-bench",
        "likwid-bench",
        likwid_bandwidth,
        lambda b: b.median,
    ),
    Peer(
        "node.memory best pass over hpcc STREAM",
        "hpcc",
        "hpcc STREAM",
        stream_bandwidth,
        lambda b: b.best_pass,
    ),
)


def main() -> None:
    peers = [peer for peer in PEERS if shutil.which(peer.program)]
    ours, theirs = [assay_bandwidth()], []
    for _ in range(ROUNDS):
        theirs.append([peer.measure() for peer in peers])
        ours.append(assay_bandwidth())
    for peer in PEERS:
        if peer not in peers:
            waived(peer.figure, f"{peer.program} is not installed")
            continue
        ratios = []
        for before, after, rates in zip(ours, ours[1:], theirs, strict=False):
            rate = rates[peers.index(peer)]
            ratios.append((peer.ours(before) + peer.ours(after)) / 2 / rate)
            print(
                f"bench: ours {peer.ours(before) / 1e9:.1f}, {peer.name} {rate / 1e9:.1f}, "
                f"ours {peer.ours(after) / 1e9:.1f} GB/s",
                file=sys.stderr,
            )
        figure(peer.figure, ratios, 0.98, "higher", peer=peer.name)
    peaks = [bandwidth.median for bandwidth in ours]
    figure("node.memory peak", peaks, None, "higher", "B/s")
    late = [late_at_half_of_peak(statistics.median(peaks)) for _ in range(3)]
    figure("node.memory_paced late at half of peak", late, 0, "lower")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
