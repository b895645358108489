"""Starts, connects and ends the ranks of a job without MPI.

Each rank listens on a port that the kernel chose, and reports it (``listening``). When all ranks have reported, each
gets one line on its standard input: the addresses of all ranks and a token of the job, by which the ranks recognise
each other. The token is neither on a command line nor sent between ranks. The standard input then stays open; its end
tells a rank that its output is not read any more.

When ranks are lost or come back, rank 0 may report who is there (``members``). The job's planner, if it has one, gets
that line, and its answer goes to rank 0.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import IO

import msgspec

from assay.errors import EXIT_UNUSABLE, UserError
from assay.launch.direct import Job
from assay.launch.launchers import Local
from assay.launch.placement import Segment
from assay.records.schema import Failure, Subject, encode
from assay.records.text import one_line

START_LIMIT_S = 60.0  # until a rank that is started again listens
GRACE_S = 5.0  # between SIGTERM and SIGKILL
LAST_MESSAGES_S = 0.5  # after a rank has failed, to receive the other ranks' messages
POLL_S = 0.2
LONGEST_PAUSE_S = 30.0  # between two attempts to start a rank again; the pause doubles with each
STEADY_S = 10.0  # a rank that has run for so long is started again without a longer pause


class Listening(msgspec.Struct, tag_field="kind", tag="listening"):
    """A rank's report of its address. ``version``: of the engine and its messages, which must agree on all ranks."""

    rank: int
    host: str
    address: str
    port: int
    version: str


class Restart(msgspec.Struct):
    """A request on standard input: the number of the rank to restart."""

    restart: int


SIGNAL, INPUT = -1, -2  # in place of a rank's number: a signal to this process, a line of its standard input


@dataclass
class Rank:
    """A rank and its current process. ``has_table``: the process was given the table of peers."""

    number: int
    incarnation: int = 0
    process: subprocess.Popen[bytes] | None = None
    hello: bytes = b""
    listening: Listening | None = None
    has_table: bool = False
    status: int | None = None  # None while it runs
    deadline: float = 0.0  # by which it must listen
    restart_at: float | None = None
    started_at: float = 0.0
    attempts: int = 0  # to start it again since it last ran steadily

    @property
    def runs(self) -> bool:
        return self.process is not None and self.status is None


@dataclass
class Ranks:
    """A job: ``run`` starts its ranks and returns the exit code when all have ended."""

    job: Job
    out: IO[bytes] = field(default_factory=lambda: sys.stdout.buffer)
    err: IO[str] = field(default_factory=lambda: sys.stderr)

    def __post_init__(self) -> None:
        self._site = self.job.site_of_job()
        self._ranks = [Rank(number) for number in range(len(self.job.places))]
        self._token = secrets.token_hex(32)
        # Lines with their rank and incarnation; None when the process has closed its output.
        self._lines: queue.SimpleQueue[tuple[int, int, bytes | None]] = queue.SimpleQueue()
        self._kill_at: float | None = None  # when the remaining ranks are killed; None: the job is not ending
        self._code = 0
        self._planner: subprocess.Popen[bytes] | None = None
        self._input: list[bytes] = []  # lines of standard input for rank 0
        self._is_awaited = False  # rank 0 waits for such a line

    def run(self) -> int:
        """Raises UserError if a rank cannot be started."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._lines.put((SIGNAL, 0, None)))
        try:
            for rank in self._ranks:
                self._start(rank)
            threading.Thread(target=self._read_input, daemon=True).start()
            self._start_planner()
            while any(rank.runs or rank.restart_at for rank in self._ranks):
                with contextlib.suppress(queue.Empty):
                    self._handle_line(*self._lines.get(timeout=POLL_S))
                self._check_deadlines()
        finally:
            self._kill()
        return self._code

    def _start(self, rank: Rank) -> None:
        place = self.job.places[rank.number]
        interface = {"ASSAY_INTERFACE": self.job.interface} if self.job.interface else {}
        env = {
            **interface,
            **place.env,
            "ASSAY_TRANSPORT": self.job.transport,
            "ASSAY_RANK": str(rank.number),
            "ASSAY_RANKS": str(len(self._ranks)),
        }
        if self.job.heartbeat_ms:
            env["ASSAY_HEARTBEAT_MS"] = str(self.job.heartbeat_ms)
        if self.job.start_s:
            env["ASSAY_START_TIMEOUT"] = str(self.job.start_s)
        argv = Local().command(self._site, [Segment([place.host], env)], self.job.argv)
        try:
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise UserError(f"cannot start {argv[0]}: {error.strerror}", "see 'assay doctor'") from error
        rank.process, rank.status, rank.listening, rank.has_table = process, None, None, False
        rank.started_at, rank.restart_at = time.monotonic(), None
        rank.deadline = rank.started_at + START_LIMIT_S
        reader = threading.Thread(
            target=self._read_lines, args=(rank.number, rank.incarnation, process.stdout), daemon=True
        )
        reader.start()

    def _read_lines(self, number: int, incarnation: int, output: IO[bytes]) -> None:
        for line in output:
            self._lines.put((number, incarnation, line))
        self._lines.put((number, incarnation, None))

    def _start_planner(self) -> None:
        """Its death does not end the job: it says why on standard error, and the ranks keep the plan they have."""
        if self.job.planner:
            self._planner = subprocess.Popen(
                self.job.planner, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            threading.Thread(target=self._pass_plans, args=(self._planner.stdout,), daemon=True).start()

    def _pass_plans(self, plans: IO[bytes]) -> None:
        for line in plans:
            _send(self._ranks[0].process, line)

    def _read_input(self) -> None:
        for line in filter(bytes.strip, sys.stdin.buffer):
            try:
                self.restart(msgspec.json.decode(line, type=Restart).restart)
            except msgspec.MsgspecError:
                self._lines.put((INPUT, 0, line))
        self._lines.put((INPUT, 0, None))

    def _pass_input(self) -> None:
        """Passes a line of standard input to rank 0, if that waits for one; an empty line is the end of the input."""
        if self._is_awaited and self._input:
            _send(self._ranks[0].process, self._input.pop(0))
            self._is_awaited = False

    def restart(self, number: int) -> None:
        """Restarts a rank as soon as it has ended. Rank 0 leads the job and is never restarted."""
        if 0 < number < len(self._ranks):
            self._ranks[number].restart_at = time.monotonic()

    def _handle_line(self, number: int, incarnation: int, line: bytes | None) -> None:
        """Handles a line of a rank, its end (``line`` None), a line or the end of standard input, or a signal."""
        if number == SIGNAL:
            self._end(130)
            return
        if number == INPUT:
            self._input.append(line or b"\n")
            self._pass_input()
            return
        rank = self._ranks[number]
        if incarnation != rank.incarnation:
            return
        if line is None:
            assert rank.process is not None
            rank.status = rank.process.wait()
            self._handle_end(rank)
        elif line.startswith(b'{"kind":"hello"'):
            rank.hello = line  # a host that is stopped before it listens has not come
        elif line.startswith(b'{"kind":"listening"'):
            self._write(rank.hello)
            self._handle_listening(rank, line)
        elif number == 0 and line.startswith(b'{"kind":"members"'):
            _send(self._planner, line)
        elif number == 0 and line.startswith(b'{"kind":"ready"'):
            self._write(line)
            self._is_awaited = True
            self._pass_input()
        elif self.job.survive and number > 0 and rank.has_table and line.startswith(b'{"kind":"failure"'):
            # The other ranks go on. A host that is cut off reports all others as lost; rank 0 decides how the job ends.
            # A rank that comes back when the job ends finds nobody.
            if rank.incarnation == 0 or self._kill_at is None:
                print(
                    f"assay: {self._host(rank)}: {_text_of_failure(line)}; the others go on",
                    file=self.err,
                    flush=True,
                )
        else:
            self._write(line)

    def _write(self, line: bytes) -> None:
        try:
            self.out.write(line)
            self.out.flush()
        except BrokenPipeError:  # nobody reads the results
            self._end(EXIT_UNUSABLE)

    def _handle_listening(self, rank: Rank, line: bytes) -> None:
        try:
            rank.listening = msgspec.json.decode(line, type=Listening)
        except msgspec.MsgspecError as error:
            self._fail(rank, f"rank {rank.number} on {self._host(rank)} reports no address: {error}", "")
            return
        versions = {peer.listening.version: self._host(peer) for peer in self._ranks if peer.listening}
        if len(versions) > 1:
            versions_text = ", ".join(f"{version} on {host}" for version, host in versions.items())
            self._fail(
                rank, f"the ranks are of different versions: {versions_text}", "install the same everywhere"
            )
        elif rank.incarnation:
            self._send_table(rank)
        elif all(peer.listening for peer in self._ranks):
            for peer in self._ranks:
                self._send_table(peer)

    def _send_table(self, rank: Rank) -> None:
        """Sends the table of addresses to a rank. For a restarted rank it has no ports of ranks that have ended, or
        that have no table yet: the latter will connect to the restarted rank."""
        is_first = rank.incarnation == 0
        peers = [
            {"rank": peer.number, "address": peer.listening.address, "port": peer.listening.port}
            if peer.listening and peer.runs and (is_first or peer.has_table or peer is rank)
            else {"rank": peer.number, "address": "", "port": 0}
            for peer in self._ranks
        ]
        line = {"kind": "peers", "token": self._token, "incarnation": rank.incarnation, "peers": peers}
        _send(rank.process, msgspec.json.encode(line) + b"\n")
        rank.has_table = True

    def _handle_end(self, rank: Rank) -> None:
        """Handles the end of a rank: the job goes on, or ends too."""
        status = rank.status or 0
        if status == 0 or self._kill_at is not None:
            self._code = self._code or max(0, status)
            if rank.number == 0:
                self._end(self._code)
            return
        problem = f"rank {rank.number} on {self._host(rank)} {_describe(status)}"
        survived = self.job.survive and rank.number > 0 and rank.has_table
        if survived or rank.incarnation:
            self._plan_restart(rank, problem)
        elif _signal_of(status):
            self._fail(rank, problem, "see the last messages of the engine, and dmesg on that host")
        else:
            self._end(status if status > 0 else EXIT_UNUSABLE)  # the engine has said why

    def _plan_restart(self, rank: Rank, problem: str) -> None:
        """Plans the next attempt to start a rank again, if the job asks for it, and says so. Its host may be gone for
        hours: the attempts go on for as long as the job, with longer and longer pauses."""
        now = time.monotonic()
        if now - rank.started_at >= STEADY_S:
            rank.attempts = 0
        plan = "the others go on"
        if self.job.restart_s is not None:
            longest = max(self.job.restart_s, LONGEST_PAUSE_S)
            pause = min(self.job.restart_s * 2.0 ** min(rank.attempts, 20), longest)
            rank.restart_at = now + pause
            plan += f"; it is started again in {pause:.3g} s"
        print(f"assay: {one_line(problem)}; {plan}", file=self.err, flush=True)

    def _check_deadlines(self) -> None:
        """Acts on deadlines: a rank that does not listen in time, a restart that is due, the end of the grace."""
        now = time.monotonic()
        if self._kill_at is not None:
            if now > self._kill_at:
                self._kill()
            return
        for rank in self._ranks:
            # At the start the reader of the output waits for the ranks and names those that are late.
            if rank.incarnation and rank.runs and rank.listening is None and now > rank.deadline:
                assert rank.process is not None
                rank.process.kill()
            if rank.restart_at is not None and not rank.runs and now >= rank.restart_at:
                rank.incarnation += 1
                rank.attempts += 1
                self._start(rank)

    def _fail(self, rank: Rank, problem: str, fix: str) -> None:
        failure = Failure(
            problem=problem, fix=fix, subject=Subject(host=self._host(rank), rank=rank.number), primary=True
        )
        self._write(encode(failure) + b"\n")
        self._end(EXIT_UNUSABLE)

    def _end(self, code: int) -> None:
        """Ends the job with exit code ``code``: sends SIGTERM to all ranks, and kills them after a grace period."""
        if self._kill_at is not None:
            return
        self._code = self._code or code
        self._kill_at = time.monotonic() + (GRACE_S if code in (0, 130) else LAST_MESSAGES_S + GRACE_S)
        for rank in self._ranks:
            rank.restart_at = None
        if code:
            timer = threading.Timer(0 if code == 130 else LAST_MESSAGES_S, self._request_end)
            timer.daemon = True
            timer.start()

    def _request_end(self) -> None:
        for rank in self._ranks:
            if rank.process is not None and rank.process.poll() is None:
                rank.process.terminate()

    def _kill(self) -> None:
        for process in (*(rank.process for rank in self._ranks), self._planner):
            if process is not None:
                if process.stdin is not None:
                    with contextlib.suppress(OSError):
                        process.stdin.close()
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _host(self, rank: Rank) -> str:
        return self.job.places[rank.number].host


def _send(process: subprocess.Popen[bytes] | None, line: bytes) -> None:
    if process is not None and process.stdin is not None:
        with contextlib.suppress(OSError, ValueError):  # it has ended, which is handled when its output ends
            process.stdin.write(line)
            process.stdin.flush()


def _text_of_failure(line: bytes) -> str:
    """The failure that a rank reports, in words: its line is for programs."""
    try:
        failure = msgspec.json.decode(line, type=Failure)
    except msgspec.MsgspecError:
        return "it reports a failure that is not understood"
    return one_line(failure.problem + (f" (fix: {failure.fix})" if failure.fix else ""))


def _signal_of(status: int) -> int:
    """The signal that ended a process or, through ssh or a shell, its child; 0 if none did."""
    return -status if status < 0 else status - 128 if 128 < status < 128 + signal.NSIG else 0


def _describe(status: int) -> str:
    number = _signal_of(status)
    if number:
        return f"was ended by signal {number} ({signal.strsignal(number)})"
    return f"ended with status {status}"
