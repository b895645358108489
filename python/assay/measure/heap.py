"""Runs the recorder and the analyser of heap profiles (the engine assay-heap)."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import UserError
from assay.launch.engines import Described, Metric, Parameter, engines_folder

ANALYSIS_LIMIT_S = 3600
LESS = "record less: --at-least SIZE or --sample SIZE"
HEAP = Described(
    name="profile.heap",
    scope="node",
    help="totals of a program's allocations: assay heap -- PROGRAM",
    parameters=[
        Parameter("program", "text", "", "", "its path", 0, 0),
        Parameter("pid", "integer", "", "0", "the process id", 0, 2**31),
    ],
    metrics=[
        Metric("peak", "B", "lower", "largest number of live bytes"),
        Metric("allocated", "B", "lower", "bytes of all blocks"),
        Metric("allocations", "1", "lower", "number of blocks"),
        Metric("leaked", "B", "lower", "bytes never freed"),
    ],
)


@dataclass(frozen=True)
class AttachedRecording:
    """How the recording of a running process ended."""

    goes_on: bool  # the process goes on
    problem: str  # reported by the recorder; empty for none


def recorder() -> Path:
    path = engines_folder() / "assay-heap"
    if not path.is_file():
        raise UserError(f"{path} is missing", "build it: make setup")
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
    _make_private(folder)
    process = subprocess.Popen([recorder(), "record", *recording.arguments(), folder, "--", *program])
    with _interrupts_reach_program(process):
        status = process.wait()
    return 128 - status if status < 0 else status


def record_running(
    folder: Path, pid: int, seconds: float, recording: Recording, on_attached: Callable[[], None]
) -> AttachedRecording:
    """Records a running process until Ctrl-C, for ``seconds`` (0: no limit) or to its end. ``on_attached`` is called
    when the recorder has attached.

    Raises UserError if attaching fails; the process is then unchanged.
    """
    _make_private(folder)
    arguments = [
        *recording.arguments(),
        "--attach",
        str(pid),
        *(["--budget", str(seconds)] if seconds else []),
    ]
    process = subprocess.Popen(
        [recorder(), "record", *arguments, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with _interrupts_end_recording(process):
        assert process.stdout is not None
        if process.stdout.readline():
            on_attached()
        output, problems = process.communicate()
    if process.returncode:
        raise UserError(problems.strip().removeprefix("assay-heap: "))
    return AttachedRecording(goes_on=output.startswith("left"), problem=problems.strip())


def _make_private(folder: Path) -> None:
    """A trace holds paths, names and sizes of what a program works on: its folder is the user's alone."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def check_program(name: str) -> None:
    """Raises UserError when there is no such program."""
    if shutil.which(name) is None:
        raise UserError(
            f"cannot run {name}",
            "check that it is on PATH and executable; a run to show must hold a run.json",
        )


@contextlib.contextmanager
def _interrupts_end_recording(process: subprocess.Popen[str]) -> Iterator[None]:
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


@contextlib.contextmanager
def _interrupts_reach_program(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the program itself; what was recorded until then is kept. SIGTERM, SIGHUP and SIGUSR1 (a profile
    while the program runs) are passed on to the recorder."""

    def pass_on(number: int, _: object) -> None:
        process.send_signal(number)

    before = {
        number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    }
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def import_file(folder: Path, file: Path) -> None:
    """Writes the analysis of another tool's file into a run's folder. Raises UserError."""
    _make_private(folder)
    _run_analyser(["import", file], folder / f"{file.name}.json")


def traces(folder: Path) -> list[Path]:
    """One trace for each process image, the largest file first."""
    return sorted(folder.glob("*.heap"), key=lambda path: (-path.stat().st_size, path.name))


def analyse_trace(trace: Path) -> Path:
    """The path of the analysis beside the trace, which is made if it is missing. Raises UserError."""
    analysis = trace.with_suffix(".json")
    if analysis.exists():
        return analysis
    _run_analyser(["analyse", trace], analysis)
    return analysis


def _run_analyser(arguments: Sequence[str | Path], output: Path) -> None:
    """Writes the analyser's output to a file that appears whole or not at all."""
    partial = output.with_suffix(".part")
    try:
        with partial.open("wb") as out:
            completed = subprocess.run(
                [recorder(), *arguments], stdout=out, stderr=subprocess.PIPE, timeout=ANALYSIS_LIMIT_S
            )
        if completed.returncode != 0:
            raise _analysis_failed(arguments, completed.returncode, completed.stderr)
        partial.rename(output)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{arguments[-1]}: its analysis has not ended within {ANALYSIS_LIMIT_S} s", LESS
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _analysis_failed(arguments: Sequence[str | Path], status: int, stderr: bytes) -> UserError:
    """The analyser's own message, or the signal that ended it."""
    if status < 0:
        name = signal.strsignal(-status) or "unknown"
        why = ", as when memory runs out" if -status == signal.SIGKILL else ""
        return UserError(f"{arguments[-1]}: its analysis was ended by signal {-status} ({name}){why}", LESS)
    message = stderr.decode(errors="replace").strip().removeprefix("assay-heap: ")
    return UserError(message or f"{arguments[-1]}: its analysis ended with status {status}")


def pack_trace(trace: Path) -> None:
    """Compresses a trace; a trace that cannot be packed stays as it is."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run([recorder(), "pack", trace], stderr=subprocess.DEVNULL, timeout=ANALYSIS_LIMIT_S)
