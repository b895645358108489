"""The supervision of engines and launchers, tested with small programs that behave like them, correctly and wrongly.

Limits that must pass are tested with a clock that the test moves on: how long a program takes to start does not matter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch import supervise
from assay.launch.supervise import EngineProcess, EngineResult, Limits, run_engine
from assay.records.schema import AnyLine, AnyRecord, Context, Measurement, Progress

pytestmark = pytest.mark.slow

ENGINE_FUNCTIONS = """
import json, sys, time, os, signal
def say(**line): print(json.dumps(line), flush=True)
def hello(rank, host): say(kind="hello", rank=rank, host=host)
def measured(n): say(kind="measurement", name="x", metric="y", unit="1", samples=[float(n)])
"""


LIMIT_S = 240  # against hangs


class Clock:
    """Stands for the module time: the time of the machine, and what ``advance`` has added."""

    def __init__(self) -> None:
        self._added = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._added

    def advance(self, seconds: float) -> None:
        self._added += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the supervision, which looks at it every 0.05 s."""
    planted = Clock()
    monkeypatch.setattr(supervise, "time", planted)
    monkeypatch.setattr(supervise, "SILENCE_REPORT_S", 0.05)
    return planted


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the time that a sleeping engine gets to end by itself."""
    monkeypatch.setattr("assay.launch.supervise.GRACE_S", 0.2)


def run(
    program: str,
    hosts: list[str] | None = None,
    limits: Limits | None = None,
    diagnosis: str | None = None,
    on_silence: Callable[[list[AnyRecord]], object] = lambda records: None,
) -> tuple[EngineResult, list[AnyRecord], list[Progress]]:
    records: list[AnyRecord] = []
    progress: list[Progress] = []
    started = EngineProcess([sys.executable, "-c", ENGINE_FUNCTIONS + program], {"MARK": "1"}, hosts or [])
    ending = run_engine(
        started, records.append, progress.append, lambda stderr: diagnosis, limits,
        on_silence=lambda seconds, awaited: on_silence(records),
    )  # fmt: skip
    return ending, records, progress


def test_a_deadlock_of_simulated_ranks_is_a_failure() -> None:
    """smpirun ends with 0 then."""
    message = "[1.5] ./EngineImpl.cpp:718: [ker_engine/CRITICAL] Oops! Deadlock detected"
    ending, _, _ = run(f"print({message!r}, file=sys.stderr)", diagnosis="SimGrid failed: a deadlock")
    assert ending.failure is not None and ending.failure.problem == "SimGrid failed: a deadlock"
    assert run("print('an engine/CRITICAL warning', file=sys.stderr)", diagnosis="x")[0].failure is None


def test_records_and_progress_arrive_and_other_output_is_ignored() -> None:
    ending, records, progress = run(
        'hello(0, "a"); print("mpirun says hello"); measured(1); say(kind="progress", done=0.5); measured(2)',
        hosts=["a"],
    )
    assert ending.failure is None and not ending.interrupted
    assert [r.samples for r in records if isinstance(r, Measurement)] == [[1.0], [2.0]]
    assert [p.done for p in progress] == [0.5]


def test_a_rank_that_never_answers_is_named(
    short_grace: None, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit passes when the other ranks have answered."""
    answered: list[AnyLine] = []
    decode = supervise.decode_line
    monkeypatch.setattr(supervise, "decode_line", lambda line: answered.append(decode(line)) or answered[-1])
    ending, _, _ = run(
        'hello(0, "a"); hello(2, "c"); time.sleep(1000)',
        ["a", "b", "c"],
        Limits(start=900),
        on_silence=lambda _: clock.advance(1000) if len(answered) == 2 else None,
    )
    assert ending.failure is not None
    assert ending.failure.problem.startswith("no answer from b within 900 s")
    assert ending.failure.subject.host == "b"


def start_with_a_late_host(
    clock: Clock, wait_s: float, limits: Limits, late: str
) -> tuple[EngineResult, list[str], list[AnyRecord]]:
    """Two hosts answer; ``late`` follows when the test's clock has moved on. Returns also who was awaited."""
    reading, writing = os.pipe()
    awaited_hosts: list[str] = []
    records: list[AnyRecord] = []

    def on_silence(seconds: float, awaited: Sequence[str]) -> None:
        if list(awaited) == ["b"] and not awaited_hosts:
            awaited_hosts.extend(awaited)
            clock.advance(wait_s)
            os.write(writing, b"go")

    program = ENGINE_FUNCTIONS + 'hello(0, "a"); hello(2, "c"); sys.stdin.buffer.read(2)\n' + late
    started = EngineProcess([sys.executable, "-c", program], {}, ["a", "b", "c"], stdin=reading)
    ending = run_engine(
        started, records.append, lambda _: None, lambda _: None, limits, on_silence=on_silence
    )
    os.close(reading), os.close(writing)
    return ending, awaited_hosts, records


def test_a_host_that_comes_late_is_named_while_it_is_awaited_and_in_the_record(clock: Clock) -> None:
    ending, awaited, records = start_with_a_late_host(
        clock, 30, Limits(LIMIT_S, LIMIT_S, late=LIMIT_S), 'hello(1, "b"); measured(1)'
    )
    assert ending.failure is None and awaited == ["b"]
    late = [record for record in records if isinstance(record, Context)]
    assert [record.subject.host for record in late] == ["b"]
    assert 30 <= float(late[0].facts["start.late_s"]) < LIMIT_S


def test_a_host_that_comes_with_the_others_is_not_late(clock: Clock) -> None:
    _, _, records = start_with_a_late_host(clock, 0, Limits(LIMIT_S, LIMIT_S), 'hello(1, "b"); measured(1)')
    assert not [record for record in records if isinstance(record, Context)]


def test_the_start_ends_at_the_limit_for_late_hosts(short_grace: None, clock: Clock) -> None:
    """The limit for the first host is longer, and does not count once a host is there."""
    ending, _, _ = start_with_a_late_host(clock, 500, Limits(900, 900, late=300), "time.sleep(1000)")
    assert ending.failure is not None and ending.failure.subject.host == "b"
    assert ending.failure.problem.startswith("no answer from b within 300 s of starting")


def test_ranks_that_the_engine_waits_for_are_named_by_their_hosts(clock: Clock) -> None:
    """A rank that has started and was stopped before it connected."""
    waits = 'say(kind="waiting", ranks=[1]); sys.stdin.buffer.read(2); say(kind="waiting", ranks=[])'
    program = ENGINE_FUNCTIONS + 'hello(0, "a"); hello(1, "b"); hello(2, "c"); ' + waits
    reading, writing = os.pipe()
    records: list[AnyRecord] = []
    waits_seen: list[float] = []

    def on_silence(seconds: float, awaited: Sequence[str]) -> None:
        if awaited == ["b"] and not waits_seen:
            waits_seen.append(seconds)
            clock.advance(20)
            os.write(writing, b"go")

    started = EngineProcess([sys.executable, "-c", program], {}, ["a", "b", "c"], stdin=reading)
    run_engine(
        started,
        records.append,
        lambda _: None,
        lambda _: None,
        Limits(LIMIT_S, LIMIT_S),
        on_silence=on_silence,
    )
    os.close(reading), os.close(writing)
    assert [r.subject.host for r in records if isinstance(r, Context)] == ["b"]


def test_a_failure_while_a_rank_is_awaited_names_its_host(short_grace: None) -> None:
    ending, _, _ = run(
        'hello(0, "a"); hello(1, "b"); say(kind="waiting", ranks=[1]); '
        'say(kind="failure", problem="rank 0 hears nothing from rank 1 within 9 s"); sys.exit(2)',
        ["a", "b"],
    )
    assert ending.failure is not None and ending.failure.subject.host == "b"
    assert ending.failure.problem == "rank 0 hears nothing from rank 1 within 9 s (no answer from b)"


def test_silence_after_the_start_ends_the_run_and_keeps_the_records(short_grace: None, clock: Clock) -> None:
    ending, records, _ = run(
        'hello(0, "a"); measured(1); time.sleep(1000)',
        ["a"],
        Limits(start=900, silence=900),
        on_silence=lambda records: clock.advance(1000) if records else None,
    )
    assert ending.failure is not None and "no message from any rank" in ending.failure.problem
    assert len(records) == 1


def test_a_silent_phase_is_reported_until_a_line_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine goes on after two reports of silence, so the test needs no fixed time."""
    monkeypatch.setattr("assay.launch.supervise.SILENCE_REPORT_S", 0.1)
    reading, writing = os.pipe()
    reported_silences: list[float] = []

    def on_silence(seconds: float, awaited: Sequence[str]) -> None:
        reported_silences.append(seconds)
        if len(reported_silences) == 2:
            os.write(writing, b"go")

    program = ENGINE_FUNCTIONS + 'hello(0, "a"); sys.stdin.buffer.read(2); measured(1)'
    started = EngineProcess([sys.executable, "-c", program], {}, ["a"], stdin=reading)
    records: list[AnyRecord] = []
    ending = run_engine(
        started,
        records.append,
        lambda _: None,
        lambda _: None,
        Limits(start=LIMIT_S, silence=LIMIT_S),
        on_silence=on_silence,
    )
    os.close(reading), os.close(writing)
    assert ending.failure is None and len(records) == 1
    assert len(reported_silences) >= 2 and reported_silences[0] >= 0.09


def test_an_engines_failure_is_joined_with_the_launchers_diagnosis() -> None:
    ending, records, _ = run(
        'say(kind="failure", problem="h1 waited 30 s for h3", subject={"host": "h1", "peer": "h3"});sys.exit(1)',
        diagnosis="rank 3 on h3 was ended by signal 9",
    )
    assert ending.failure is not None
    assert ending.failure.problem == "h1 waited 30 s for h3; rank 3 on h3 was ended by signal 9"
    assert ending.failure.subject.peer == "h3" and records == []


def test_a_killed_rank_is_reported_before_ranks_that_crashed_after_it() -> None:
    ending, _, _ = run(
        'say(kind="failure", problem="rank 0 crashed"); say(kind="failure", problem="rank 2 killed", primary=True);'
        'say(kind="failure", problem="rank 5 crashed"); sys.exit(1)'
    )
    assert ending.failure is not None and ending.failure.problem == "rank 2 killed"


def test_a_launcher_that_hangs_after_a_failure_is_killed(short_grace: None) -> None:
    ending, _, _ = run(
        'say(kind="failure", problem="h1 waits for h3"); time.sleep(1000)', limits=Limits(silence=1000)
    )
    assert ending.failure is not None and ending.failure.problem == "h1 waits for h3"


def test_an_engines_error_is_reported_and_not_the_launchers_output() -> None:
    ending, _, _ = run(
        'print("assay-probe: sizes of 0; fix: give at least 1", file=sys.stderr);'
        'print("-----\\nmpirun noticed", file=sys.stderr); sys.exit(2)'
    )
    assert ending.failure is not None and ending.failure.problem == "sizes of 0; fix: give at least 1"


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("The library was not\nopened. See below.\n\n  more: 1\n", "The library was not opened."),
        ("No host has this\nname:\n\n  name:  h7\n\nTry again.\n", "No host has this name: name: h7"),
        ("WARNING: No preset\nwas found.\n", "This should be reported to others."),
        ("The file of it\nthat could not be found:\n\n  it\n", "The file of it that could not be found: it"),
    ],
)
def test_the_first_sentence_of_the_help_of_open_mpi_is_the_reason(block: str, problem: str) -> None:
    rule = "-" * 74
    output = f"{rule}\n{block}{rule}\n{rule}\nThis should be\nreported to others.\n{rule}\n[h:1] 1 more\n"
    ending, _, _ = run(f"sys.stderr.write({output!r}); sys.exit(1)")
    assert ending.failure is not None and ending.failure.problem == problem


@pytest.mark.parametrize("name", supervise.CHANGES_OUTPUT)
def test_settings_that_label_the_lines_of_ranks_are_not_passed_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    assert run(f"sys.exit({name!r} in os.environ)")[0].failure is None


@pytest.mark.parametrize("output", ["", "note: refused the sender on h1"])
def test_a_death_without_a_reason_is_reported_by_its_signal(output: str) -> None:
    ending, _, _ = run(
        f"print({output!r}, file=sys.stderr, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert ending.failure is not None and "signal 9 (Killed)" in ending.failure.problem


@pytest.mark.parametrize(
    ("number", "output", "problem"),
    [
        (signal.SIGSEGV, "loading the module openmpi/4.1", "the launcher was ended by signal 11"),
        (signal.SIGSEGV, "assay-probe: no memory; fix: less", "no memory; fix: less"),
        (
            signal.SIGABRT,
            "terminate called: error: std::bad_alloc",
            "terminate called: error: std::bad_alloc",
        ),
    ],
)
def test_a_crash_is_reported_by_its_signal_unless_the_program_says_why(
    number: signal.Signals, output: str, problem: str
) -> None:
    failure = supervise._complete_failure(None, -number, output + "\n", lambda _: None)
    assert problem in failure.problem


def test_no_more_threads_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(UserError, match="cannot start a thread"):
        run("time.sleep(100)")


def test_processes_that_left_the_process_group_are_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    ending, _, _ = run(
        f"""
import subprocess
child = subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
open({str(pid_file)!r}, "w").write(str(child.pid))
"""
    )
    assert ending.failure is None
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + LIMIT_S
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_during_a_stream_of_lines_does_not_hang(short_grace: None) -> None:
    """A signal that interrupts queue.Queue.get often leaves the queue's lock locked. The signal comes from the engine,
    when the first of its lines have been read: a pipe holds fewer than a second portion."""
    program = r"""
for portion in range(10**9):
    if portion == 2 + COUNT: os.kill(os.getppid(), signal.SIGINT)
    sys.stdout.write("noise\n" * 20000)
    sys.stdout.flush()
"""
    for count in range(8):
        with time_limit(LIMIT_S):
            ending, *_ = run(program.replace("COUNT", str(count)))
        assert ending.interrupted


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def fail(*_: object) -> None:
        raise AssertionError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_ctrl_c_ends_the_engine_and_keeps_the_measurements() -> None:
    main = threading.main_thread().ident
    assert main is not None
    records: list[AnyRecord] = []

    def interrupt_after_the_first(record: AnyRecord) -> None:
        records.append(record)
        if len(records) == 1:
            signal.pthread_kill(main, signal.SIGINT)

    started = EngineProcess(
        [sys.executable, "-c", ENGINE_FUNCTIONS + "measured(1); time.sleep(1000)"], {}, []
    )
    ending = run_engine(started, interrupt_after_the_first, lambda p: None, lambda w: None)
    assert ending.interrupted and ending.failure is None
    assert len(records) == 1


def test_a_missing_program_is_one_line() -> None:
    with pytest.raises(UserError, match="cannot start /nowhere/mpirun"):
        run_engine(EngineProcess(["/nowhere/mpirun"], {}), lambda r: None, lambda p: None, lambda w: None)


def test_the_error_line_is_reported_and_not_the_launchers_hints() -> None:
    ending, _, _ = run(
        'print("[h0] *** An error occurred\\n[h0] *** MPI_ERR_WIN: invalid window\\n'
        '5 more processes have sent help message\\nSet MCA parameter orte_base_help_aggregate to 0",'
        "file=sys.stderr); sys.exit(1)"
    )
    assert ending.failure is not None and "MPI_ERR_WIN: invalid window" in ending.failure.problem


def run_two_sides(
    first: str, other: str, limits: Limits | None = None
) -> tuple[EngineResult, list[AnyRecord]]:
    records: list[AnyRecord] = []
    sides = [
        EngineProcess([sys.executable, "-c", ENGINE_FUNCTIONS + program], {}, [])
        for program in (first, other)
    ]
    ending = run_engine(sides[0], records.append, lambda _: None, lambda stderr: None, limits, sides[1])
    return ending, records


def test_the_other_side_is_started_when_the_first_is_ready(tmp_path: Path) -> None:
    mark = tmp_path / "ready"
    first = f"open({str(mark)!r}, 'w').close(); say(kind='ready'); measured(1); time.sleep(0.3); measured(3)"
    other = f"assert os.path.exists({str(mark)!r}); measured(2)"
    ending, records = run_two_sides(first, other)
    assert ending.failure is None
    assert sorted(r.samples[0] for r in records if isinstance(r, Measurement)) == [1.0, 2.0, 3.0]


def test_a_first_side_that_fails_never_starts_the_other(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    ending, _ = run_two_sides("print('assay-probe: the port is in use', file=sys.stderr); sys.exit(2)",
                        f"open({str(mark)!r}, 'w').close()")  # fmt: skip
    assert ending.failure is not None and ending.failure.problem == "the port is in use"
    assert not mark.exists()


def test_a_failure_of_the_other_side_is_reported_and_ends_both(short_grace: None, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    first = f"open({str(mark)!r}, 'w').write(str(os.getpid())); say(kind='ready'); time.sleep(1000)"
    other = "print('assay-probe: no such device', file=sys.stderr); sys.exit(2)"
    ending, _ = run_two_sides(first, other)
    assert ending.failure is not None
    assert "no such device" in ending.failure.problem
    assert not Path(f"/proc/{mark.read_text()}").exists()


def test_a_side_that_takes_long_to_end_has_failed_too(short_grace: None) -> None:
    """It closes its output long before it ends with an error."""
    first = "say(kind='ready'); time.sleep(1000)"
    other = "os.close(1); time.sleep(0.5); print('assay-probe: no memory', file=sys.stderr, flush=True); os._exit(2)"
    ending, _ = run_two_sides(first, other, Limits(silence=1000))
    assert ending.failure is not None and ending.failure.problem == "no memory"
