"""Runs a user's program, under a recorder or the accelerator, with its own input and output."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

# Batch systems end jobs by the first ones, and warn of the end by the others.
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_to_end(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> int:
    """Runs a command to its end. Returns its exit status, 128 + N after signal N. Signals to Assay are sent on to it;
    those that Assay was started to ignore (nohup) it ignores too. Raises OSError when it cannot be started."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before the recorder was started

    def forward(number: int, _: object) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    # The terminal sends Ctrl-C to the program, too.
    handlers = dict.fromkeys(FORWARDED, forward) | {signal.SIGINT: lambda *_: None}
    with _handled(handlers):
        process = subprocess.Popen(command, env=environment)
        for number in early:
            process.send_signal(number)
        status = process.wait()
    return 128 - status if status < 0 else status


@contextlib.contextmanager
def _handled(handlers: Mapping[signal.Signals, Callable[[int, object], None]]) -> Iterator[None]:
    """Handles signals so for the block, except those that are ignored. A program that is started in it ignores these
    too, and has the kernel's own handling of the others, as ``exec`` passes on nothing else."""
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
