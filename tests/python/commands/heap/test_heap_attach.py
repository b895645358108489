"""Attaching to running programs: planted allocations are found to the byte, and the programs are not disturbed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from heap_attached import Attached, Recorder, compiled, running
from heap_runs import (
    ASSAY,
    LIMIT_S,
    REQUIREMENTS,
    arenas_of,
    can_trace_page_faults,
    finding_causes,
    functions_on_stack,
    load_profile,
    stacks_of,
    total_of,
    usage_error,
)

from assay.launch.engines import engines_folder
from assay.profile.profiles import load_profiles
from assay.records.run import Run
from assay.records.schema import Measurement

pytestmark = [
    pytest.mark.programs,
    *REQUIREMENTS,
    pytest.mark.skipif(
        os.uname().machine != "x86_64", reason="optional: processes are attached to on x86-64 alone"
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("running") / "running", "running.c")


@contextlib.contextmanager
def traced(pid: int) -> Iterator[None]:
    """Traces the process from outside, as a debugger does."""
    tracer = subprocess.Popen(
        [sys.executable, "-c", TRACER, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert tracer.stdin is not None and tracer.stdout is not None
    assert tracer.stdout.readline() == "traced\n"
    try:
        yield
    finally:
        tracer.communicate("", timeout=LIMIT_S)


TRACER = """
import ctypes, sys
seize = 0x4206
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
assert ptrace(seize, int(sys.argv[1]), 0, 0) == 0, ctypes.get_errno()
print("traced", flush=True)
sys.stdin.read()
"""


def test_what_is_asked_for_meanwhile_is_known_to_the_byte(program: Path, tmp_path: Path) -> None:
    with running(program, "counts") as target:
        target.tell("keep 500")
        outputs = {}
        for turn, blocks in (("first", 1000), ("second", 10)):
            attached = Attached(target.pid, tmp_path / turn)
            target.tell(f"keep {blocks}")
            outputs[turn] = attached.end()
            target.tell("keep 7")
        lines = target.end()
    for turn, blocks in (("first", 1000), ("second", 10)):
        node = total_of(load_profile(tmp_path / turn), "new_block")
        assert (node.count, node.bytes, node.leaked_count) == (blocks, 1000 * blocks, blocks)
        assert total_of(load_profile(tmp_path / turn), "count").bytes % 64 == 0
        assert re.search(rf"attached to {target.pid} for \d+\.\d s, \d+\.\d s after its start", outputs[turn])
        assert f"left {target.pid}: it goes on" in outputs[turn] and "may still be freed" in outputs[turn]
        assert not any("never freed" in cause for cause in finding_causes(tmp_path / turn))
    numbers = [int(line.split()[1]) for line in lines if line.startswith("number")]
    assert numbers == list(range(len(numbers))) and len(numbers) > 10
    assert lines[-1] == "end"


def test_blocks_from_before_are_counted_apart(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        target.tell("keep 300")
        attached = Attached(target.pid, tmp_path / "run")
        target.tell("grow 5000")
        target.tell("keep 20")
        target.tell("release")
        output = attached.end()
        target.end()
    profile = load_profile(tmp_path / "run")
    assert "leaked" not in {
        record.metric for record in Run.load(tmp_path / "run").records if isinstance(record, Measurement)
    }
    assert (total_of(profile, "execute").count, total_of(profile, "execute").bytes) == (300, 300 * 5000)
    assert total_of(profile, "new_block").count == 20 and total_of(profile, "new_block").leaked == 0
    assert profile.totals.unknown_frees == 300 and "300 of them were freed or reallocated" in output
    assert profile.totals.leaked == 0 and profile.fragmentation is None


def test_a_library_that_is_loaded_later(program: Path, tmp_path: Path) -> None:
    late = compiled(tmp_path / "late.so", "late.c", "-shared", "-fPIC")
    with running(program, "obeys") as target:
        attached = Attached(target.pid, tmp_path / "run")
        target.tell(f"load {late}")
        attached.end()
        target.end()
    assert total_of(load_profile(tmp_path / "run"), "of_library").count == 300


def test_until_its_end(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        attached = Attached(target.pid, tmp_path / "run")
        target.tell("keep 100")
        target.tell("toss 30")
        target.end()
        output = attached.end(None)
    profile = load_profile(tmp_path / "run")
    assert profile.process.complete and not profile.process.detached
    assert "leaked" in {
        record.metric for record in Run.load(tmp_path / "run").records if isinstance(record, Measurement)
    }
    assert total_of(profile, "new_block").leaked == 100_000 and "not freed" in output
    (tossed,) = (stack for stack in stacks_of(profile) if stack.bytes == 3000)
    assert {"t", "new_block"} <= functions_on_stack(profile, tossed.node)


@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_who_touches_first_meanwhile(program: Path, tmp_path: Path) -> None:
    """Pages touched by two existing threads and by a later one: each is counted once."""
    pages = {"touch 20": 20 * 256, "let it touch 12": 12 * 256, "let another touch 7": 7 * 256}
    with running(program, "counts") as target:
        target.tell("touch 5")
        attached = Attached(target.pid, tmp_path / "run")
        for line in pages:
            target.tell(line)
        attached.end()
        target.tell("touch 3")
        target.end()
    touches = load_profile(tmp_path / "run").touches
    assert touches is not None
    (line,) = [k for k, name in enumerate(touches.line_function) if name.startswith("touched")]
    assert abs(touches.line_pages[line] - sum(pages.values())) <= len(pages)
    assert sorted(pages.values()) == pytest.approx(sorted(touches.thread_pages), abs=50)
    with running(program, "obeys") as target:
        attached = Attached(target.pid, tmp_path / "without", "--no-faults")
        target.tell("touch 1")
        attached.end()
        target.end()
    assert load_profile(tmp_path / "without").touches is None


def test_for_a_time(program: Path, tmp_path: Path) -> None:
    with running(program, "counts") as target:
        output = Attached(target.pid, tmp_path / "run", "--budget", "200ms").end(None)
        target.end()
    assert "for 200 ms, or until Ctrl-C" in output and "it goes on" in output
    assert 0.2 <= load_profile(tmp_path / "run").process.seconds < 5


PYTHON = """
import sys
def planted(n):
    return [bytes(5000) for _ in range(n)]
print("ready", flush=True)
held = []
for line in sys.stdin:
    held.append(planted(int(line)))
    print("done", flush=True)
sys.exit(7)
"""


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no Python of the system's")
def test_python(tmp_path: Path) -> None:
    with running("/usr/bin/python3", "-c", PYTHON) as target:
        target.tell("50")
        attached = Attached(target.pid, tmp_path / "run")
        target.tell("400")
        attached.end()
        target.end()
    profile = load_profile(tmp_path / "run")
    counts = [
        stack.count
        for stack in stacks_of(profile)
        if stack.max_size > 5000 and any("planted" in f for f in functions_on_stack(profile, stack.node))
    ]
    assert sum(counts) == 400


@pytest.mark.parametrize("turns", [6])
def test_waits_are_not_disturbed(program: Path, tmp_path: Path, turns: int) -> None:
    """Threads in read, nanosleep, epoll_wait, sem_wait and sigwaitinfo, with every signal blocked."""
    with running(program, "waits") as target:
        for turn in range(turns):
            Recorder(target.pid, tmp_path / str(turn)).end()
        target.tell("go on", "undisturbed")
        target.end()


def test_a_stopped_process_stays_so(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        target.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOWAIT)
        Recorder(target.pid, tmp_path / "run").end()
        # The stop is delivered anew when the recorder lets go, which a busy machine does a little later.
        end = time.monotonic() + LIMIT_S
        while "State:\tT" not in Path(f"/proc/{target.pid}/status").read_text():
            assert time.monotonic() < end, "the process runs"
            time.sleep(0.01)
        target.process.send_signal(signal.SIGCONT)
        target.tell("keep 1")
        target.end()


def test_signals_meanwhile_are_delivered(program: Path, tmp_path: Path) -> None:
    with running(program, "signals") as target:
        for turn in range(8):
            starting = subprocess.Popen(
                [
                    engines_folder() / "assay-heap",
                    "record",
                    "--budget",
                    "0.05",
                    "--attach",
                    str(target.pid),
                    tmp_path,
                ],
                stdout=subprocess.DEVNULL,
            )
            target.process.send_signal(signal.SIGUSR1)
            target.tell("how many?", f"{turn + 1} signals")
            assert starting.wait(timeout=LIMIT_S) == 0
        target.end()


def wait_until_all_threads_ran(pid: int, on_processor_s: float = 0.02) -> None:
    """Waits until each thread but the first has had this much time on a processor. Another thread may have had much
    more by then, on a busy machine."""

    def seconds() -> dict[str, float]:
        tasks = Path(f"/proc/{pid}/task")
        return {
            task: int((tasks / task / "schedstat").read_text().split()[0]) / 1e9
            for task in os.listdir(tasks)
            if task != str(pid)
        }

    before, limit = seconds(), time.monotonic() + LIMIT_S
    while any(now - before[task] < on_processor_s for task, now in seconds().items()):
        assert time.monotonic() < limit, "a thread does not run"
        time.sleep(0.005)


@pytest.mark.parametrize("allocator", ["", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"])
def test_threads_that_do_nothing_else(program: Path, tmp_path: Path, allocator: str) -> None:
    if (
        allocator
        and allocator not in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    ):
        pytest.skip(f"no {allocator}")
    with running(program, "tight", environment={"LD_PRELOAD": allocator} if allocator else None) as target:
        for turn in range(20 if not allocator else 4):
            Recorder(target.pid, tmp_path / str(turn)).end()
        attached = Attached(target.pid, tmp_path / "run")
        wait_until_all_threads_ran(target.pid)
        attached.end()
        lines = target.end()
    assert lines[-1] == "0 wrong"
    profile = load_profile(tmp_path / "run")
    assert len(profile.threads) == 4 and all(thread.calls["malloc"].count > 100 for thread in profile.threads)


def test_a_fork_is_a_process_of_its_own(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        attached = Attached(target.pid, tmp_path / "run")
        target.tell("keep 5")
        target.tell("fork 9")
        attached.end()
        target.end()
    profiles = {p.process.pid == target.pid: p for p in load_profiles(tmp_path / "run")}
    assert total_of(profiles[True], "new_block").count == 5
    assert (
        total_of(profiles[False], "child_block").count == 9 and profiles[False].process.parent == target.pid
    )


def test_an_exec_ends_it(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        attached = Attached(target.pid, tmp_path / "run")
        target.tell("keep 5")
        target.tell("exec", "ready")
        output = attached.end(None)
        target.tell("keep 3")
        Recorder(target.pid, tmp_path / "again").end()
        target.end()
    assert "runs another program now" in output
    assert total_of(load_profile(tmp_path / "run"), "new_block").count == 5


def test_killed_meanwhile(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        attached = Attached(target.pid, tmp_path / "run")
        target.tell("keep 50")
        target.process.kill()
        output = attached.end(None)
    assert "the recording ended early" in output
    assert total_of(load_profile(tmp_path / "run"), "new_block").leaked == 50_000


def test_the_recorder_is_killed(program: Path, tmp_path: Path) -> None:
    """The program goes on without waiting, the hooks are removed, and it can be attached to again."""
    with running(program, "tight") as target:
        recorder = Recorder(target.pid, tmp_path / "killed")
        until = time.monotonic() + 30
        while not any(path.stat().st_size > 1 << 20 for path in (tmp_path / "killed").glob("*.heap")):
            assert time.monotonic() < until
            time.sleep(0.01)
        arenas = arenas_of(target.pid)
        recorder.process.kill()
        recorder.process.wait()
        while arenas.exists():  # the program deletes them when its buffers are full
            assert time.monotonic() < until
            time.sleep(0.01)
        Recorder(target.pid, tmp_path / "again").end()
        assert target.end()[-1] == "0 wrong"
    (trace,) = (tmp_path / "killed").glob("*.heap")
    analysis = subprocess.run(
        [engines_folder() / "assay-heap", "analyse", trace], capture_output=True, timeout=LIMIT_S
    )
    assert analysis.returncode == 0 and b'"complete":false' in analysis.stdout.replace(b" ", b"")


def test_nothing_is_left_of_it(program: Path, tmp_path: Path) -> None:
    """All words of the global offset tables are as before, except those that were unbound."""
    with running(program, "obeys") as target:
        recorder = Recorder(target.pid, tmp_path / "run")
        arenas = arenas_of(target.pid)
        assert arenas.is_dir()
        recorder.end()
        assert not arenas.exists()
        library = str(engines_folder().resolve() / "libassay-heap.so")
        lines = Path(f"/proc/{target.pid}/maps").read_text().splitlines()
        code = [int(line.split("-")[0], 16) for line in lines if line.endswith(library)]
        ends = [int(line.split("-")[1].split()[0], 16) for line in lines if line.endswith(library)]
        with Path(f"/proc/{target.pid}/mem").open("rb") as memory:
            for line in lines:
                fields = line.split()
                if (
                    len(fields) < 6
                    or not fields[5].startswith("/")
                    or fields[5] == library
                    or fields[5].endswith(".arena")
                ):
                    continue
                begin, end = (int(word, 16) for word in fields[0].split("-"))
                if "ld-linux" in fields[5] or not fields[1].startswith("r"):
                    continue  # the loader's list of objects
                memory.seek(begin)
                words = memoryview(memory.read(end - begin)).cast("Q")
                assert not [hex(word) for word in words if min(code) <= word < max(ends)], line
        target.end()


def test_processes_that_cannot_be_attached_to(program: Path, planted: Path, tmp_path: Path) -> None:
    def refusal(pid: int) -> str:
        run = tmp_path / "not"
        error = usage_error("attach", str(pid), "-o", str(run), cwd=tmp_path)
        assert error.count("\n") == 1, error
        assert not run.exists()
        return error

    assert "there is no process 99999999" in refusal(99999999)
    assert "there is no process 0" in refusal(0)
    assert "is a thread of the kernel" in refusal(2) or "there is no process 2" in refusal(2)
    static = compiled(tmp_path / "static", "running.c", "-static")
    with running(static) as target:
        assert "is statically linked" in refusal(target.pid)
    with running(program) as target:
        recorder = Recorder(target.pid, tmp_path / "recorded")
        assert "is already being recorded" in refusal(target.pid)
        recorder.end()
        with traced(target.pid):
            assert "is being traced by" in refusal(target.pid)
        target.end()


def test_a_debugger_that_comes_meanwhile(program: Path, tmp_path: Path) -> None:
    """The recorder cannot remove the hooks then: they remove themselves."""
    with running(program, "tight") as target:
        recorder = Recorder(target.pid, tmp_path / "run")
        with traced(target.pid):
            recorder.process.send_signal(signal.SIGINT)
            _, problems = recorder.process.communicate(timeout=LIMIT_S)
            assert "its hooks take themselves out" in problems and "being traced" in problems
        Recorder(target.pid, tmp_path / "again").end()
        assert target.end()[-1] == "0 wrong"


def test_another_users_process(program: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("being another user needs root")
    nobody: dict[str, Any] = {"user": 65534, "group": 65534}
    library = engines_folder().resolve() / "libassay-heap.so"
    if subprocess.run(["test", "-r", library], **nobody).returncode != 0:
        pytest.skip("optional: no other user may read this checkout")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        others = shutil.copy(program, folder)
        with running(others, "obeys", **nobody) as target:
            attached = Attached(target.pid, tmp_path / "run")
            target.tell("keep 30")
            attached.end()
            target.end()
    assert total_of(load_profile(tmp_path / "run"), "new_block").count == 30
    with running(program, "obeys") as target:
        command = [engines_folder() / "assay-heap", "record", "--attach", str(target.pid), "/tmp"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, **nobody)
        assert done.returncode == 2 and "belongs to another user" in done.stderr
        target.end()


ALOOF = """
import ctypes, sys
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE
print("ready", flush=True)
sys.stdin.read()
sys.exit(7)
"""


def test_a_process_that_keeps_others_out() -> None:
    """Also a process that refuses tracing itself: the system's setting would affect the whole machine."""
    nobody: dict[str, Any] = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
    recorder = engines_folder() / "assay-heap"
    if nobody and subprocess.run(["test", "-x", recorder], **nobody).returncode != 0:
        pytest.skip("optional: no other user may read this checkout")

    def refusal(pid: int, root: str) -> str:
        command = [recorder, "record", "--attach", str(pid), "/tmp"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=os.environ | {"ASSAY_ROOT": root},
            **nobody,
        )
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    with (
        running("/usr/bin/python3", "-c", ALOOF, **nobody) as target,
        tempfile.TemporaryDirectory() as planted,
    ):
        Path(planted).chmod(0o755)
        rule = Path(planted) / "proc/sys/kernel/yama/ptrace_scope"
        rule.parent.mkdir(parents=True)
        rule.write_text("0\n")
        assert f"process {target.pid} may not be attached to" in refusal(target.pid, planted)
        rule.write_text("1\n")
        assert f"{rule} is 1; fix: become root, or write 0 to that file" in refusal(target.pid, planted)
        target.end()


def test_a_program_of_32_bits(tmp_path: Path) -> None:
    other = compiled(
        tmp_path / "other32", "other32.c", "-m32", "-nostdlib", "-static", "-fno-stack-protector"
    )
    try:
        subprocess.run([other], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LIMIT_S)
    except OSError as error:
        pytest.skip(f"optional: the kernel runs no programs of 32 bits: {error.strerror}")
    with running(other) as target:
        refusal = usage_error("attach", str(target.pid), "-o", str(tmp_path / "run"), cwd=tmp_path)
        assert "runs a program of another architecture" in refusal and refusal.count("\n") == 1
        target.end()


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    assert "'heap attach' takes no program" in usage_error("attach", "1", "--", "true", cwd=tmp_path)
    assert "unrecognised: --budget" in usage_error("--budget", "1s", "--", "true", cwd=tmp_path)
    assert "not a time above zero" in usage_error("attach", "1", "--budget=-1", cwd=tmp_path)


def test_a_program_that_assay_has_started(program: Path, tmp_path: Path) -> None:
    command = [ASSAY, "heap", "-o", tmp_path / "run", "--", program, "obeys"]
    with running(*command) as target:
        children = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split()
        (recorder,) = children
        (pid,) = Path(f"/proc/{recorder}/task/{recorder}/children").read_text().split()
        error = usage_error("attach", pid, "-o", tmp_path / "second", cwd=tmp_path)
        assert "is already being recorded" in error
        assert target.process.stdin is not None
        target.process.stdin.close()
        assert target.process.wait(timeout=LIMIT_S) == 7
