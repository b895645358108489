"""Runs an engine: reads its records, applies time limits, explains failures, and ends everything it started.

Every started process has ``ASSAY_RUN=<token>`` in its environment. Processes that are left on this machine after the
launcher has ended (a rank in a lab host whose network is down gets no signal) are found by the token and killed.
Ranks on other machines end themselves: the launcher's connection is gone, and each engine has a watchdog.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from assay.errors import UserError
from assay.launch.load import Load, LoadMeter
from assay.launch.placement import HERE, Site
from assay.launch.processes import start_thread
from assay.launch.start import Start, name_awaited
from assay.records.schema import (
    AnyLine,
    AnyRecord,
    Failure,
    Hello,
    Progress,
    Ranks,
    Ready,
    Subject,
    Waiting,
    decode_line,
)

TAIL_BYTES = 16_384  # of the launcher's standard error, kept for diagnosis
# Signals by which the kernel ends a program after a fault. One that aborts has said why.
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS)
GRACE_S = 5.0  # between SIGTERM and SIGKILL
READER_LIMIT_S = 5.0  # for the last messages of processes that have ended
END_LIMIT_S = 30.0  # of a process that has closed its output; on a busy machine it may take seconds to end
SILENCE_REPORT_S = 5.0  # between two calls of on_silence
# By these, srun and some of MPICH's launchers put labels before the lines of the ranks, or write them elsewhere. The
# lines are Assay's messages.
CHANGES_OUTPUT = (
    "SLURM_LABELIO",
    "SLURM_STDOUTMODE",
    "SLURM_STDERRMODE",
    "MPIEXEC_PREFIX_DEFAULT",
    "MPIEXEC_PREFIX_STDOUT",
)
SILENCE = "no message from any rank"
DEADLOCK = re.compile(r"/CRITICAL\] Oops! Deadlock")  # of simulated ranks: smpirun ends with 0


@dataclass
class EngineProcess:
    """A process to start: arguments, additional environment, and the hosts that must answer. ``stdin``: a file
    descriptor from which the engine reads what it shall measure next, a round at a time (in a study each round depends
    on the results of the rounds before)."""

    argv: list[str]
    env: Mapping[str, str]
    hosts: list[str] = field(default_factory=list)  # one per rank, in rank order
    stdin: int | None = None
    # Whether its figures depend on the load of this machine. False for other hosts and simulated ranks.
    timed_here: bool = True
    site: Site = HERE


@dataclass
class Limits:
    """Time limits in seconds. ``start``: until a rank has sent "hello". ``late``: then, until all have (None: as
    ``start``, from the beginning). ``silence``: then, without any line."""

    start: float = 60.0
    silence: float = 90.0
    late: float | None = None


@dataclass
class EngineResult:
    """How an engine ended. ``failure`` is None if every rank finished."""

    failure: Failure | None = None
    silent: list[str] = field(
        default_factory=list
    )  # hosts that had not come, or all if none said anything more
    interrupted: bool = False
    stderr: str = ""  # the last TAIL_BYTES
    load: Load = field(default_factory=Load)  # of this machine by other programs during the run


def run_engine(
    engine: EngineProcess,
    on_record: Callable[[AnyRecord], object],
    on_progress: Callable[[Progress], object],
    diagnose: Callable[[str], str | None],
    limits: Limits | None = None,
    second_engine: EngineProcess | None = None,
    on_ready: Callable[[], object] = lambda: None,
    on_silence: Callable[[float, Sequence[str]], object] = lambda seconds, awaited: None,
    on_ranks: Callable[[Ranks], object] = lambda _: None,
) -> EngineResult:
    """Starts an engine, reads its output to the end, and leaves nothing running. Ctrl-C ends it and returns normally.

    ``second_engine`` is the second side of a measurement between two processes: it is started when the first engine
    reports "ready", and the output of both is read to the end. ``on_ready`` is called for each such report, after
    ``on_record`` for all records before it; ``on_ranks`` for the report of the ranks' hosts; ``on_silence`` every few
    seconds without a line, with the seconds since the last line and the hosts that the start waits for. Raises
    UserError if the engine cannot be started.
    """
    limits = limits or Limits()
    token = secrets.token_hex(8)
    processes = _Processes(token)
    meter = LoadMeter(token)
    result = EngineResult()
    start = Start(engine.hosts, time.monotonic())
    try:
        processes.start(engine)
        result.failure = _read(
            processes, start, second_engine, limits, on_record, on_progress, on_ready, on_silence, on_ranks
        )
    except KeyboardInterrupt:
        result.interrupted = True
        processes.stop(signal.SIGTERM)
        with contextlib.suppress(KeyboardInterrupt):
            _drain(processes, on_record)
    finally:
        status = processes.end()
        result.load = meter.end()
    result.stderr = processes.stderr()
    if not result.interrupted and (result.failure or status != 0 or DEADLOCK.search(result.stderr)):
        result.failure = _complete_failure(result.failure, status, result.stderr, diagnose)
        name_awaited(result.failure, start)
        result.silent = start.awaited or (engine.hosts if SILENCE in result.failure.problem else [])
    return result


class _Processes:
    """The processes of a measurement, each in a separate process group: their lines in one queue (the process itself
    after its last line) and the end of their standard error.

    The queue is a SimpleQueue: a signal that interrupts Queue.get may leave its lock held, and the next get then
    blocks forever.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._tails: list[bytearray] = []
        self.lines: queue.SimpleQueue[bytes | subprocess.Popen[bytes]] = queue.SimpleQueue()

    def start(self, engine: EngineProcess) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in CHANGES_OUTPUT}
        environment = {**inherited, **engine.env, "ASSAY_RUN": self._token}
        try:
            process = subprocess.Popen(
                engine.argv,
                stdin=subprocess.DEVNULL if engine.stdin is None else engine.stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(
                f"cannot start {engine.argv[0]}: {error.strerror}", "see 'assay doctor'"
            ) from error
        self._processes.append(process)
        self._tails.append(bytearray())
        for reader in (
            threading.Thread(target=self._read_lines, args=(process,), daemon=True),
            threading.Thread(target=self._read_stderr, args=(process.stderr, self._tails[-1]), daemon=True),
        ):
            start_thread(reader)
            self._readers.append(reader)

    def _read_lines(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.put(line)
        self.lines.put(process)

    def _read_stderr(self, output: IO[bytes], tail: bytearray) -> None:
        while chunk := output.read1(4096):  # type: ignore[attr-defined]
            tail += chunk
            del tail[:-TAIL_BYTES]

    def stderr(self) -> str:
        return "\n".join(tail.decode(errors="replace") for tail in self._tails)

    def stop(self, number: signal.Signals) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def end(self) -> int:
        """Waits GRACE_S for the processes, then kills them, and all others with the token in their environment. Returns
        the exit status; of several processes the first that is not 0."""
        try:
            self._wait()
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self.stop(signal.SIGTERM)
            try:
                self._wait()
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                self.stop(signal.SIGKILL)
        self.stop(signal.SIGKILL)
        for pid in _processes_of(self._token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for reader in self._readers:
            reader.join(timeout=READER_LIMIT_S)
        return next((status for process in self._processes if (status := process.wait())), 0)

    def _wait(self) -> None:
        deadline = time.monotonic() + GRACE_S
        for process in self._processes:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))


def _processes_of(token: str) -> Iterator[int]:
    """Processes of this machine (any namespace) with ASSAY_RUN=token in their environment."""
    variable = f"ASSAY_RUN={token}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if variable in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def _read(
    processes: _Processes,
    start: Start,
    second_engine: EngineProcess | None,
    limits: Limits,
    on_record: Callable[[AnyRecord], object],
    on_progress: Callable[[Progress], object],
    on_ready: Callable[[], object],
    on_silence: Callable[[float, Sequence[str]], object],
    on_ranks: Callable[[Ranks], object],
) -> Failure | None:
    """Reads lines until the end. Returns a failure that an engine reported, or a failure for silence; else None."""
    running, is_ending = 1, False
    last_line_at = time.monotonic()
    deadline = last_line_at + limits.start
    reported: Failure | None = None
    while True:
        try:
            line = processes.lines.get(timeout=min(SILENCE_REPORT_S, max(0.05, deadline - time.monotonic())))
        except queue.Empty:
            if time.monotonic() < deadline:
                on_silence(time.monotonic() - last_line_at, start.awaited)
                continue
            return reported or (None if is_ending else _silence_failure(start, limits))
        last_line_at = time.monotonic()
        if isinstance(line, subprocess.Popen):
            running -= 1
            if running == 0:
                return reported
            if _has_failed(line):  # the other side may still report a failure
                is_ending, deadline = True, time.monotonic() + GRACE_S
            continue
        message = _decode(line)
        if isinstance(message, Hello | Waiting):
            _follow_start(start, message, on_silence, on_record)
        elif isinstance(message, Ready):
            if second_engine is not None:
                processes.start(second_engine)
                running, second_engine = running + 1, None
            on_ready()
        elif isinstance(message, Ranks):
            on_ranks(message)
        elif isinstance(message, Progress):
            on_progress(message)
        elif isinstance(message, Failure):
            # The launcher may now wait for a dead host, and other ranks fail as a consequence: an MPI may crash
            # where a peer is lost, and report that first.
            if reported is None:
                reported, deadline = message, time.monotonic() + GRACE_S
            elif message.primary and not reported.primary:
                reported = message
        elif message is not None:
            on_record(message)
        if reported is not None or is_ending:
            continue
        if not start.awaited or not isinstance(message, Hello):
            deadline = time.monotonic() + limits.silence
        elif limits.late is not None:
            deadline = start.first_at + limits.late


def _follow_start(
    start: Start,
    message: Hello | Waiting,
    on_silence: Callable[[float, Sequence[str]], object],
    on_record: Callable[[AnyRecord], object],
) -> None:
    """Takes a message about the start: shows who is awaited, and records who came late."""
    start.add(message, time.monotonic())
    if isinstance(message, Waiting) and message.ranks:
        on_silence(time.monotonic() - start.first_at, start.awaited)
    for late in start.late_hosts():
        on_record(late)


def _has_failed(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process that has closed its output ends with an error."""
    try:
        return process.wait(timeout=END_LIMIT_S) != 0
    except subprocess.TimeoutExpired:
        return False


def _drain(processes: _Processes, on_record: Callable[[AnyRecord], object]) -> None:
    """After an interruption: passes on the records that are still in the pipe."""
    deadline = time.monotonic() + GRACE_S
    while (remaining_s := deadline - time.monotonic()) > 0:
        try:
            line = processes.lines.get(timeout=remaining_s)
        except queue.Empty:
            return
        if isinstance(line, subprocess.Popen):
            return
        message = _decode(line)
        if message is not None and not isinstance(
            message, Hello | Progress | Ranks | Ready | Waiting | Failure
        ):
            on_record(message)


def _decode(line: bytes) -> AnyLine | None:
    """Decodes a line of an engine; None for other output, since some launchers print to standard output."""
    try:
        message: AnyLine = decode_line(line)
        return message
    except msgspec.MsgspecError:
        return None


def _silence_failure(start: Start, limits: Limits) -> Failure:
    silent = start.awaited
    if silent:
        limit = limits.start if start.nobody or limits.late is None else limits.late
        return Failure(
            problem=f"no answer from {', '.join(silent)} within {limit:g} s of starting",
            fix="is the host up, and reachable from the launching host?",
            subject=Subject(host=silent[0]) if len(silent) == 1 else Subject(),
        )
    return Failure(
        problem=f"{SILENCE} for {limits.silence:.0f} s",
        fix="check whether the hosts still answer",
    )


def _complete_failure(
    failure: Failure | None, status: int, stderr: str, diagnose: Callable[[str], str | None]
) -> Failure:
    """Builds the failure from the engine's message, else the launcher's, else the end of standard error."""
    diagnosis = diagnose(stderr)
    is_told = diagnosis or _OWN_ERROR.search(stderr)
    if failure is None and -status in CRASHES and not is_told:  # what it has printed is no cause
        return Failure(problem=_describe_status(status))
    if failure is None:
        return Failure(problem=diagnosis or _most_telling_line(stderr) or _describe_status(status))
    if diagnosis and diagnosis not in failure.problem:
        failure.problem = f"{failure.problem}; {diagnosis}"
    return failure


def _describe_status(status: int) -> str:
    if status >= 0:
        return f"the engine ended with status {status}"
    return f"the launcher was ended by signal {-status} ({signal.strsignal(-status)})"


def _most_telling_line(stderr: str) -> str:
    """Returns the most informative line of a launcher's output; "" if there is none.

    An error of an engine or the I/O accelerator ("assay-probe: what; fix: ...") is the cause of all that follows. Else
    it is the first line with an error; else the first sentence of Open MPI's help; else the last line. Notes of an
    engine and launchers' words about their help are no cause.
    """
    if match := _OWN_ERROR.search(stderr):
        return match[1].strip(" *-=\t")
    blocks = [block for block in _HELP.findall(stderr) if not _WARNING.match(block)]
    helped = [_first_sentence(block) for block in blocks]
    lines = _HELP.sub("", stderr).splitlines()
    lines = [
        stripped for line in lines if (stripped := line.strip(" *-=\t")) and not _CHATTER.search(stripped)
    ]
    errors = [line for line in [*helped, *lines] if _ERROR.search(line)]
    return (errors or helped or lines[-1:] or [""])[0]


def _first_sentence(text: str) -> str:
    """The first sentence in one line, with the next paragraph where a colon announces it."""
    first, *others = (" ".join(part.split()) for part in re.split(r"\n[ \t]*\n", text.strip()))
    return f"{first} {others[0]}" if first.endswith(":") and others else _SENTENCE.split(first)[0]


_OWN_ERROR = re.compile(r"^[ *=\t-]*assay(?:-probe|-alloc|-io-bench| io): (.*\w.*)", re.MULTILINE)
_HELP = re.compile(r"^-{60,}\n((?:(?!-{60,}$).*\n)+?)-{60,}$", re.MULTILINE)  # Open MPI's, between two rules
_WARNING = re.compile(r"\s*(\S+ )?warning\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[a-z]{2}\.) ")
_CHATTER = re.compile(r"^note: |help message|help_aggregate|plm:rsh: Warning")
_ERROR = re.compile(r"MPI_ERR_|\berror:|\bfatal\b|cannot|could not|no such|denied|refused", re.IGNORECASE)
