"""Runs a program under a recorder, with its own input and output."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ENDING = (signal.SIGTERM, signal.SIGHUP)


def run_recorded(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    forwarded_signals: Sequence[signal.Signals] = ENDING,
) -> int:
    """Runs the recorder's command to its end. Returns its exit status, 128 + N after signal N. ``forwarded_signals``
    are sent on to the recorder. Raises FileNotFoundError when it cannot be started."""
    process = subprocess.Popen(command, env=environment)
    with _interrupts_reach_program(process, forwarded_signals):
        status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def _interrupts_reach_program(
    process: subprocess.Popen[bytes], forwarded_signals: Sequence[signal.Signals]
) -> Iterator[None]:
    """Ignores Ctrl-C here, because the terminal sends it to the program, too; the recording until then is kept."""
    before = {
        number: signal.signal(number, lambda number, _: process.send_signal(number))
        for number in forwarded_signals
    }
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
