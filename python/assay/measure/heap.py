"""Recording the memory of a program, and having what was recorded read by the analyser."""

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
HEAP = Described(
    name="profile.heap",
    scope="node",
    help="what a program asks for in all: assay heap -- PROGRAM",
    parameters=[
        Parameter("program", "text", "", "", "as it was started", 0, 0),
        Parameter("pid", "integer", "", "0", "the process", 0, 2**31),
    ],
    metrics=[
        Metric("peak", "B", "lower", "the most that was requested at once"),
        Metric("allocated", "B", "lower", "requested in all"),
        Metric("allocations", "1", "lower", "blocks"),
        Metric("leaked", "B", "lower", "not freed"),
    ],
)


@dataclass(frozen=True)
class Left:
    """How the recording of a process ended that ran before."""

    goes_on: bool  # the process
    problem: str  # that the recorder has told on the way; empty for none


def recorder() -> Path:
    path = engines_folder() / "assay-heap"
    if not path.is_file():
        raise UserError(f"{path} is missing", "build it: make setup")
    return path


@dataclass(frozen=True)
class Recording:
    """What is to be recorded: blocks of ``at_least`` bytes; about one for each ``sample`` bytes that are asked for (0:
    all); of an MPI program only ``ranks`` (none: all). A profile on the way when ``dump_at`` bytes are in memory."""

    at_least: int = 0
    sample: int = 0
    ranks: Sequence[int] = ()
    python: bool = True  # its functions on the stacks, not the interpreter's alone
    faults: bool = True  # who touches memory first
    dump_at: int = 0

    def words(self) -> list[str]:
        options = {"--at-least": self.at_least, "--sample": self.sample, "--dump-at": self.dump_at}
        words = [word for name, value in options.items() if value for word in (name, str(value))]
        words += [] if self.python else ["--no-python"]
        words += [] if self.faults else ["--no-faults"]
        return words + (["--ranks", ",".join(map(str, self.ranks))] if self.ranks else [])


def record_program(folder: Path, program: Sequence[str], wanted: Recording = Recording()) -> int:
    """Runs it to its end with its own input and output; its exit status, 128 + N after signal N.

    Raises UserError when it cannot be started.
    """
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen([recorder(), "record", *wanted.words(), folder, "--", *program])
    with _left_to_the_program(process):
        status = process.wait()
    return 128 - status if status < 0 else status


def record_running(
    folder: Path, pid: int, seconds: float, wanted: Recording, begun: Callable[[], None]
) -> Left:
    """Of a process that runs already: until Ctrl-C, for ``seconds`` (0: any time) or to its end; it goes on.
    ``begun`` is called when it has been attached to.

    Raises UserError when that cannot be done, and then the process is as it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = [*wanted.words(), "--attach", str(pid), *(["--for", str(seconds)] if seconds else [])]
    process = subprocess.Popen(
        [recorder(), "record", *words, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with _told_to_leave(process):
        assert process.stdout is not None
        if process.stdout.readline():
            begun()
        said, problems = process.communicate()
    if process.returncode:
        raise UserError(problems.strip().removeprefix("assay-heap: "))
    return Left(goes_on=said.startswith("left"), problem=problems.strip())


def check_program(name: str) -> None:
    """Raises UserError when there is no such program."""
    if shutil.which(name) is None:
        raise UserError(
            f"cannot run {name}", "is it on PATH, and executable? a run to be shown would hold a run.json"
        )


@contextlib.contextmanager
def _told_to_leave(process: subprocess.Popen[str]) -> Iterator[None]:
    """Ctrl-C, and what else would end Assay, ends the recording alone."""

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
def _left_to_the_program(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the program itself; what was recorded until then is kept. What would end Assay, or asks for a
    profile on the way, is passed on."""

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
    """Another tool's file as an analysis in a run's folder. Raises UserError."""
    folder.mkdir(parents=True, exist_ok=True)
    _told(["import", file], folder / f"{file.name}.json")


def traces(folder: Path) -> list[Path]:
    """One of each process image, largest first."""
    return sorted(folder.glob("*.heap"), key=lambda path: (-path.stat().st_size, path.name))


def analyse_trace(trace: Path) -> Path:
    """The analysis beside the trace, made if it is not there. Raises UserError."""
    analysis = trace.with_suffix(".json")
    if analysis.exists():
        return analysis
    _told(["analyse", trace], analysis)
    return analysis


def _told(words: Sequence[str | Path], into: Path) -> None:
    """What the analyser says, in a file that appears whole or not at all."""
    part = into.with_suffix(".part")
    with part.open("wb") as out:
        done = subprocess.run(
            [recorder(), *words], stdout=out, stderr=subprocess.PIPE, timeout=ANALYSIS_LIMIT_S
        )
    if done.returncode != 0:
        part.unlink()
        raise UserError(done.stderr.decode(errors="replace").strip().removeprefix("assay-heap: "))
    part.rename(into)


def pack_trace(trace: Path) -> None:
    """Makes it small; a trace that cannot be packed stays as it is."""
    subprocess.run([recorder(), "pack", trace], stderr=subprocess.DEVNULL, timeout=ANALYSIS_LIMIT_S)
