"""Runs the recorder of NUMA profiles (the engine assay-numa) and makes the profiles of a run from its recordings."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from assay.errors import REPAIR, SOURCE, UserError
from assay.launch.engines import MeasurementDescription, Metric, Parameter, engines_folder
from assay.launch.preload import launcher_of
from assay.launch.preload_folder import preload_folder
from assay.measure.kept_sources import keep_sources
from assay.measure.recorded_program import run_to_end
from assay.measure.session import Session
from assay.numa.analysis import analyse, processes
from assay.numa.applied import load_applied, measured
from assay.numa.profile import Profile, load_profile, resolve, save_profile, total
from assay.numa.recording import read_recording
from assay.profile import numa
from assay.profile.numa import NumaProfile
from assay.profile.numa_ranks import note_missing_ranks
from assay.profile.profiles import NUMA_FOLDER, Profiles
from assay.records.files import replace_file
from assay.records.run import Run
from assay.records.schema import Measurement, Scalar, Subject, Summary

FOLDER = "numa"
EVENTS_LIMIT_S = 60
MAX_PROCESSES = 16  # whose source files are kept
NO_COUNTS = "no counts of accesses: the process was killed before it wrote them"
RECORDINGS_VARIABLE = "ASSAY_NUMA_DIRECTORY"  # where the runtime of the exact modes writes
NUMA = MeasurementDescription(
    name="profile.numa",
    scope="node",
    help="placement of a program's memory: assay numa -- PROGRAM",
    parameters=[
        Parameter("program", "text", "", "", "its command", 0, 0),
        Parameter("pid", "integer", "", "0", "the process id", 0, 2**31),
        Parameter("mode", "text", "", "touch", "touch, sample, gcc, llvm or qemu", 0, 0),
        Parameter("emulated", "integer", "", "0", "emulated nodes; 0: the machine's own", 0, 64),
    ],
    metrics=[
        Metric("remote_share", "1", "lower", "accesses (first touches) to pages of another node"),
        Metric("attributed_share", "1", "higher", "of which both nodes are known"),
    ],
)


@dataclass(frozen=True)
class NumaRecording:
    """What to record. ``emulated``: number of emulated nodes, 0 for the machine's own. ``at_least``: size in bytes from
    which a block is an object of its own. ``plan``: a file of placements to apply."""

    emulated: int = 0
    at_least: int = 4096
    faults: bool = True
    plan: Path | None = None
    emulator: bool = False  # QEMU's user mode counts every access of the unmodified program
    samples: bool = False  # of accesses, by the processor's PMU
    period: int = 0  # accesses per sample; 0: the engine chooses

    def arguments(self) -> list[str]:
        arguments = ["--at-least", str(self.at_least)]
        if self.emulated:
            arguments += ["--emulate", str(self.emulated)]
        if not self.faults:
            arguments.append("--no-faults")
        if self.samples:
            arguments += ["--samples", "--period", str(self.period)]
        return arguments + (["--plan", str(self.plan)] if self.plan else [])


def recorder() -> Path:
    path = engines_folder() / "assay-numa"
    if not path.is_file():
        raise UserError(f"{path} is missing", REPAIR)
    return path


def check_samples(period: int) -> None:
    """Raises UserError where the processors do not sample accesses, or not for this user."""
    command: list[str | Path] = [recorder(), "events", "--period", str(period)]
    done = subprocess.run(command, capture_output=True, timeout=EVENTS_LIMIT_S)
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().removeprefix("assay-numa: ")
        problem, _, fix = message.partition("; fix: ")
        raise UserError(problem or f"assay-numa events ended with status {done.returncode}", fix)


def emulator() -> list[str | Path]:
    """The command that runs a program in QEMU's user mode. Raises UserError where a part is missing."""
    plugin = engines_folder() / "assay-numa-qemu.so"
    if not plugin.is_file():
        raise UserError(f"{plugin} is missing", SOURCE)
    qemu = shutil.which("qemu-x86_64")
    if qemu is None:
        raise UserError("no qemu-x86_64", "Debian: apt-get install qemu-user")
    return [qemu, "-plugin", plugin]


def record_program(folder: Path, program: Sequence[str], recording: NumaRecording) -> int:
    """Runs the program to its end, with its own input and output. Returns its exit status, 128 + N after signal N.

    Raises UserError when it cannot be started.
    """
    environment = {**os.environ, RECORDINGS_VARIABLE: str(folder.resolve())}
    if recording.emulator:
        command = [*emulator(), *program]
        environment["ASSAY_NUMA_COMMAND"] = " ".join(program)
        if recording.emulated:
            environment["ASSAY_NUMA_EMULATE"] = str(recording.emulated)
    else:
        libraries = preload_folder(launcher_of(program) is not None)
        arguments = ["--libraries", str(libraries), *recording.arguments(), str(folder)]
        command = [recorder(), "record", *arguments, "--", *program]
    folder.mkdir(
        mode=0o700, parents=True, exist_ok=True
    )  # a profile holds paths and names of the user's work
    return run_to_end(command, environment)


def conclude(session: Session) -> Profiles:
    """Makes the profiles of the session's run, records their totals, and concludes it. Raises UserError; the run is
    then marked as failed."""
    run = session.run
    try:
        analyse_recordings(run.path)
        profiles = Profiles(run.path)
        for profile in profiles.numa:
            _record_totals(run, profile)
    except UserError as error:
        run.finish("failed", error.what)
        raise
    keep_sources(run, [profile.calls for profile in profiles.numa[:MAX_PROCESSES]])
    session.complete(NUMA.name)
    session.conclude([], profiles)
    return profiles


def analyse_recordings(run: Path) -> None:
    """Resolves the addresses of the recordings in a run and makes a profile of each process. Profiles that exist are
    not made again."""
    folder = run / FOLDER
    without_counts = _processes_without_counts(folder)
    for path in sorted(folder.glob("*.numa")):
        resolved = path.with_suffix(".json")
        if _process_of(path) in without_counts and _is_empty_count(path):
            continue
        if not resolved.exists():
            save_profile(resolve(read_recording(path)), resolved)
    target = run / NUMA_FOLDER
    if target.exists():
        return
    partial = folder / "profiles.part"
    shutil.rmtree(partial, ignore_errors=True)
    recorded = processes(load_profiles(folder))
    if not recorded:
        return
    partial.mkdir(mode=0o700)
    placements = load_applied(folder)
    profiles = [analyse(recordings) for recordings in recorded]
    note_missing_ranks(profiles)
    for number, profile in enumerate(profiles):
        if not profile.process.rank and profile.process.pid in without_counts:
            profile.problems.append(NO_COUNTS)
        profile.applied = measured(profile, placements)
        replace_file(partial / f"{profile.process.pid}.{number}.json", msgspec.json.encode(profile))
    partial.rename(target)


def _process_of(recording: Path) -> int | None:
    """The process id in the name of a recording: PID.SERIAL.numa or, of its counts, PID.exactSERIAL.numa."""
    pid = recording.name.partition(".")[0]
    return int(pid) if pid.isascii() and pid.isdigit() else None


def _is_empty_count(recording: Path) -> bool:
    return ".exact" in recording.name and not recording.stat().st_size


def _processes_without_counts(folder: Path) -> set[int]:
    """The processes that were killed before they wrote a row of their counts, and that the recorder has seen: their
    profile has the placement alone. An empty recording of any other kind is an error."""
    recordings = list(folder.glob("*.numa"))
    killed = {_process_of(path) for path in recordings if _is_empty_count(path)}
    seen = {_process_of(path) for path in recordings if ".exact" not in path.name}
    return {pid for pid in killed & seen if pid is not None}


def load_profiles(folder: Path) -> list[Profile]:
    """The recordings of all processes, with names: exact ones first, then the one with most accesses or pages."""
    # Only files with a recording beside them count; the folder may hold other JSON files.
    paths = [path.with_suffix(".json") for path in sorted(folder.glob("*.numa"))]
    profiles = [load_profile(path) for path in paths if path.exists()]
    return sorted(profiles, key=lambda profile: (not profile.is_exact, -total(profile).total))


def _record_totals(run: Run, profile: NumaProfile) -> None:
    """Appends the totals of a profile to the run's records."""
    counts, process = profile.matrix, profile.process
    values = {
        "remote_share": numa.remote_share(counts),
        "attributed_share": numa.known(counts) / numa.total(counts) if numa.total(counts) else None,
    }
    params: dict[str, Scalar] = {
        "program": profile.program,
        "pid": process.pid,
        "mode": process.mode,
        "emulated": process.emulated,
    }
    for metric in NUMA.metrics:
        value = values[metric.name]
        if value is None:
            continue
        run.append(
            Measurement(
                name=NUMA.name,
                metric=metric.name,
                unit=metric.unit,
                better=metric.better,
                subject=Subject(host=run.info.hosts[0]),
                params=params,
                summary=Summary(n=1, median=value, min=value, max=value),
                status="error" if process.lost_events else "ok",
                reason=f"{process.lost_events} events could not be recorded" if process.lost_events else None,
            )
        )
