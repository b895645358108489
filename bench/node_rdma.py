#!/usr/bin/env python3
"""RDMA write bandwidth of `assay rdma` between two SoftRoCE devices, compared with perftest's ib_write_bw.

Both programs use the same message size, queue depth, iterations and devices, in turns, in one virtual machine of the
lab whose links have a planted rate. It is waived where that machine, or perftest, is missing. Both servers listen on
the loopback: Assay's would otherwise listen on its device's address alone.

    bench/node_rdma.py            boots the virtual machine
    bench/node_rdma.py --inside   runs on a machine that already has rxe0 and rxe1
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure, waived  # noqa: E402 - the path comes first

from assay.launch.engines import engines_folder  # noqa: E402 - the path comes first

NAME = "node.rdma.write"
NEEDED = {
    "qemu-system-x86_64": "qemu-system-x86",
    "rdma": "iproute2",
    "ib_write_bw": "perftest",
}  # their packages
PORT = 18515  # both programs' default
SIZE = 65536
# Some seconds at the planted rate: much longer than the burst that the rate limiter lets pass.
MESSAGES = 500
ROUNDS = 5
LIMIT_S = 60
BOOT_LIMIT_S = 400
# A quarter of the rate that an emulated processor reaches: the link limits both programs, on a busy machine, too.
RATE = "100mbit"


def is_listening() -> bool:
    """Whether a process listens at the port. Read from /proc, since a connection would take the client's place."""
    text = "".join(
        Path(f"/proc/net/{name}").read_text()
        for name in ("tcp", "tcp6")
        if Path(f"/proc/net/{name}").exists()
    )
    return re.search(rf":{PORT:04X} \S+ 0A ", text) is not None


def run_pair(server: list[str], client: list[str]) -> str:
    """Runs both sides of a measurement. Returns what the client prints."""
    waiting = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not is_listening():
            if waiting.poll() is not None:
                raise SystemExit(f"bench: no peer: {server[0]} ended: {waiting.communicate()[1].strip()}")
            if time.monotonic() > deadline:
                raise SystemExit(f"bench: no peer: {server[0]} is not at port {PORT} after {LIMIT_S} s")
            time.sleep(0.05)
        done = subprocess.run(client, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0:
            raise SystemExit(f"bench: {client[0]} failed: {done.stderr.strip()}")
        return done.stdout
    finally:
        with suppress(subprocess.TimeoutExpired):
            waiting.wait(LIMIT_S / 10)
        waiting.kill()
        waiting.wait()


def perftest_bandwidth() -> float:
    """B/s. It prints MB/sec of 2^20 bytes, with more digits than its Gb/sec."""
    command = ["ib_write_bw", "-F", "-s", str(SIZE), "-n", str(MESSAGES), "-d"]
    output = run_pair([*command, "rxe0"], [*command, "rxe1", "127.0.0.1"])
    row = next(line.split() for line in output.splitlines() if line.split()[:2] == [str(SIZE), str(MESSAGES)])
    return float(row[3]) * 2**20


def assay_bandwidth() -> float:
    command = [str(engines_folder() / "assay-probe"), "run", "node.rdma"]
    chosen = ["--sizes", str(SIZE), "--iterations", str(MESSAGES), "--repeats", "1", "--peer", "127.0.0.1"]
    output = run_pair(
        [*command, "--device", "rxe0", "--mute", "--listen", "127.0.0.1"],
        [*command, "--device", "rxe1", *chosen],
    )
    records = [json.loads(line) for line in output.splitlines()]
    return next(r["summary"]["median"] for r in records if r.get("metric") == "bandwidth")


def compare() -> None:
    ours, theirs = [], []
    perftest_bandwidth(), assay_bandwidth()  # the first of each loads what it needs over a slow file system
    for _ in range(ROUNDS):
        theirs.append(perftest_bandwidth())
        ours.append(assay_bandwidth())
    peer = {
        "name": "ib_write_bw, B/s (ours beside it)",
        "value": round(statistics.median(theirs)),
        "ours": round(statistics.median(ours)),
    }
    figure(NAME, [a / b for a, b in zip(ours, theirs, strict=True)], 0.98, "higher", peer=peer)


def main() -> int | None:
    if sys.argv[1:] == ["--inside"]:
        return compare()
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            waived(NAME, f"{program} is not installed (package {package})")
            return None
    boot = [
        str(ROOT / "assay"),
        "lab",
        "vm",
        "--rdma",
        "2",
        "--rdma-rate",
        RATE,
        "--timeout",
        f"{BOOT_LIMIT_S}s",
        "--",
    ]
    # The guest's exit code is that of the comparison inside.
    command = [*boot, sys.executable, __file__, "--inside"]
    return subprocess.run(command, timeout=BOOT_LIMIT_S + LIMIT_S, check=False).returncode


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
