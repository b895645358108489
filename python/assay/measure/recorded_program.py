"""Runs a program under a recorder, with its own input and output."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

ENDING = (signal.SIGTERM, signal.SIGHUP)


def run_recorded(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    forwarded_signals: Sequence[signal.Signals] = ENDING,
) -> int:
    """Runs the recorder's command to its end. Returns its exit status, 128 + N after signal N. ``forwarded_signals``
    are sent on to the recorder. Raises FileNotFoundError when it cannot be started."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before the recorder was started

    def forward(number: int, _: object) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    # The terminal sends Ctrl-C to the program, too; the recording until then is kept.
    handlers = dict.fromkeys(forwarded_signals, forward) | {signal.SIGINT: lambda *_: None}
    with _handled(handlers):
        process = subprocess.Popen(command, env=environment)
        for number in early:
            process.send_signal(number)
        status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def _handled(handlers: Mapping[signal.Signals, Callable[[int, object], None]]) -> Iterator[None]:
    """Handles signals so for the block. A program that is started in it has the kernel's own handling, as ``exec``
    passes only on what is ignored."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
