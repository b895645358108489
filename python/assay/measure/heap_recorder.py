"""Runs the recorder of heap profiles (the engine assay-heap)."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import REPAIR, UserError
from assay.launch.engines import engines_folder
from assay.launch.preload import launcher_of
from assay.launch.preload_folder import preload_folder
from assay.measure.recorded_program import run_to_end


@dataclass(frozen=True)
class AttachedRecording:
    """How the recording of a running process ended."""

    still_runs: bool  # the process, without the recorder
    problem: str  # reported by the recorder; empty for none


def recorder() -> Path:
    path = engines_folder() / "assay-heap"
    if not path.is_file():
        raise UserError(f"{path} is missing", REPAIR)
    return path


@dataclass(frozen=True)
class Recording:
    """What to record: blocks of ``at_least`` bytes and more; about one block for every ``sample`` allocated bytes (0:
    all); ``ranks`` of an MPI program (empty: all). ``dump_at``: write a profile when this many bytes are resident."""

    at_least: int = 0
    sample: int = 0
    ranks: Sequence[int] = ()
    python: bool = True  # with Python functions on the stacks
    faults: bool = True  # page faults: which line touches memory first
    dump_at: int = 0

    def arguments(self) -> list[str]:
        options = {"--at-least": self.at_least, "--sample": self.sample, "--dump-at": self.dump_at}
        arguments = [argument for name, value in options.items() if value for argument in (name, str(value))]
        arguments += [] if self.python else ["--no-python"]
        arguments += [] if self.faults else ["--no-faults"]
        return arguments + (["--ranks", ",".join(map(str, self.ranks))] if self.ranks else [])


def record_program(folder: Path, program: Sequence[str], recording: Recording = Recording()) -> int:
    """Runs the program to its end, with its own input and output. Returns its exit status, 128 + N after signal N.

    Raises UserError when it cannot be started.
    """
    libraries = preload_folder(launcher_of(program) is not None)
    make_private(folder)
    arguments = ["--libraries", str(libraries), *recording.arguments(), str(folder)]
    command: list[str | Path] = [recorder(), "record", *arguments, "--", *program]
    return run_to_end(command)  # SIGUSR1 asks the recorder for a profile while the program runs


def record_running(
    folder: Path, pid: int, seconds: float, recording: Recording, on_attached: Callable[[], None]
) -> AttachedRecording:
    """Records a running process until Ctrl-C, for ``seconds`` (0: no limit) or to its end. ``on_attached`` is called
    when the recorder has attached.

    Raises UserError if attaching fails; the process is then unchanged.
    """
    make_private(folder)
    arguments = [
        *recording.arguments(),
        "--attach",
        str(pid),
        *(["--budget", str(seconds)] if seconds else []),
    ]
    # Unbuffered: communicate() would leave out what readline() had read ahead.
    process = subprocess.Popen(
        [recorder(), "record", *arguments, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    with _interrupts_end_recording(process):
        assert process.stdout is not None
        if process.stdout.readline():
            on_attached()
        output, stderr = process.communicate()
    problems = stderr.decode(errors="replace").strip()
    if process.returncode:
        raise UserError(problems.removeprefix("assay-heap: "))
    return AttachedRecording(still_runs=output.startswith(b"left"), problem=problems)


def make_private(folder: Path) -> None:
    """Makes a folder that only the user can read, because a trace holds paths, names and sizes of the user's data."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def _interrupts_end_recording(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP end the recording only; SIGUSR1 asks for a profile."""

    def pass_on(*_: object) -> None:
        process.send_signal(signal.SIGINT)

    before = {
        number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda *_: process.send_signal(signal.SIGUSR1))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
