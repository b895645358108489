"""The processes of this machine, as /proc shows them."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from assay.errors import UserError

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD (linux/sched.h)
_INITIAL_NAMESPACE = 0xEFFFFFFC  # the inode of the first PID namespace (PROC_PID_INIT_INO of the kernel)


@dataclass(frozen=True)
class Process:
    """Times are in ticks."""

    parent: int
    started: int  # since the machine's start; distinguishes processes with the same, reused id
    ticks: int  # of processor time, user and system
    name: str = ""
    user: int = 0  # of ``ticks``, in user mode
    waited_for: int = 0  # in user mode, of descendants that have ended and were waited for


def visible_processes() -> dict[int, Process]:
    """All processes except kernel threads, by process id."""
    processes = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                head, _, tail = (entry / "stat").read_text(errors="replace").rpartition(")")
            except OSError:
                continue  # it has ended
            fields = tail.split()
            if not int(fields[6]) & _KERNEL_THREAD:
                user, system, waited_for = (int(text) for text in fields[11:14])
                processes[int(entry.name)] = Process(
                    int(fields[1]), int(fields[19]), user + system, head.partition("(")[2], user, waited_for
                )
    return processes


def hides_processes() -> bool:
    """Whether some processes of this machine are not in /proc: in a container, or with the mount option hidepid."""
    try:
        namespace = (PROC / "self/ns/pid").stat().st_ino
        (PROC / "1/stat").read_text(errors="replace")
    except OSError:
        return True
    return namespace != _INITIAL_NAMESPACE


def ticks_of_all() -> list[int]:
    """Ticks of all processors since the machine's start: in user mode, the same at low priority, in system mode, idle,
    and so on (/proc/stat). Empty if unknown."""
    try:
        return [int(field) for field in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return []


def start_thread(thread: threading.Thread) -> None:
    """Raises UserError where no more threads can be started."""
    try:
        thread.start()
    except RuntimeError:
        raise UserError(
            "cannot start a thread: this user, job or container has as many as it may",
            "raise the limit (ulimit -u, or pids.max of the control group)",
        ) from None
