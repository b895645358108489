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
from heap_attached import EXIT_CODE, AttachedProfiler, Recorder, RunningProgram, compile_source, running
from heap_runs import (
    ASSAY,
    LIMIT_S,
    REQUIREMENTS,
    arena_folder,
    can_trace_page_faults,
    finding_causes,
    functions_on_stack,
    load_profile,
    stack_metrics,
    total_of_function,
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
    return compile_source(tmp_path_factory.mktemp("running") / "running", "running.c")


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


def test_allocations_while_attached_are_recorded_exactly(program: Path, tmp_path: Path) -> None:
    with running(program, "counts") as target:
        target.execute("keep 500")
        outputs = {}
        for run_name, blocks in (("first", 1000), ("second", 10)):
            attached = AttachedProfiler(target.pid, tmp_path / run_name)
            target.execute(f"keep {blocks}")
            target.await_numbers(2)  # the second one was allocated while the profiler was attached
            outputs[run_name] = attached.end()
            target.execute("keep 7")
        lines = target.end()
    # The words of 500 + 1000 blocks were in the array when the first recording ended.
    (array,) = (v for v in load_profile(tmp_path / "first").variables if v.name == "blocks")
    assert array.resident is not None and 8 * 1500 <= array.resident <= 8 * 1500 + 2 * 4096
    for run_name, blocks in (("first", 1000), ("second", 10)):
        node = total_of_function(load_profile(tmp_path / run_name), "new_block")
        assert (node.count, node.bytes, node.leaked_count) == (blocks, 1000 * blocks, blocks)
        assert total_of_function(load_profile(tmp_path / run_name), "count").bytes % 64 == 0
        assert re.search(
            rf"attached to {target.pid} for \d+\.\d s, \d+\.\d s after its start", outputs[run_name]
        )
        assert (
            f"left {target.pid}: it goes on" in outputs[run_name]
            and "may still be freed" in outputs[run_name]
        )
        assert not any("never freed" in cause for cause in finding_causes(tmp_path / run_name))
    numbers = [int(line.split()[1]) for line in lines if line.startswith("number")]
    assert numbers == list(range(len(numbers))) and len(numbers) > 10
    assert lines[-1] == "end"


def test_blocks_allocated_before_attaching_are_counted_separately(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        target.execute("keep 300")
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        target.execute("grow 5000")
        target.execute("keep 20")
        target.execute("release")
        output = attached.end()
        target.end()
    profile = load_profile(tmp_path / "run")
    assert "leaked" not in {
        record.metric for record in Run.load(tmp_path / "run").records if isinstance(record, Measurement)
    }
    assert (total_of_function(profile, "execute").count, total_of_function(profile, "execute").bytes) == (
        300,
        300 * 5000,
    )
    assert (
        total_of_function(profile, "new_block").count == 20
        and total_of_function(profile, "new_block").leaked == 0
    )
    assert profile.totals.unknown_frees == 300 and "300 of them were freed or reallocated" in output
    assert profile.totals.leaked == 0 and profile.fragmentation is None


def test_a_library_loaded_while_attached_is_recorded(program: Path, tmp_path: Path) -> None:
    late = compile_source(tmp_path / "late.so", "late.c", "-shared", "-fPIC")
    with running(program, "obeys") as target:
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        target.execute(f"load {late}")
        attached.end()
        target.end()
    assert total_of_function(load_profile(tmp_path / "run"), "of_library").count == 300


def test_recording_until_the_program_ends(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        target.execute("keep 100")
        target.execute("toss 30")
        target.end()
        output = attached.end(None)
    profile = load_profile(tmp_path / "run")
    assert profile.process.complete and not profile.process.detached
    assert "leaked" in {
        record.metric for record in Run.load(tmp_path / "run").records if isinstance(record, Measurement)
    }
    assert total_of_function(profile, "new_block").leaked == 100_000 and "not freed" in output
    (tossed,) = (stack for stack in stack_metrics(profile) if stack.bytes == 3000)
    assert {"t", "new_block"} <= functions_on_stack(profile, tossed.node)


@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_first_touches_while_attached_are_counted(program: Path, tmp_path: Path) -> None:
    """Pages touched by two existing threads and by a later one: each is counted once."""
    pages = {"touch 20": 20 * 256, "let it touch 12": 12 * 256, "let another touch 7": 7 * 256}
    with running(program, "counts") as target:
        target.execute("touch 5")
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        for line in pages:
            target.execute(line)
        attached.end()
        target.execute("touch 3")
        target.end()
    touches = load_profile(tmp_path / "run").touches
    assert touches is not None
    (line,) = [k for k, name in enumerate(touches.line_function) if name.startswith("touched")]
    assert abs(touches.line_pages[line] - sum(pages.values())) <= len(pages)
    assert sorted(pages.values()) == pytest.approx(sorted(touches.thread_pages), abs=50)
    with running(program, "obeys") as target:
        attached = AttachedProfiler(target.pid, tmp_path / "without", "--no-faults")
        target.execute("touch 1")
        attached.end()
        target.end()
    assert load_profile(tmp_path / "without").touches is None


def test_recording_ends_after_the_budget(program: Path, tmp_path: Path) -> None:
    with running(program, "counts") as target:
        output = AttachedProfiler(target.pid, tmp_path / "run", "--budget", "200ms").end(None)
        target.end()
    assert "for 200 ms, or until Ctrl-C" in output and "it goes on" in output
    assert load_profile(tmp_path / "run").process.seconds >= 0.2


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
def test_python_functions_of_an_attached_interpreter(tmp_path: Path) -> None:
    with running("/usr/bin/python3", "-c", PYTHON) as target:
        target.execute("50")
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        target.execute("400")
        attached.end()
        target.end()
    profile = load_profile(tmp_path / "run")
    counts = [
        stack.count
        for stack in stack_metrics(profile)
        if stack.max_size > 5000 and any("planted" in f for f in functions_on_stack(profile, stack.node))
    ]
    assert sum(counts) == 400


@pytest.mark.parametrize("turns", [6])
def test_attaching_does_not_interrupt_system_calls(program: Path, tmp_path: Path, turns: int) -> None:
    """Threads in read, nanosleep, epoll_wait, sem_wait and sigwaitinfo, with every signal blocked."""
    with running(program, "waits") as target:
        for turn in range(turns):
            Recorder(target.pid, tmp_path / str(turn)).end()
        target.execute("go on", "undisturbed")
        target.end()


def stop(target: RunningProgram, line: str) -> None:
    """Has the program execute a line that stops it, and waits until it has stopped."""
    assert target.process.stdin is not None
    target.process.stdin.write(line + "\n")
    target.process.stdin.flush()
    os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOWAIT)


def test_a_stopped_process_stays_stopped(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        stop(target, "stop")
        Recorder(target.pid, tmp_path / "run").end()
        # The kernel delivers the stop again after the recorder has detached, on a busy machine a little later.
        end = time.monotonic() + LIMIT_S
        while "State:\tT" not in Path(f"/proc/{target.pid}/status").read_text():
            assert time.monotonic() < end, "the process runs"
            time.sleep(0.01)
        target.process.send_signal(signal.SIGCONT)
        target.await_line("done")
        target.execute("keep 1")
        target.end()


def test_a_process_that_is_stopped_where_it_cannot_be_attached_to(program: Path, tmp_path: Path) -> None:
    """A stopped process never leaves the loader, so the refusal is at once and says what to do."""
    late = compile_source(tmp_path / "stops.so", "late.c", "-shared", "-fPIC", "-DSTOPS")
    with running(program, "obeys") as target:
        stop(target, f"load {late}")
        error = usage_error("attach", str(target.pid), "-o", str(tmp_path / "refused"), cwd=tmp_path)
        assert f"process {target.pid} is stopped inside the loader" in error and error.count("\n") == 1
        assert f"kill -CONT {target.pid}" in error
        target.process.send_signal(signal.SIGCONT)
        target.await_line("done")
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        target.execute("keep 10")
        attached.end()
        target.end()
    assert total_of_function(load_profile(tmp_path / "run"), "new_block").count == 10


def test_signals_during_attach_are_delivered(program: Path, tmp_path: Path) -> None:
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
            target.execute("how many?", f"{turn + 1} signals")
            assert starting.wait(timeout=LIMIT_S) == 0
        target.end()


def wait_until_all_threads_ran(pid: int) -> None:
    """Waits until each thread but the first has had 20 ms on a processor. Another thread may have had much
    more by then, on a busy machine."""

    def seconds() -> dict[str, float]:
        tasks = Path(f"/proc/{pid}/task")
        return {
            task: int((tasks / task / "schedstat").read_text().split()[0]) / 1e9
            for task in os.listdir(tasks)
            if task != str(pid)
        }

    before, limit = seconds(), time.monotonic() + LIMIT_S
    while any(now - before[task] < 0.02 for task, now in seconds().items()):
        assert time.monotonic() < limit, "a thread does not run"
        time.sleep(0.005)


# At which moments the threads are stopped is chance: often in the middle of malloc.
@pytest.mark.acceptance("profile")
@pytest.mark.parametrize("allocator", ["", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"])
def test_attaching_to_threads_that_allocate_without_pause(
    program: Path, tmp_path: Path, allocator: str
) -> None:
    if (
        allocator
        and allocator not in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    ):
        pytest.skip(f"no {allocator}")
    with running(program, "tight", environment={"LD_PRELOAD": allocator} if allocator else None) as target:
        for turn in range(20 if not allocator else 4):
            Recorder(target.pid, tmp_path / str(turn)).end()
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        wait_until_all_threads_ran(target.pid)
        attached.end()
        lines = target.end()
    assert lines[-1] == "0 wrong"
    profile = load_profile(tmp_path / "run")
    assert len(profile.threads) == 4 and all(thread.calls["malloc"].count > 100 for thread in profile.threads)


def test_a_child_forked_while_attached_has_its_own_profile(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        target.execute("keep 5")
        target.execute("fork 9")
        attached.end()
        target.end()
    profiles = {p.process.pid == target.pid: p for p in load_profiles(tmp_path / "run")}
    assert total_of_function(profiles[True], "new_block").count == 5
    assert (
        total_of_function(profiles[False], "child_block").count == 9
        and profiles[False].process.parent == target.pid
    )


def test_an_exec_ends_the_recording(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        target.execute("keep 5")
        target.execute("exec", "ready")
        output = attached.end(None)
        target.execute("keep 3")
        Recorder(target.pid, tmp_path / "again").end()
        target.end()
    assert "runs another program now" in output
    assert total_of_function(load_profile(tmp_path / "run"), "new_block").count == 5


def test_the_profile_of_a_program_killed_while_attached(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        attached = AttachedProfiler(target.pid, tmp_path / "run")
        target.execute("keep 50")
        target.process.kill()
        output = attached.end(None)
    assert "the recording ended early" in output
    assert total_of_function(load_profile(tmp_path / "run"), "new_block").leaked == 50_000


FULL_BUFFERS = 20_000  # blocks that are freed at once: several buffers of events


def assert_attaches_again(target: RunningProgram, run: Path) -> None:
    """The program, whose hooks were left in it, goes on, takes them out, and can be recorded again."""
    target.execute(f"toss {FULL_BUFFERS}")
    attached = AttachedProfiler(target.pid, run)
    target.execute("keep 10")
    attached.end()
    target.end()
    assert total_of_function(load_profile(run), "new_block").count == 10


def test_a_killed_recorder_leaves_a_thread_unharmed(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        recorder = Recorder(target.pid, tmp_path / "killed")
        recorder.process.kill()
        recorder.process.wait()
        assert_attaches_again(target, tmp_path / "run")


@pytest.mark.acceptance("profile")  # attaches to threads that allocate without pause
def test_a_killed_recorder_leaves_the_program_unharmed(program: Path, tmp_path: Path) -> None:
    """The program goes on without waiting, the hooks are removed, and it can be attached to again."""
    with running(program, "tight") as target:
        recorder = Recorder(target.pid, tmp_path / "killed")
        until = time.monotonic() + LIMIT_S
        while not any(path.stat().st_size > 1 << 20 for path in (tmp_path / "killed").glob("*.heap")):
            assert time.monotonic() < until
            time.sleep(0.01)
        arenas = arena_folder(target.pid)
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


def test_detaching_removes_all_hooks_and_buffers(program: Path, tmp_path: Path) -> None:
    """No word in the process's files that are mapped points into the library of the hooks."""
    with running(program, "obeys") as target:
        recorder = Recorder(target.pid, tmp_path / "run")
        arenas = arena_folder(target.pid)
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
    static = compile_source(tmp_path / "static", "running.c", "-static")
    with running(static) as target:
        assert "is statically linked" in refusal(target.pid)
    with running(program) as target:
        recorder = Recorder(target.pid, tmp_path / "recorded")
        assert "is already being recorded" in refusal(target.pid)
        recorder.end()
        with traced(target.pid):
            assert "is being traced by" in refusal(target.pid)
        target.end()


def test_processes_of_other_containers_are_refused_and_unharmed(program: Path, tmp_path: Path) -> None:
    def refusal(target: RunningProgram, pid: int) -> str:
        error = usage_error("attach", str(pid), "--budget", "5s", "-o", str(tmp_path / "not"), cwd=tmp_path)
        assert error.count("\n") == 1 and not (tmp_path / "not").exists(), error
        target.execute("keep 5")
        return error

    unshare = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with running(*unshare, program) as target:
        (pid,) = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split()
        error = refusal(target, int(pid))
        assert f"process {pid} is in another container; fix: run Assay in that container" in error
        assert target.process.stdin is not None
        target.process.stdin.close()
        assert target.process.wait(timeout=LIMIT_S) == EXIT_CODE
    hidden = f"mount -t tmpfs tmpfs '{engines_folder()}' && exec '{program}'"
    with running("unshare", "--map-root-user", "--mount", "sh", "-c", hidden) as target:
        error = refusal(target, target.pid)
        assert "it is in another container or root; fix: run Assay in that container or root" in error
        target.end()


def test_hooks_of_a_thread_remove_themselves_while_a_debugger_traces(program: Path, tmp_path: Path) -> None:
    with running(program, "obeys") as target:
        recorder = Recorder(target.pid, tmp_path / "traced")
        with traced(target.pid):
            recorder.process.send_signal(signal.SIGINT)
            _, problems = recorder.process.communicate(timeout=LIMIT_S)
            assert "its hooks take themselves out" in problems and "being traced" in problems
        assert_attaches_again(target, tmp_path / "run")


@pytest.mark.acceptance("profile")  # attaches to threads that allocate without pause
def test_hooks_remove_themselves_while_a_debugger_traces(program: Path, tmp_path: Path) -> None:
    """A recorder that cannot trace the process cannot remove the hooks, so they remove themselves."""
    with running(program, "tight") as target:
        recorder = Recorder(target.pid, tmp_path / "run")
        with traced(target.pid):
            recorder.process.send_signal(signal.SIGINT)
            _, problems = recorder.process.communicate(timeout=LIMIT_S)
            assert "its hooks take themselves out" in problems and "being traced" in problems
        Recorder(target.pid, tmp_path / "again").end()
        assert target.end()[-1] == "0 wrong"


def test_root_attaches_to_another_users_process_and_users_do_not(program: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("being another user needs root")
    nobody: dict[str, Any] = {"user": 65534, "group": 65534}
    library = engines_folder().resolve() / "libassay-heap.so"
    if subprocess.run(["test", "-r", library], **nobody).returncode != 0:
        pytest.skip("optional: no other user may read this checkout")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copy = shutil.copy(program, folder)
        with running(copy, "obeys", **nobody) as target:
            attached = AttachedProfiler(target.pid, tmp_path / "run")
            target.execute("keep 30")
            attached.end()
            target.end()
    assert total_of_function(load_profile(tmp_path / "run"), "new_block").count == 30
    with running(program, "obeys") as target:
        command = [engines_folder() / "assay-heap", "record", "--attach", str(target.pid), "/tmp"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, **nobody)
        assert done.returncode == 2 and "belongs to another user" in done.stderr
        target.end()


UNDUMPABLE = """
import ctypes, sys
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE
print("ready", flush=True)
sys.stdin.read()
sys.exit(7)
"""


def test_processes_that_refuse_tracing_are_named() -> None:
    """A process that is not dumpable refuses tracing. Yama's setting is planted, since the real one is the
    machine's."""
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
        running("/usr/bin/python3", "-c", UNDUMPABLE, **nobody) as target,
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


def test_a_32_bit_program_is_refused(tmp_path: Path) -> None:
    other = compile_source(
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


def test_contradicting_options_are_refused(tmp_path: Path) -> None:
    assert "'heap attach' takes no program" in usage_error("attach", "1", "--", "true", cwd=tmp_path)
    assert "unrecognised: --budget" in usage_error("--budget", "1s", "--", "true", cwd=tmp_path)
    assert "not a time above zero" in usage_error("attach", "1", "--budget=-1", cwd=tmp_path)


def test_attaching_to_a_recorded_program_is_refused(program: Path, tmp_path: Path) -> None:
    command = [ASSAY, "heap", "-o", tmp_path / "run", "--", program, "obeys"]
    with running(*command) as target:
        children = Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split()
        (recorder,) = children
        (pid,) = Path(f"/proc/{recorder}/task/{recorder}/children").read_text().split()
        error = usage_error("attach", pid, "-o", tmp_path / "second", cwd=tmp_path)
        # The recorder may not have found the program yet.
        assert "is already being recorded" in error or "was started by 'assay heap'" in error
        assert target.process.stdin is not None
        target.process.stdin.close()
        assert target.process.wait(timeout=LIMIT_S) == 7
