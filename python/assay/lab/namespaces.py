"""The nodes of a lab: processes that hold namespaces open, and how to find and end them.

A node is ``node.sh`` in separate network, host name, mount and IPC namespaces (with a shared IPC namespace, MPIs
bypass the network through shared memory). No mount or name pins a namespace: when the last process of a lab ends,
the kernel removes its namespaces, interfaces and mounts. Removing a lab therefore means ending its processes. A
mark in the host name namespace identifies them (see ``node.sh``), also without the state folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay.errors import UserError
from assay.lab import tools

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUTS = 0x04000000
_START_LIMIT_S = 120.0  # against hangs, as the other limits: a busy machine takes seconds
_END_LIMIT_S = 60.0
MARK_PREFIX = "assay-lab."


@contextlib.contextmanager
def start_nodes(lab: str, names: Sequence[str], state: Path) -> Iterator[dict[str, int]]:
    """Starts the nodes and yields, by name, the process that holds each node's namespaces open. ``state``: the lab's
    folder.

    The nodes wait for the end of a pipe that this process holds open during the block. Then they go on if ``state`` has
    a ``lab.json``; otherwise they end, also if this process is killed. Raises UserError if a node cannot be created
    within 120 s.
    """
    lifetime_read, lifetime_write = os.pipe()
    outputs: dict[str, int] = {}
    try:
        for name in names:
            outputs[name] = _start(lab, name, state, lifetime_read)
        deadline = time.monotonic() + _START_LIMIT_S
        for name, output in outputs.items():
            _await_ready(name, output, deadline)
        yield {name: int((state / "nodes" / name / "pid").read_text()) for name in names}
    finally:
        for descriptor in (lifetime_read, lifetime_write, *outputs.values()):
            os.close(descriptor)


def _start(lab: str, name: str, state: Path, lifetime_read: int) -> int:
    """Starts one node; returns the descriptor to read its output from."""
    (state / "nodes" / name).mkdir()
    unshare = [tools.find("unshare", "util-linux"), "-n", "-u", "-m", "-i", "--propagation", "private"]
    # setsid --fork: this terminal's Ctrl-C does not reach it, and no parent has to wait for it.
    argv = [tools.find("setsid", "util-linux"), "--fork", *unshare]
    argv += ["sh", str(Path(__file__).with_name("node.sh")), lab, name, str(state)]
    output, node_end = os.pipe()
    try:
        subprocess.run(
            argv,
            stdin=lifetime_read,
            stdout=node_end,
            stderr=node_end,
            cwd="/",
            timeout=_START_LIMIT_S,
            check=True,
        )
    except BaseException:
        os.close(output)
        raise
    finally:
        os.close(node_end)
    return output


def _await_ready(name: str, descriptor: int, deadline: float) -> None:
    output = b""
    while b"ready\n" not in output:
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise UserError(
                f"node '{name}' was not ready within {_START_LIMIT_S:.0f} s", "is the machine overloaded?"
            )
        chunk = os.read(descriptor, 4096)
        if not chunk:
            reason = output.decode(errors="replace").strip().replace("\n", " / ")
            raise UserError(f"node '{name}' could not be made: {reason}", tools.KERNEL_FIX)
        output += chunk


def find_processes(lab: str | None = None) -> dict[int, tuple[str, str]]:
    """Returns every process inside any lab, or inside ``lab``: process id to names of lab and node."""
    outside = os.readlink("/proc/self/ns/uts")
    marks: dict[str, tuple[str, str] | None] = {outside: None}
    processes = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # the process has just ended, or must not be inspected
            namespace = os.readlink(f"/proc/{entry.name}/ns/uts")
            if namespace not in marks:
                marks[namespace] = _read_mark(entry.name)
            mark = marks[namespace]
            if mark is not None and lab in (None, mark[0]):
                processes[int(entry.name)] = mark
    return processes


def _read_mark(pid: str) -> tuple[str, str] | None:
    """Returns the lab and the node of a process's host name namespace, if any. Raises OSError if the process has ended
    or must not be inspected.

    A thread enters the namespace: a process that did would be found there by others, as a process of that lab.
    """
    with open(f"/proc/{pid}/ns/uts") as namespace, ThreadPoolExecutor(1) as thread:
        domain, host = thread.submit(_names_in, namespace.fileno()).result()
    if not domain.startswith(MARK_PREFIX):
        return None
    return domain.removeprefix(MARK_PREFIX), host


def _names_in(namespace: int) -> tuple[str, str]:
    """Moves the calling thread into a host name namespace; returns its domain and host name."""
    if _libc.setns(namespace, _CLONE_NEWUTS) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    kernel = Path("/proc/sys/kernel")
    return (kernel / "domainname").read_text().strip(), (kernel / "hostname").read_text().strip()


def refuse_inside() -> None:
    """Raises UserError inside a lab, where ending the lab would end this process too."""
    if Path("/proc/sys/kernel/domainname").read_text().startswith(MARK_PREFIX):
        raise UserError("this is inside a lab", "create and end labs on the machine itself")


def end_processes(lab: str) -> int:
    """Kills every process in the lab; returns how many.

    Repeats until none is left, since a process may start another. Raises UserError after 60 s.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _END_LIMIT_S
    while remaining := find_processes(lab):
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= remaining.keys()
        if time.monotonic() > deadline:
            raise UserError(
                f"processes of lab '{lab}' do not end: {', '.join(map(str, sorted(remaining)))}",
                "the kernel holds them; try 'assay lab down' again later",
            )
        time.sleep(0.01)
    return len(killed)
