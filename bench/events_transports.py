#!/usr/bin/env python3
"""What TCP and UDP without MPI carry between two ranks on the loopback, against iperf3 and against Open MPI.

In turns, so that another program's load meets all of them; what counts is the median of the turns. Assay verifies
every byte and loads both directions at once; iperf3 (--bidir) looks at none. The limit: what a transport's rate is to
iperf3's, and to Open MPI's over TCP, in the same turns.
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

from figures import figure  # noqa: E402

from assay.launch.direct import Direct  # noqa: E402 - the path comes first
from assay.launch.engines import probe  # noqa: E402
from assay.launch.launchers import Launcher, find_launcher  # noqa: E402
from assay.launch.placement import HERE, Segment  # noqa: E402

TURNS = 5
SECONDS = 3
SIZE = 512 << 10  # of DAQPIPE's messages
PORT = 5291
LIMIT_S = 60
LIMITS = {"tcp": 0.9, "udp": 0.5}  # of iperf3


def iperf3() -> float:
    """B/s of both directions."""
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "--forceflush", "-p", str(PORT), "-B", "127.0.0.1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if "listening" in line:
                break
        command = ["iperf3", "-c", "127.0.0.1", "-p", str(PORT), "-t", str(SECONDS), "--bidir", "--json"]
        command += ["-l", str(SIZE)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        end = json.loads(done.stdout)["end"]
        both = ("sum_received", "sum_received_bidir_reverse")
        return float(sum(end[name]["bits_per_second"] for name in both)) / 8
    finally:
        server.terminate()
        server.wait(LIMIT_S)


def assay(launcher: Launcher) -> float:
    """B/s of both directions, verified."""
    engine = [str(probe(launcher.flavour)), "run", "network.all_to_all", "--sizes", str(SIZE)]
    engine += ["--budget", str(SECONDS), "--confidence", "0.001", "--nflight", "4", "--yield-us", "0"]
    argv = launcher.command(HERE, [Segment(["localhost"] * 2)], engine)
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **launcher.environment(HERE)},
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            record = json.loads(line)
            if record.get("metric") == "bandwidth" and "summary" in record:
                return float(record["summary"]["median"])
    raise SystemExit(f"{launcher.name}: no bandwidth; {done.stderr.strip()}")


def main() -> None:
    openmpi = find_launcher("openmpi")
    tcp_only = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1"}  # not its shared memory
    os.environ |= tcp_only
    measures: dict[str, Callable[[], float]] = {"iperf3": iperf3}
    measures |= {name: lambda name=name: assay(Direct(name, heartbeat_ms=2000)) for name in LIMITS}  # type: ignore[misc]
    if openmpi.unavailable() is None:
        measures["openmpi"] = lambda: assay(openmpi)
    rates: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(TURNS):
        for name, measure in measures.items():
            rates[name].append(measure())
    for name, limit in LIMITS.items():
        for peer in measures:
            if peer in LIMITS:
                continue
            shares = [own / other for own, other in zip(rates[name], rates[peer], strict=True)]
            figure(
                f"events.transport.{name}.to_{peer}",
                shares,
                limit if peer == "iperf3" else None,
                "higher",
                peer={
                    f"{name}_bytes_per_s": round(statistics.median(rates[name])),
                    f"{peer}_bytes_per_s": round(statistics.median(rates[peer])),
                },
            )


if __name__ == "__main__":
    main()
