#!/usr/bin/env python3
"""The rate at which a rank reads data that the accelerator holds in another node's memory, relative to the link's rate.

The rank on h1 writes a file and then computes without calling MPI; the rank on h0 reads the file, in the order of
writing, in transfers of 32 KiB or 1 MiB. The lab's link has 400 Mbit/s. The reference is the TCP rate of iperf3 over
the same link in the same direction, measured just before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure, waived  # noqa: E402 - the path comes first
from peers import listening  # noqa: E402

from assay.lab import Lab, Rates  # noqa: E402 - the path comes first
from assay.launch.accelerator import environment  # noqa: E402
from assay.launch.launchers import find_launcher  # noqa: E402
from assay.launch.placement import Segment, lab_site  # noqa: E402

MPIS = ("openmpi", "mpich-wheel")  # those whose launchers start on lab hosts
TRANSFERS = {"32 KiB": 32 << 10, "1 MiB": 1 << 20}
TOTAL = 96 << 20  # bytes of the file
RATE = 400e6 / 8  # B/s
ROUNDS = 3
PEER = "iperf3 TCP over the same link"
LIMIT_S = 120


def figure_name(mpi: str, transfer: str) -> str:
    return f"io.{mpi} {transfer} read of another node's data over the wire"


def iperf_rate(lab: Lab) -> float:
    """B/s of a TCP stream from h1 to h0."""
    with listening(lab.enter("h1", ["iperf3", "-s", "-1", "--forceflush"])):
        command = lab.enter("h0", ["iperf3", "-c", lab.address("h1"), "-R", "-t", "3", "-O", "1", "-J"])
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
        return float(json.loads(result.stdout)["end"]["sum_received"]["bits_per_second"]) / 8


def read_rate(lab: Lab, mpi: str, transfer: int) -> float:
    """B/s at which h0 reads what h1 wrote."""
    launcher, site = find_launcher(mpi), lab_site(lab)
    with tempfile.TemporaryDirectory(prefix="bench-io-", dir=ROOT / "build") as folder:
        # The data stay in h1's memory for 60 s, so that h0 cannot read them from the file.
        env = environment(launcher.flavour, required=True) | {"ASSAY_IO_DRAIN_LAG": "60000"}
        program = [
            str(ROOT / f"build/bin/bench-reader-{launcher.flavour}"),
            f"{folder}/file",
            str(transfer),
            str(TOTAL),
        ]
        command = launcher.command(site, [Segment(["h0", "h1"], env)], program)
        result = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S,
            env={**os.environ, **launcher.environment(site)},
        )  # fmt: skip
        return float(result.stdout)


def main() -> None:
    if os.geteuid() != 0:
        for mpi in MPIS:
            for name in TRANSFERS:
                waived(figure_name(mpi, name), "a lab needs root")
        return
    lab = Lab.up(2, rates=Rates(up=RATE, down=RATE), name=f"bench-wire-{os.getpid()}")
    try:
        for mpi in MPIS:
            for name, transfer in TRANSFERS.items():
                ratios = []
                for _ in range(ROUNDS):
                    link_rate = iperf_rate(lab)
                    ratios.append(read_rate(lab, mpi, transfer) / link_rate)
                figure(figure_name(mpi, name), ratios, 0.8, "higher", peer=PEER)
    finally:
        lab.down()


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
