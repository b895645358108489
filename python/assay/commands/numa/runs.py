"""The runs that the sub-verbs of ``assay numa`` make and show."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from assay.commands.options import open_run
from assay.errors import UserError
from assay.measure.numa import analyse_recordings
from assay.measure.session import Session
from assay.profile.numa import METRICS, NumaProfile
from assay.profile.profiles import Profiles
from assay.records.run import Run
from assay.records.schema import Scalar


def new_session(args: argparse.Namespace, options: dict[str, Scalar | list[str] | None]) -> Session:
    run = open_run("numa", args)
    run.info.hosts = [socket.gethostname()]
    run.info.options = options
    run.save()
    return Session(run)


def profiles_of(path: Path) -> tuple[Run, Profiles]:
    """A run of 'assay numa' and its profiles; recordings without one are analysed. Raises UserError."""
    if not (path / "run.json").is_file():
        raise UserError(f"{path} is not a run", "record one: assay numa -o RUN -- PROGRAM")
    run = Run.load(path)
    analyse_recordings(run.path)
    profiles = Profiles(run.path)
    if not profiles.numa:
        raise UserError(f"{run.path} holds no NUMA profile", "record one: assay numa -o RUN -- PROGRAM")
    return run, profiles


def main_profile(path: Path) -> NumaProfile:
    """The merged ranks of an MPI program, or else the first process."""
    profile = profiles_of(path)[1].numa_main
    assert profile is not None
    return profile


def add_metric(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metric",
        choices=list(METRICS),
        metavar="NAME",
        help=f"figure of the profile (one of {', '.join(METRICS)}; default: remote, or touched without accesses)",
    )


def metric_of(args: argparse.Namespace, profile: NumaProfile) -> str:
    chosen: str | None = args.metric
    return chosen or ("remote" if profile.is_exact else "touched")
