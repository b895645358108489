"""Opens runs for the sub-commands of ``assay heap``: new ones to record into, existing ones to show."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from assay.commands.options import open_run
from assay.errors import UserError
from assay.measure.heap import FOLDER, analyse_traces, traces
from assay.measure.session import Session
from assay.profile.heap import METRICS, HeapProfile
from assay.profile.profiles import Profiles
from assay.records.run import Run
from assay.records.schema import Scalar


def new_session(args: argparse.Namespace, options: dict[str, Scalar | list[str] | None]) -> Session:
    run = open_run("heap", args)
    run.info.hosts = [socket.gethostname()]
    run.info.options = options
    run.save()
    return Session(run)


def profiles_of(path: Path) -> tuple[Run, Profiles]:
    """Loads a run of ``assay heap`` and its profiles; first analyses traces that lack an analysis. Raises UserError."""
    if not (path / "run.json").is_file():
        raise UserError(f"{path} is not a run", "record one: assay heap -o RUN -- PROGRAM")
    run = Run.load(path)
    analyse_traces(run)
    profiles = Profiles(run.path)
    if not profiles.processes:
        raise UserError(f"{run.path} holds no heap trace", "record one: assay heap -- PROGRAM")
    return run, profiles


def main_profile(path: Path) -> HeapProfile:
    """The profile to show first: of an MPI program the merged ranks, otherwise the largest process."""
    profile = profiles_of(path)[1].main
    assert profile is not None
    return profile


def add_metric(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metric",
        choices=list(METRICS),
        default="bytes",
        metavar="NAME",
        help=f"figure of the profile (one of {', '.join(METRICS)}; default: bytes)",
    )


def fail_if_nothing_recorded(session: Session, reason: str, fix: str = "") -> None:
    if not traces(session.run.path / FOLDER):
        session.run.finish("partial", "nothing was recorded")
        raise UserError(reason, fix)
