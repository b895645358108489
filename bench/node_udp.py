#!/usr/bin/env python3
"""The fastest UDP without loss over a veth pair, against iperf3: the same datagrams, cores, buffers and search.

A lab of two hosts without rate limits. The offered rate is doubled until something is lost or half of it cannot be
sent, then halved in between; what counts is the highest rate that was received whole. Two seconds a try. Assay
compares every byte that it receives, as it does by default; iperf3 looks at none.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from assay.lab import Lab, Rates  # noqa: E402 - the path comes first
from assay.launch.engines import probe  # noqa: E402

SIZES = (1472, 8900)  # what fills a plain Ethernet frame, and COBALT's jumbo frame
ROUNDS = 3
SECONDS = 2
STREAMS = 2
BUFFER = 16 << 20
LIMIT_S = 60
START = 1e9 / 8
BISECTIONS = 4
REACHED = 0.5  # of the offered rate; below, more cannot be offered
SYSCTLS = ("rmem_max", "wmem_max")


@contextmanager
def room_for_buffers() -> Iterator[None]:
    """iperf3 asks for its buffers as any user would; the system has to allow them."""
    paths = [Path("/proc/sys/net/core", name) for name in SYSCTLS]
    before = [path.read_text() for path in paths]
    for path in paths:
        path.write_text(str(max(int(path.read_text()), BUFFER)))
    try:
        yield
    finally:
        for path, text in zip(paths, before, strict=True):
            path.write_text(text)


@contextmanager
def server(lab: Lab, command: list[str], ready: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        lab.enter("h1", command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if ready in line:
                break
        yield process
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


def iperf3(lab: Lab, size: int, offered: float) -> tuple[float, int]:
    """B/s received, and datagrams lost."""
    with server(lab, ["iperf3", "-s", "-1", "--forceflush"], "listening"):
        command = [
            "iperf3",
            "-c",
            lab.address("h1"),
            "-u",
            "-l",
            str(size),
            "-t",
            str(SECONDS),
            "-P",
            str(STREAMS),
        ]
        command += ["-b", str(round(offered * 8 / STREAMS)), "-w", str(BUFFER), "--json"]
        done = subprocess.run(
            lab.enter("h0", command), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    report = json.loads(done.stdout)
    if "error" in report:
        raise SystemExit(f"iperf3: {report['error']}")
    got = report["end"]["sum"]
    return got["bits_per_second"] / 8 * (1 - got["lost_percent"] / 100), got["lost_packets"]


def assay(lab: Lab, size: int, offered: float) -> tuple[float, int]:
    receiving = [str(probe()), "run", "node.udp_receive", "--host", lab.address("h1"), "--size", str(size)]
    sending = [str(probe()), "run", "node.udp_send", "--host", lab.address("h1"), "--size", str(size)]
    sending += ["--streams", str(STREAMS), "--rate", str(offered / STREAMS), "--budget", str(SECONDS)]
    with server(lab, [*receiving, "--buffer", str(BUFFER)], '"ready"') as receiver:
        subprocess.run(lab.enter("h0", sending), capture_output=True, timeout=LIMIT_S, check=False)
        out, _ = receiver.communicate(timeout=LIMIT_S)
    got = {
        r["metric"]: r
        for r in map(json.loads, out.splitlines())
        if r["kind"] == "measurement" and r["params"].get("of") == "all streams" and r.get("summary")
    }
    return got["bandwidth"]["summary"]["median"], got["loss"]["params"]["lost"]


def fastest(measure: Callable[[Lab, int, float], tuple[float, int]], lab: Lab, size: int) -> float:
    """The highest rate that was received without loss, in B/s."""
    best, low, high, offered = 0.0, 0.0, 0.0, START
    for _ in range(16):
        received, lost = measure(lab, size, offered)
        if lost == 0:
            best = max(best, received)
        if lost == 0 and received >= REACHED * offered:
            low = offered
        else:
            high = offered
        if high and high - low < high / 2**BISECTIONS:
            break
        offered = (low + high) / 2 if high else 2 * offered
    return best


def main() -> None:
    lab = Lab.up(2, 1, Rates(), name=f"bench-udp-{time.time_ns() % 100000}", mtu=9000)
    try:
        with room_for_buffers():
            for size in SIZES:
                theirs, ours = [], []
                for _ in range(ROUNDS):
                    theirs.append(fastest(iperf3, lab, size))
                    ours.append(fastest(assay, lab, size))
                    shown = " ".join(f"{rate * 8e-9:.2f}" for rate in (ours[-1], theirs[-1]))
                    print(f"bench: {size} B, ours and iperf3: {shown} Gbit/s without loss", file=sys.stderr)
                ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
                middle = statistics.median(ratios)
                figure = {
                    "name": f"node.udp without loss over iperf3, {size} B",
                    "value": round(middle, 3),
                    "unit": "1",
                    "limit": 2,
                    "better": "higher",
                    "peer": {"name": "iperf3, B/s (ours beside it)", "value": round(statistics.median(theirs)),
                             "ours": round(statistics.median(ours))},
                    "spread": round(statistics.median(abs(r - middle) for r in ratios), 3),
                }  # fmt: skip
                print(json.dumps(figure), flush=True)
    finally:
        lab.down()


if __name__ == "__main__":
    main()
