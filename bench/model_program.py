#!/usr/bin/env python3
"""How well a simulation predicts the run time of a real program (programs/halo.c: halo exchange, all-to-all,
computing): measured on hosts of a lab, and simulated on the platform that `assay saturate` and `assay model` made of
the same lab. The lab is lossless, since SimGrid knows no lost packets; --lossy shows what they cost. Needs root.

    model.program.error   of the simulated time of an iteration, relative to the measured one
    model.program.communication_error   the same where computing takes no time

The ranks share this machine's processors while they compute, so those of the platform have that share of its speed
(--compute). Times are medians.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from figures import exit_code_of, figure, waived  # noqa: E402

from assay import lab  # noqa: E402
from assay.lab.traffic import parse_rate  # noqa: E402
from assay.launch.launchers import OpenMpi  # noqa: E402
from assay.launch.placement import Segment, lab_site  # noqa: E402
from assay.launch.simulator import unavailable  # noqa: E402

HOSTS, CABINETS, RATE, CABINET_RATE = 4, 2, "100mbit", "150mbit"
ITERATIONS, SWEEPS, RUNS = 40, 60, 3
LIMIT_S = 600  # a saturation of the lab takes five minutes
SOURCE = ROOT / "bench/programs/halo.c"


def assay(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "assay", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"assay {arguments[0]}: exit code {done.returncode}: {done.stderr[-400:]}")
    return done.stdout


def seconds(output: str) -> float:
    match = re.search(r"^seconds ([\d.]+)", output, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"no time in: {output[-400:]}")
    return float(match[1])


def measured(cluster: lab.Lab, program: Path, sweeps: int) -> float:
    launcher, site = OpenMpi(), lab_site(cluster)
    arguments = [str(program), str(ITERATIONS), str(sweeps)]
    command = launcher.command(site, [Segment(cluster.hosts)], arguments)
    environment = {**os.environ, **launcher.environment(site)}
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        for _ in range(RUNS)
    ]
    return statistics.median(seconds(run.stdout) for run in runs)


def simulated(platform: Path, sweeps: int) -> float:
    share = min(1.0, (os.cpu_count() or 1) / HOSTS)
    runs = [
        assay("simulate", platform, "--compute", share, "--", SOURCE, ITERATIONS, sweeps) for _ in range(RUNS)
    ]
    return statistics.median(map(seconds, runs))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lossy", action="store_true", help="a lab whose short queues drop packets")
    args = parser.parse_args()
    if os.geteuid() != 0:
        return waived("model.program", "a lab needs root")
    if reason := OpenMpi().unavailable() or unavailable():
        return waived("model.program", reason)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:  # a host of the lab has a /tmp of its own
        program, platform = Path(folder) / "halo", Path(folder) / "platform.xml"
        subprocess.run(["mpicc.openmpi", "-O2", SOURCE, "-o", program], check=True, timeout=LIMIT_S)
        rate = parse_rate(RATE)
        rates = lab.Rates(rate, rate, None, parse_rate(CABINET_RATE), lossless=not args.lossy)
        cluster = lab.Lab.up(HOSTS, CABINETS, rates, name=f"program-{os.getpid()}")
        try:
            run = Path(folder) / "saturate"
            assay("saturate", "--lab", cluster.name, "--launcher", "openmpi", "-o", run)
            assay("model", run, "--platform", platform)
            for name, sweeps in (("error", SWEEPS), ("communication_error", 0)):
                real, predicted = measured(cluster, program, sweeps), simulated(platform, sweeps)
                print(
                    f"{name}: measured {real * 1e3:.1f} ms, simulated {predicted * 1e3:.1f} ms",
                    file=sys.stderr,
                )
                figure(f"model.program.{name}", [abs(predicted / real - 1)], 0.1, "lower")
        finally:
            cluster.down()
    return None


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
