"""The nodes of a lab: processes that hold namespaces open, and how to find and end them.

A node is ``node.sh`` in network, host name, mount and IPC namespaces of its own (without the last, MPIs
go round the network through shared memory). Nothing is pinned by a mount or a name: when a lab's last
process ends, the kernel takes its namespaces, interfaces and mounts with it. To undo a lab is therefore
to end its processes, and those are known by a mark in the namespace itself (see ``node.sh``), whatever
became of the state folder or of the nodes' holders.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.errors import UserError
from assay.lab import tools

_START_LIMIT_S = 30.0
_END_LIMIT_S = 10.0
_MARK = "assay-lab."


@contextlib.contextmanager
def nodes(lab: str, names: Sequence[str], state: Path) -> Iterator[dict[str, int]]:
    """Start the nodes; the block gets the process that holds each open, and makes a lab of them.

    They outlive the block if ``lab.json`` stands in ``state`` at its end, else they end by themselves,
    also when this process is killed: what they wait for is the end of a pipe.
    Raises UserError when a node cannot be made, or not within 30 s.
    """
    gate, release = os.pipe()
    outputs: dict[str, int] = {}
    try:
        for name in names:
            outputs[name] = _start(lab, name, state, gate)
        deadline = time.monotonic() + _START_LIMIT_S
        for name, output in outputs.items():
            _await_ready(name, output, deadline)
        yield {name: int((state / "nodes" / name / "pid").read_text()) for name in names}
    finally:
        for descriptor in (gate, release, *outputs.values()):
            os.close(descriptor)


def _start(lab: str, name: str, state: Path, gate: int) -> int:
    """Start one node; gives the descriptor to read its words from."""
    (state / "nodes" / name).mkdir()
    unshare = [tools.find("unshare", "util-linux"), "-n", "-u", "-m", "-i", "--propagation", "private"]
    # setsid --fork: out of reach of this terminal's Ctrl-C, and nobody's child to be waited for.
    argv = [tools.find("setsid", "util-linux"), "--fork", *unshare]
    argv += ["sh", str(Path(__file__).with_name("node.sh")), lab, name, str(state)]
    output, node_end = os.pipe()
    try:
        subprocess.run(
            argv, stdin=gate, stdout=node_end, stderr=node_end, cwd="/", timeout=_START_LIMIT_S, check=True
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
            raise UserError(f"node '{name}' could not be made: {reason}", tools.KERNEL_HINT)
        output += chunk


def members(lab: str | None = None) -> dict[int, tuple[str, str]]:
    """Every process inside a lab (or in this one): its id, with the lab's and the node's name."""
    outside = os.readlink("/proc/self/ns/uts")
    marks: dict[str, tuple[str, str] | None] = {outside: None}
    processes = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has just ended, or is not ours to look at
            namespace = os.readlink(f"/proc/{entry.name}/ns/uts")
            if namespace not in marks:
                marks[namespace] = _mark(entry.name)
            mark = marks[namespace]
            if mark is not None and lab in (None, mark[0]):
                processes[int(entry.name)] = mark
    return processes


def _mark(pid: str) -> tuple[str, str] | None:
    """The lab and the node that this process' host name namespace belongs to, if any."""
    command = [tools.find("nsenter", "util-linux"), "-t", pid, "-u", "cat"]
    command += ["/proc/sys/kernel/domainname", "/proc/sys/kernel/hostname"]
    names = subprocess.run(command, capture_output=True, text=True, timeout=tools.TIME_LIMIT_S).stdout.split()
    if len(names) != 2 or not names[0].startswith(_MARK):
        return None
    return names[0].removeprefix(_MARK), names[1]


def refuse_inside() -> None:
    """Raises UserError within a lab: from there, it would end itself half-way."""
    if Path("/proc/sys/kernel/domainname").read_text().startswith(_MARK):
        raise UserError("this is inside a lab", "make and end labs from outside, on the machine itself")


def end(lab: str) -> int:
    """Kill whatever runs in the lab; gives how many processes that were.

    Repeats until none is left, as one may start another meanwhile. Raises UserError if some resist for 10 s.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _END_LIMIT_S
    while remaining := members(lab):
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
