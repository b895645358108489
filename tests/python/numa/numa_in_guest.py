"""Run in a guest with several nodes for ``test_real_nodes.py``: ``assay numa`` of each program, all in one process,
since an emulated processor takes long to start Python."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from pathlib import Path

from assay.cli import main


def numa(run: Path, *arguments: str) -> int:
    return main(["numa", "-o", str(run), *arguments])


def record(folder: Path, placed: str, *counted: str) -> dict[str, int]:
    """The exit code of each run in ``folder``. ``counted``: programs that count their accesses."""
    codes = {mode: numa(folder / mode, "--", placed, mode) for mode in ("serial", "parallel")}
    bind_memory({MEMORY_NODE})
    codes["far"] = numa(folder / "far", "--", placed, "parallel")
    bind_memory(set())
    for number, program in enumerate(counted):
        before, after = folder / f"before{number}", folder / f"after{number}"
        codes[before.name] = numa(before, "--", program, "serial")
        codes[after.name] = numa(after, "--apply", str(before), "--", program, "serial")
    return codes


def keep_pages_in_place() -> None:
    """Ends the kernel's automatic balancing, which moves and unmaps pages of a program that takes seconds, as on a
    busy emulated machine: the tests are of pages as they were touched first."""
    balancing = Path("/proc/sys/kernel/numa_balancing")
    if balancing.exists():
        balancing.write_text("0")


MEMORY_NODE = 4  # the node without processors
BIND, DEFAULT = 2, 0  # linux/mempolicy.h
SYS_SET_MEMPOLICY = 238


def bind_memory(nodes: set[int]) -> None:
    """Of this process and all that it starts from now on; to no node: the default policy."""
    mask = ctypes.c_ulong(sum(1 << node for node in nodes))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SYS_SET_MEMPOLICY, BIND if nodes else DEFAULT, ctypes.byref(mask), 64) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


SYS_PERF_EVENT_OPEN = 298  # on x86-64
SOFTWARE, PAGE_FAULTS = 1, 2  # linux/perf_event.h
ATTRIBUTES_BYTES = 64


def keep_page_faults_counted() -> int:
    """Opens a page-fault event, and returns its descriptor, for as long as this process runs.

    The kernel patches its page-fault handler when the first such event is opened and when the last is closed. QEMU
    7.2 may go on running the breakpoint of that patch on another processor, which then stands still for ever
    ("soft lockup" in ``do_user_addr_fault``). With this event it is patched once, while nothing else runs.
    """
    attributes = struct.pack("IIQ", SOFTWARE, ATTRIBUTES_BYTES, PAGE_FAULTS).ljust(ATTRIBUTES_BYTES, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    event: int = libc.syscall(SYS_PERF_EVENT_OPEN, attributes, 0, -1, -1, 0)
    if event < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return event


if __name__ == "__main__":
    keep_page_faults_counted()
    keep_pages_in_place()
    folder = Path(sys.argv[1])
    (folder / "codes").write_text(json.dumps(record(folder, *sys.argv[2:])))
