"""Makes a heap profile from traces: analyses and packs them, records their totals, and concludes the run.

Traces are packed after their analysis: a packed trace has no addresses, which the analysis needs for fragmentation and
first touches.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from assay.errors import UserError
from assay.launch.engines import describe
from assay.measure.heap_recorder import make_private, recorder
from assay.measure.kept_sources import keep_sources
from assay.measure.session import Session
from assay.profile.heap import HeapProfile
from assay.profile.profiles import Profiles
from assay.records.files import open_new
from assay.records.run import Run
from assay.records.schema import Measurement, Scalar, Subject, Summary

NAME = "profile.heap"
ANALYSIS_LIMIT_S = 3600
RECORD_LESS = "record less: --at-least SIZE or --sample SIZE"
FOLDER = "heap"  # of the traces and their analyses, within a run


def conclude(session: Session, sources: bool) -> Profiles:
    """Analyses and packs the traces of the session's run, records their totals, and concludes it.

    ``sources``: keep the source files; this machine has those from which the program was built. Raises UserError; the
    run is then marked as failed.
    """
    run = session.run
    try:
        analyse_traces(run)
    except UserError as error:
        run.finish("failed", error.what)
        raise
    profiles = Profiles(run.path)
    for profile in profiles.processes:
        _record_totals(run, profile)
    if sources:
        keep_sources(run, [profile.calls for profile in profiles.processes])
    session.complete(NAME)
    session.conclude([], profiles)
    return profiles


def analyse_traces(run: Run) -> None:
    """Analyses and packs the traces that have no analysis yet."""
    for trace in traces(run.path / FOLDER):
        if not trace.with_suffix(".json").exists():
            analyse_trace(trace)
            pack_trace(trace)


def _record_totals(run: Run, profile: HeapProfile) -> None:
    totals = profile.totals
    params: dict[str, Scalar] = {"pid": profile.process.pid, "program": profile.process.program}
    rank = int(profile.process.rank) if profile.process.rank.isdigit() else None
    values = {
        "peak": totals.peak,
        "allocated": totals.bytes,
        "allocations": totals.count,
        "leaked": totals.leaked,
    }
    for metric in describe(recorder()).find(NAME).metrics:
        if metric.name == "leaked" and (profile.process.detached or profile.trace.cut_off):
            continue  # not known before the end
        value = values[metric.name]
        run.append(
            Measurement(
                name=NAME,
                metric=metric.name,
                unit=metric.unit,
                better=metric.better,
                subject=Subject(host=run.info.hosts[0], rank=rank),
                params=params,
                summary=Summary(n=1, median=value, min=value, max=value),
                status="error" if profile.gap else "ok",
                reason=profile.gap or None,
            )
        )


def import_file(folder: Path, file: Path) -> None:
    """Writes the analysis of another tool's file into a run's folder. Raises UserError."""
    make_private(folder)
    _run_analyser(["import", file], folder / f"{file.name}.json")


def traces(folder: Path) -> list[Path]:
    """One trace for each process image, the largest file first."""
    return sorted(folder.glob("*.heap"), key=lambda path: (-path.stat().st_size, path.name))


def analyse_trace(trace: Path) -> Path:
    """Returns the path of the trace's analysis, beside the trace. Analyses the trace if needed. Raises UserError."""
    analysis = trace.with_suffix(".json")
    if analysis.exists():
        return analysis
    _run_analyser(["analyse", trace], analysis)
    return analysis


def _run_analyser(arguments: Sequence[str | Path], output: Path) -> None:
    """Writes the analyser's output to a file, which is renamed to ``output`` when it is complete."""
    partial = output.with_suffix(".part")
    try:
        with open_new(partial) as out:
            completed = subprocess.run(
                [recorder(), *arguments], stdout=out, stderr=subprocess.PIPE, timeout=ANALYSIS_LIMIT_S
            )
        if completed.returncode != 0:
            raise _analysis_error(arguments, completed.returncode, completed.stderr)
        partial.rename(output)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{arguments[-1]}: its analysis has not ended within {ANALYSIS_LIMIT_S} s", RECORD_LESS
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _analysis_error(arguments: Sequence[str | Path], status: int, stderr: bytes) -> UserError:
    """The analyser's own message, or the signal that ended it."""
    if status < 0:
        name = signal.strsignal(-status) or "unknown"
        why = "; the system may have run out of memory" if -status == signal.SIGKILL else ""
        return UserError(
            f"{arguments[-1]}: its analysis was ended by signal {-status} ({name}){why}", RECORD_LESS
        )
    message = stderr.decode(errors="replace").strip().removeprefix("assay-heap: ")
    return UserError(message or f"{arguments[-1]}: its analysis ended with status {status}")


def pack_trace(trace: Path) -> None:
    """Compresses a trace; a trace that cannot be packed stays as it is."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run([recorder(), "pack", trace], stderr=subprocess.DEVNULL, timeout=ANALYSIS_LIMIT_S)
