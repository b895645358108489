"""Runs in a guest for ``test_guest.py``: prints facts of the guest as one JSON object, writes a file into the folder
that is its argument, and exits with 7. The test checks that output, file and exit code arrive outside."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

NODES = Path("/sys/devices/system/node")
# Bytes sent on v1, the guest's veth interface under the RDMA device rxe1: traffic of perftest passes it.
WIRE = Path("/sys/class/net/v1/statistics/tx_bytes")
MAP_SHARED_VALIDATE, MAP_SYNC = 0x03, 0x80000  # linux/mman.h
SIZE = 2 << 20  # a whole huge page, as a device-DAX mapping has to be


def map_sync(path: str, grow: bool) -> str:
    """Writes a text through a synchronous mapping of persistent memory, and reads it back."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    if grow:
        os.ftruncate(descriptor, SIZE)
    access = mmap.PROT_READ | mmap.PROT_WRITE
    with mmap.mmap(descriptor, SIZE, flags=MAP_SHARED_VALIDATE | MAP_SYNC, prot=access) as mapped:
        mapped[:5] = b"hello"
        return bytes(mapped[:5]).decode()


def perftest() -> str:
    """The client's output of ib_write_bw between the two devices."""
    common = ["ib_write_bw", "-x", "1", "-F", "-n", "50"]
    server = subprocess.Popen([*common, "-d", "rxe0"], stdout=subprocess.DEVNULL)
    client = [*common, "-d", "rxe1", "127.0.0.1"]
    for _ in range(50):
        done = subprocess.run(client, capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            break
        time.sleep(0.1)
    server.wait(timeout=60)
    return done.stdout


def main() -> int:
    before = int(WIRE.read_text())
    settings = ["build/bin/assay-probe", "run", "node.settings"]
    facts = {
        "cpus": [(NODES / f"node{k}/cpulist").read_text().strip() for k in (0, 1)],
        "distances": [(NODES / f"node{k}/distance").read_text().strip() for k in (0, 1)],
        "perftest": perftest(),
        "wire": int(WIRE.read_text()) - before,
        "dax": map_sync("/dev/dax0.0", grow=False),
        "fsdax": map_sync("/mnt/pmem/file", grow=True),
        "cwd": os.getcwd(),
        "path": os.environ["PATH"],
        "guest": os.environ["ASSAY_GUEST"],
        "probe": subprocess.run(settings, capture_output=True, text=True, timeout=60).stdout,
    }
    print(json.dumps(facts))
    Path(sys.argv[1], "came-back").write_text("from inside")
    print("to the error", file=sys.stderr)
    return 7


if __name__ == "__main__":
    sys.exit(main())
