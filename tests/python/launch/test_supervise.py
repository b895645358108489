"""The supervision of engines and launchers, tested with small programs that behave like them, correctly and wrongly."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch.supervise import EngineProcess, EngineResult, Limits, run_engine
from assay.records.schema import AnyRecord, Measurement, Progress

ENGINE_FUNCTIONS = """
import json, sys, time, os, signal
def say(**line): print(json.dumps(line), flush=True)
def hello(rank, host): say(kind="hello", rank=rank, host=host)
def measured(n): say(kind="measurement", name="x", metric="y", unit="1", samples=[float(n)])
"""


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the time that a sleeping engine gets to end by itself."""
    monkeypatch.setattr("assay.launch.supervise.GRACE_S", 0.2)


def run(
    program: str, hosts: list[str] | None = None, limits: Limits | None = None, diagnosis: str | None = None
) -> tuple[EngineResult, list[AnyRecord], list[Progress]]:
    records: list[AnyRecord] = []
    progress: list[Progress] = []
    started = EngineProcess([sys.executable, "-c", ENGINE_FUNCTIONS + program], {"MARK": "1"}, hosts or [])
    ending = run_engine(started, records.append, progress.append, lambda stderr: diagnosis, limits)
    return ending, records, progress


def test_records_and_progress_arrive_and_other_output_is_ignored() -> None:
    ending, records, progress = run(
        'hello(0, "a"); print("mpirun says hello"); measured(1); say(kind="progress", done=0.5); measured(2)',
        hosts=["a"],
    )
    assert ending.failure is None and not ending.interrupted
    assert [r.samples for r in records if isinstance(r, Measurement)] == [[1.0], [2.0]]
    assert [p.done for p in progress] == [0.5]


def test_a_rank_that_never_answers_is_named(short_grace: None) -> None:
    # The limit is long compared with the start of Python on a busy machine.
    ending, _, _ = run('hello(0, "a"); hello(2, "c"); time.sleep(60)', ["a", "b", "c"], Limits(start=2))
    assert ending.failure is not None
    assert ending.failure.problem.startswith("no answer from b within")
    assert ending.failure.subject.host == "b"


def test_silence_after_the_start_ends_the_run_and_keeps_the_records(short_grace: None) -> None:
    ending, records, _ = run(
        'hello(0, "a"); measured(1); time.sleep(60)', ["a"], Limits(start=20, silence=0.5)
    )
    assert ending.failure is not None and "no message from any rank" in ending.failure.problem
    assert len(records) == 1


def test_a_silent_phase_is_reported_until_a_line_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine goes on after two reports of silence, so the test needs no fixed time."""
    monkeypatch.setattr("assay.launch.supervise.SILENCE_REPORT_S", 0.1)
    reading, writing = os.pipe()
    reported_silences: list[float] = []

    def on_silence(seconds: float) -> None:
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
        Limits(start=60, silence=60),
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
    begun = time.monotonic()
    ending, _, _ = run(
        'say(kind="failure", problem="h1 waits for h3"); time.sleep(60)', limits=Limits(silence=50)
    )
    assert ending.failure is not None and ending.failure.problem == "h1 waits for h3"
    assert time.monotonic() - begun < 30


def test_an_engines_error_is_reported_and_not_the_launchers_output() -> None:
    ending, _, _ = run(
        'print("assay-probe: sizes of 0; fix: give at least 1", file=sys.stderr);'
        'print("-----\\nmpirun noticed", file=sys.stderr); sys.exit(2)'
    )
    assert ending.failure is not None and ending.failure.problem == "sizes of 0; fix: give at least 1"


def test_a_death_without_output_is_reported_by_its_signal() -> None:
    ending, _, _ = run("os.kill(os.getpid(), signal.SIGKILL)")
    assert ending.failure is not None and "signal 9 (Killed)" in ending.failure.problem


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
    deadline = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < deadline:
        os.sched_yield()
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_during_a_stream_of_lines_does_not_hang(short_grace: None) -> None:
    """A signal that interrupts queue.Queue.get often leaves the queue's lock locked."""
    for k in range(8):
        timer = threading.Timer(0.3 + k / 100, os.kill, (os.getpid(), signal.SIGINT))
        with time_limit(30):
            timer.start()
            ending, *_ = run(r'while True: sys.stdout.write("noise\n" * 10000)')
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

    started = EngineProcess([sys.executable, "-c", ENGINE_FUNCTIONS + "measured(1); time.sleep(60)"], {}, [])
    begun = time.monotonic()
    ending = run_engine(started, interrupt_after_the_first, lambda p: None, lambda w: None)
    assert ending.interrupted and ending.failure is None
    assert len(records) == 1 and time.monotonic() - begun < 30


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
    first = f"open({str(mark)!r}, 'w').write(str(os.getpid())); say(kind='ready'); time.sleep(60)"
    other = "print('assay-probe: no such device', file=sys.stderr); sys.exit(2)"
    ending, _ = run_two_sides(first, other)
    assert ending.failure is not None
    assert "no such device" in ending.failure.problem
    assert not Path(f"/proc/{mark.read_text()}").exists()
