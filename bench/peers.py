"""Starts the program that a benchmark's client connects to. The wait for it has a limit, and its end a message."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

READY_S = 30.0
END_S = 5.0


@contextmanager
def listening(
    command: Sequence[str], ready: str = "listening", limit_s: float = READY_S
) -> Iterator[subprocess.Popen[str]]:
    """A server that has printed ``ready``; it is ended afterwards. Raises SystemExit if it does not get there."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    too_long = threading.Timer(limit_s, process.kill)
    too_long.start()
    try:
        if not any(ready in line for line in process.stdout):
            process.wait()
            why = f"ended with {process.returncode}" if too_long.is_alive() else f"took over {limit_s:.0f} s"
            raise SystemExit(f"bench: no peer: '{' '.join(command)}' {why} before it printed '{ready}'")
        too_long.cancel()
        yield process
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    finally:
        too_long.cancel()
        process.kill()
        process.wait()
