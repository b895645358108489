#!/usr/bin/env python3
"""The highest UDP rate without loss over a veth pair: Assay and iperf3 with the same datagrams, cores and buffers.

The network is a lab of two hosts without rate limits. The offered rate is doubled until datagrams are lost or less
than half of it arrives, then found by bisection; later rounds begin at half of what the one before found. The result
is the highest rate at which every datagram arrived. Each trial takes a second. Assay verifies every byte that it
receives; iperf3 verifies none.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure, waived  # noqa: E402 - the path comes first
from peers import listening  # noqa: E402

from assay.lab import Lab, Rates  # noqa: E402 - the path comes first
from assay.launch.engines import probe  # noqa: E402

SIZES = (1472, 8900)  # bytes: a full Ethernet frame of 1500, and the jumbo frames of COBALT's eth-test
ROUNDS = 3
SECONDS = 1
STREAMS = 2
BUFFER = 16 << 20
LIMIT_S = 60
FIRST_RATE = 1e9 / 8  # B/s
BISECTIONS = 4
MIN_SHARE = 0.5  # of the offered rate has to arrive, or the sender cannot offer more
SYSCTLS = ("rmem_max", "wmem_max")


@contextmanager
def large_socket_buffers() -> Iterator[None]:
    """Raises the system's limit of socket buffers to BUFFER, because iperf3 cannot exceed it."""
    paths = [Path("/proc/sys/net/core", name) for name in SYSCTLS]
    before = [path.read_text() for path in paths]
    for path in paths:
        path.write_text(str(max(int(path.read_text()), BUFFER)))
    try:
        yield
    finally:
        for path, text in zip(paths, before, strict=True):
            path.write_text(text)


def iperf3(lab: Lab, size: int, offered: float) -> tuple[float, int]:
    """B/s received, and datagrams lost."""
    with listening(lab.enter("h1", ["iperf3", "-s", "-1", "--forceflush"])):
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
        result = subprocess.run(
            lab.enter("h0", command), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    report = json.loads(result.stdout)
    if "error" in report:
        raise SystemExit(f"iperf3: {report['error']}")
    total = report["end"]["sum"]
    return total["bits_per_second"] / 8 * (1 - total["lost_percent"] / 100), total["lost_packets"]


def assay(lab: Lab, size: int, offered: float) -> tuple[float, int]:
    """B/s received, and datagrams lost."""
    receiving = [str(probe()), "run", "node.udp_receive", "--host", lab.address("h1"), "--size", str(size)]
    sending = [str(probe()), "run", "node.udp_send", "--host", lab.address("h1"), "--size", str(size)]
    sending += ["--streams", str(STREAMS), "--rate", str(offered / STREAMS), "--budget", str(SECONDS)]
    with listening(lab.enter("h1", [*receiving, "--buffer", str(BUFFER)]), '"ready"') as receiver:
        subprocess.run(lab.enter("h0", sending), capture_output=True, timeout=LIMIT_S, check=False)
        out, _ = receiver.communicate(timeout=LIMIT_S)
    by_metric = {
        r["metric"]: r
        for r in map(json.loads, out.splitlines())
        if r["kind"] == "measurement" and r["params"].get("stream") == "all" and r.get("summary")
    }
    return by_metric["bandwidth"]["summary"]["median"], by_metric["loss"]["params"]["lost"]


def fastest(
    measure: Callable[[Lab, int, float], tuple[float, int]], lab: Lab, size: int, first: float
) -> float:
    """The highest rate that was received without loss, in B/s. ``first``: the rate that is offered first."""
    best, low, high, offered = 0.0, 0.0, 0.0, first  # high: 0 while unknown
    for _ in range(16):
        received, lost = measure(lab, size, offered)
        if lost == 0:
            best = max(best, received)
        if lost == 0 and received >= MIN_SHARE * offered:
            low = offered
        else:
            high = offered
        if high and high - low < high / 2**BISECTIONS:
            break
        offered = (low + high) / 2 if high else 2 * offered
    return best


def main() -> None:
    if os.geteuid() != 0:
        waived("node.udp ", "a lab needs root")
        return
    lab = Lab.up(2, 1, Rates(), name=f"bench-udp-{time.time_ns() % 100000}", mtu=9000)
    try:
        with large_socket_buffers():
            for size in SIZES:
                iperf3_rates, assay_rates = [], []
                for _ in range(ROUNDS):
                    for measure, rates in ((iperf3, iperf3_rates), (assay, assay_rates)):
                        first = max(FIRST_RATE, rates[-1] / 2) if rates else FIRST_RATE
                        rates.append(fastest(measure, lab, size, first))
                    gbits = [f"{rates[-1] * 8e-9:.2f} Gbit/s" for rates in (assay_rates, iperf3_rates)]
                    print(
                        f"bench: {size} B without loss: Assay {gbits[0]}, iperf3 {gbits[1]}", file=sys.stderr
                    )
                ratios = [a / b for a, b in zip(assay_rates, iperf3_rates, strict=True)]
                peer = {
                    "name": "iperf3, B/s (ours beside it)",
                    "value": round(statistics.median(iperf3_rates)),
                    "ours": round(statistics.median(assay_rates)),
                }
                name = f"node.udp without loss over iperf3, {size} B"
                figure(name, ratios, 2, "higher", peer=peer)
    finally:
        lab.down()


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
