#!/usr/bin/env python3
"""Compares the transports TCP and UDP (without MPI) with iperf3 and with Open MPI, between two ranks on the loopback.

Each figure is the ratio of a transport's rate to iperf3's or to Open MPI's over TCP in the same turn, median over all
turns. The programs alternate, so that the load of other programs affects all alike. All use both directions at once.
Assay verifies every byte; iperf3 verifies none.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure  # noqa: E402
from peers import listening  # noqa: E402

from assay.launch.direct import Direct  # noqa: E402 - the path comes first
from assay.launch.engines import probe  # noqa: E402
from assay.launch.launchers import Launcher, find_launcher  # noqa: E402
from assay.launch.placement import HERE, Segment  # noqa: E402

TURNS = 3
SECONDS = 3
SIZE = 512 << 10  # bytes of a message, as in DAQPIPE
PORT = 5291
LIMIT_S = 60
LIMITS = {"tcp": 0.9, "udp": 0.5}  # the least ratio to iperf3's rate, by transport


def iperf3_rate() -> float:
    """B/s, sum of both directions."""
    with listening(["iperf3", "-s", "-1", "--forceflush", "-p", str(PORT), "-B", "127.0.0.1"]):
        command = ["iperf3", "-c", "127.0.0.1", "-p", str(PORT), "-t", str(SECONDS), "--bidir", "--json"]
        command += ["-l", str(SIZE)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        totals = json.loads(result.stdout)["end"]
        directions = ("sum_received", "sum_received_bidir_reverse")
        return float(sum(totals[name]["bits_per_second"] for name in directions)) / 8


def assay_rate(launcher: Launcher) -> float:
    """B/s, sum of both directions, verified."""
    engine = [str(probe(launcher.flavour)), "run", "network.all_to_all", "--sizes", str(SIZE)]
    engine += ["--budget", str(SECONDS), "--confidence", "0.001", "--nflight", "4", "--yield-us", "0"]
    argv = launcher.command(HERE, [Segment(["localhost"] * 2)], engine)
    result = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **launcher.environment(HERE)},
        check=False,
    )
    for line in result.stdout.splitlines():
        if line.startswith("{"):
            record = json.loads(line)
            if record.get("metric") == "bandwidth" and "summary" in record:
                return float(record["summary"]["median"])
    raise SystemExit(f"{launcher.name}: no bandwidth; {result.stderr.strip()}")


def main() -> None:
    openmpi = find_launcher("openmpi")
    tcp_only = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1"}  # no shared memory
    os.environ |= tcp_only
    measures: dict[str, Callable[[], float]] = {"iperf3": iperf3_rate}
    measures |= {name: lambda name=name: assay_rate(Direct(name, heartbeat_ms=2000)) for name in LIMITS}  # type: ignore[misc]
    if openmpi.unavailable() is None:
        measures["openmpi"] = lambda: assay_rate(openmpi)
    rates: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(TURNS):
        for name, measure in measures.items():
            rates[name].append(measure())
    for name, limit in LIMITS.items():
        for peer in measures:
            if peer in LIMITS:
                continue
            ratios = [rate / peer_rate for rate, peer_rate in zip(rates[name], rates[peer], strict=True)]
            figure(
                f"events.transport.{name}.to_{peer}",
                ratios,
                limit if peer == "iperf3" else None,
                "higher",
                peer={
                    f"{name}_bytes_per_s": round(statistics.median(rates[name])),
                    f"{peer}_bytes_per_s": round(statistics.median(rates[peer])),
                },
            )


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
