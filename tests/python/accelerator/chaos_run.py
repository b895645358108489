"""Runs a planned job of the chaos test, recovers its stores, and checks the files before and after (chaos_check.py)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from background import drains_of, end_drains, faulty_drain
from chaos_check import Violation, check_errors, check_files, check_medium, check_reads, check_synchronised
from chaos_log import read_log
from chaos_medium import unsafe_bytes
from chaos_plan import BYPASSES_STORE, KILLS, SLOW, Plan
from chaos_replay import Replay
from chaos_stacks import connections, stacks_of
from mpi_programs import AS_ROOT, MPIRUN, ROOT, accelerated, patient

from assay import cli
from assay.launch.preload import with_environment

PROGRAMS = ROOT / "build/tests/chaos_io"
SHIM = ROOT / "build/tests/faulty_fs/libfaulty-fs.so"
LIMIT_S = 240  # against hangs


@dataclass(frozen=True)
class CommandResult:
    """The result of a command. ``status``: None if it did not end within the limit."""

    status: int | None
    output: str


@dataclass
class Result:
    plan: Plan
    violations: list[Violation]
    seconds: float
    folder: Path | None  # kept, if something is wrong
    output: str = ""


def run_plan(plan: Plan, keep: bool = False, stock: bool = False) -> Result:
    """``stock``: with the MPI's own I/O, which tests the checker."""
    begin = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="assay-chaos-", dir="/dev/shm"))
    job = _Job(plan, folder, stock)
    remove_locks(plan)
    violations = job.run()
    remove_locks(plan)
    kept = folder if violations and (keep or job.stacks) else None
    if not kept:
        shutil.rmtree(folder)
    return Result(plan, violations, time.monotonic() - begin, kept, job.output)


def remove_locks(plan: Plan) -> None:
    """Removes Open MPI's semaphores for shared file pointers. A killed rank leaves its own taken, and each later open
    of a file of that name on this node waits for it without end, without the accelerator too."""
    for semaphore in Path("/dev/shm").glob(f"sem.OMPIO_{plan.name_prefix}*"):
        semaphore.unlink(missing_ok=True)


class _Job:
    def __init__(self, plan: Plan, folder: Path, stock: bool) -> None:
        self.plan = plan
        self.stock = stock
        self.folder = folder
        self.files, self.stores = folder / "files", folder / "stores"
        self.files.mkdir()
        self.stores.mkdir()
        (folder / "plan").write_text(plan.text())
        self.violations: list[Violation] = []
        self.output = self.stacks = ""

    def run(self) -> list[Violation]:
        ended = self._start()
        self.output = ended.output
        if ended.status is None:
            self._add("no end", f"the job did not end within {LIMIT_S} s; its processes:\n{self.stacks}")
        (self.folder / "fault").unlink(missing_ok=True)  # from here on the file system is well
        replay = Replay(self.plan, [read_log(self.folder, rank) for rank in range(self.plan.ranks)])
        self._wait_for_drains()
        left = sorted(self.stores.iterdir())
        self._check_messages(ended, replay, left)
        after, at_end = unsafe_bytes(
            self.folder / "fs.log",
            self.plan.operations,
            self.plan.node,
            close_reports=self.plan.level == "file",
        )
        self.violations += check_errors(self.plan, replay, after)
        self.violations += check_reads(replay)
        if not self.stock:  # its close does not synchronise
            self.violations += check_synchronised(replay, after)
        # A background drain brings what recovery would bring.
        drained = self.plan.level == "memory" and not left
        self.violations += check_files(self.plan, replay, self.files, recovered=drained)
        if drained:
            inodes = {path.name: path.stat().st_ino for path in self.files.iterdir()}
            self.violations += check_medium(
                replay, {name: at_end[k] for name, k in inodes.items() if k in at_end}
            )
        for store in left:
            self._recover(store, replay)
        self.violations += check_files(self.plan, replay, self.files, recovered=True)
        return self.violations

    def _add(self, kind: str, text: str) -> None:
        self.violations.append(Violation(kind, text))

    # ---- the job

    def _environment(self) -> dict[str, str]:
        """The environment of the ranks."""
        plan = self.plan
        if self.stock:
            env = patient(plan.mpi, str(SHIM))
            return {"LD_PRELOAD": str(SHIM)} | env | self._faults()
        env = accelerated(
            plan.mpi,
            self.stores,
            ASSAY_IO_SIZE=str(plan.store_size),
            ASSAY_IO_RANKS_PER_NODE=str(plan.ranks_per_node),
            ASSAY_IO_CONSISTENCY=plan.consistency,
            ASSAY_IO_WARM="0.01",
            ASSAY_IO_DIRECT=str(int(plan.direct)),
            ASSAY_IO_REQUIRE=str(int(plan.fault not in BYPASSES_STORE)),
            ASSAY_IO_UNTIL=plan.level,
            **faulty_drain(self.folder, self._faults()),
        )
        return env | {"LD_PRELOAD": f"{env['LD_PRELOAD']}:{SHIM}"} | self._faults()

    def _log(self) -> dict[str, str]:
        return {"FAULTY_FS_FILES": f"{self.files}/*", "FAULTY_FS_LOG": str(self.folder / "fs.log")}

    def _faults(self) -> dict[str, str]:
        env = self._log()
        if self.plan.rule:
            env |= {"FAULTY_FS": self.plan.rule, "FAULTY_FS_WHILE": str(self.folder / "fault")}
        return env | ({"FAULTY_FS_ONCE": "1"} if self.plan.fault_once else {})

    def _start(self) -> CommandResult:
        plan = self.plan
        program = [str(PROGRAMS / f"chaos_io-{plan.mpi}"), str(self.folder), str(self.folder / "plan")]
        launcher = [*MPIRUN[plan.mpi], "-n", str(plan.ranks)]
        if plan.fault == "dead_rank":
            launcher.insert(1, "-disable-auto-cleanup")
        env = self._environment()
        if self.stock or not plan.through_io_run:
            command, extra = with_environment([*launcher, *program], env)
            return self._wait(start_command(command, os.environ | AS_ROOT | extra, self.folder / "output"))
        # The ranks' settings go through ``env``, because those of ``assay io run`` are not all of them.
        settings = [f"{name}={value}" for name, value in env.items() if not name.startswith("ASSAY_IO_STORE")]
        arguments = [
            "io",
            "run",
            "--store",
            str(self.stores),
            "--store-size",
            str(plan.store_size),
            "--mpi",
            plan.mpi,
        ]
        arguments += ["--consistency", plan.consistency]
        arguments += ["--until", plan.level]
        # The log has the recovery by ``assay io run``. If the file system fails for ever, it fails there too.
        tool = {"LD_PRELOAD": str(SHIM)} | (self._log() if plan.fault_ends else self._faults())
        return self._wait(
            fork_assay(
                [*arguments, "--", *launcher, "env", *settings, *program],
                AS_ROOT | tool,
                self.folder / "output",
            )
        )

    def _wait(self, pid: int) -> CommandResult:
        """Waits for a command and for the ranks that its launcher has left."""
        if self.plan.kill_drain_s:
            time.sleep(self.plan.kill_drain_s)
            end_drains(self.stores)
        status = wait_for(pid, LIMIT_S)
        if status is None:
            self._note_stacks()
        deadline = time.monotonic() + (5 if status is not None else 0)
        while (left := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in left:
            kill(process)
        if status is None:
            kill(pid)
            wait_for(pid, 10)
        while self._processes():
            time.sleep(0.01)
        return CommandResult(status, (self.folder / "output").read_text(errors="replace"))

    def _note_stacks(self) -> None:
        """Keeps the stacks of processes that do not end, which show what they wait for."""
        pids = [*self._processes(), *drains_of(self.stores)]
        self.stacks = "\n".join([*(stacks_of(pid) for pid in pids), connections()])
        (self.folder / "stacks").write_text(self.stacks)

    def _processes(self) -> list[int]:
        """The processes of this job, which have its folder among their arguments."""
        found = []
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                arguments = Path(entry.path, "cmdline").read_bytes()
            except OSError:
                continue
            if b"\0background\0" in arguments:
                continue  # a background drain, which may outlive the job
            if str(self.folder).encode() in arguments and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        return found

    def _wait_for_drains(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while drains_of(self.stores):
            if time.monotonic() > deadline:
                self._note_stacks()
                self._add("no end", f"a background drain does not end:\n{self.stacks}")
                return end_drains(self.stores)
            time.sleep(0.01)

    # ---- messages, and stores that are left

    def _check_messages(self, ended: CommandResult, replay: Replay, left: list[Path]) -> None:
        plan = self.plan
        killed = plan.fault in KILLS
        unnamed = [store.name for store in left if str(store) not in ended.output]
        if unnamed and not plan.kill_drain_s and (not killed or plan.through_io_run):
            self._add("store not named", f"{', '.join(unnamed)} is kept, and no line names it")
        if left and plan.through_io_run and plan.level == "file" and ended.status == 0:
            self._add("exit status", "assay io run exits with 0 although a store is kept")
        if killed and ended.status == 0:
            self._add("exit status", "the job exits with 0 although a rank was killed")
        failed = any(replay.errors())
        if killed or failed or left or ended.status is None:
            return
        kept_is_announced = plan.level == "memory" and "holds data that are not" in ended.output
        if ended.status != 0 and not kept_is_announced:
            self._add(
                "exit status",
                f"the job exits with {ended.status} although nothing failed: {ended.output[-300:]}",
            )
        expected = ["in the background", *(["no background drain"] if plan.kill_drain_s else [])]
        unexpected = [
            line for line in ended.output.splitlines() if not any(text in line for text in expected)
        ]
        if unexpected and (plan.fault == "none" or plan.fault in SLOW):
            self._add("unexpected output", "\n".join(unexpected)[-300:])

    def _recover(self, store: Path, replay: Replay) -> None:
        """Recovers a store. Data of deleted files are discarded in a second attempt."""
        has_deleted_files = any(file.name is None for file in replay.files)
        attempts = [[], *([["--discard"]] if has_deleted_files else [])]
        messages = []
        for options in attempts:
            ended = self._assay("io", "recover", *options, str(store))
            messages.append(ended.output.strip()[-300:])
            if ended.status == 0 and not store.exists():
                return
            if ended.status == 0:
                self._add("store remains", f"assay io recover exits with 0, but {store.name} is there")
                return
            if ended.status is None:
                self._add("no end", "assay io recover did not end")
        self._add("recovery fails", " | ".join(messages))

    def _assay(self, *arguments: str) -> CommandResult:
        output = self.folder / "recovery"
        status = wait_for(fork_assay(list(arguments), {}, output), LIMIT_S)
        return CommandResult(status, output.read_text(errors="replace"))


def start_command(command: list[str], env: dict[str, str], output: Path) -> int:
    with output.open("wb") as sink:
        return subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        ).pid


def fork_assay(arguments: list[str], env: dict[str, str], output: Path) -> int:
    """Runs a verb in a process of its own, without the time that starting Python takes."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        os.setsid()
        sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.environ.update(env)
        status = cli.main(arguments)
    finally:
        os._exit(status)


def wait_for(pid: int, limit_s: float) -> int | None:
    """The exit status; None if it has not ended."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
