"""Shows what a process that does not end is waiting for: the stacks of its threads, and the TCP connections."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

LIMIT_S = 30


def stacks_of(pid: int) -> str:
    """The state, system call and kernel wait channel of every thread; also their stacks if gdb is installed."""
    lines = [f"---- process {pid}: {_arguments(pid)}"]
    with suppress(OSError):
        for thread in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
            folder = Path(f"/proc/{pid}/task/{thread}")
            state = next(
                (line for line in _text(folder / "status").splitlines() if line.startswith("State")), ""
            )
            waits = f"wchan {_text(folder / 'wchan')}, syscall {_text(folder / 'syscall')}"
            lines.append(f"thread {thread} {_text(folder / 'comm')}: {state}, {waits}")
            lines.append(_text(folder / "stack"))
    lines.append(_output(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace 30"]))
    return "\n".join(line for line in lines if line)


def connections() -> str:
    """All TCP connections of this machine with the processes that have them."""
    return "---- connections\n" + _output(["ss", "-tnp"])


def _arguments(pid: int) -> str:
    return _text(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        return f"({error.strerror})"


def _output(command: list[str]) -> str:
    if not shutil.which(command[0]):
        return f"({command[0]} is not installed)"
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"({command[0]} did not end)"
    noise = ("[New LWP", "warning:", "Using host libthread_db", "[Thread debugging")
    return "\n".join(line for line in result.stdout.splitlines() if line and not line.startswith(noise))
