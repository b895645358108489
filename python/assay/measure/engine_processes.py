"""The processes of a measurement: the command line of its engine, and how long it may take to start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from assay.launch.engines import probe
from assay.launch.launchers import Launcher
from assay.launch.mpis import rank_command
from assay.launch.placement import REMOTE, Segment, Site
from assay.launch.simulator import simulates
from assay.launch.supervise import EngineProcess
from assay.records.schema import Scalar

START_LIMIT_S, START_S_PER_RANK = 60.0, 0.1  # thousands of ranks take minutes to start
SIMULATED_START_S = 600.0  # a simulator says nothing while it computes


@dataclass(frozen=True)
class Side:
    """One of the two processes of a measurement between two hosts: what it runs, and where."""

    measurement: str
    site: Site
    host: str
    params: Mapping[str, Scalar]


def start_limit(started: EngineProcess) -> float:
    """Seconds within which every rank must have sent its first line (``hello``)."""
    if not started.timed_here and not started.hosts:
        return SIMULATED_START_S
    return START_LIMIT_S + START_S_PER_RANK * len(started.hosts)


@contextmanager
def pipe_with_line(text: str) -> Iterator[int]:
    """A descriptor from which one line can be read. Unlike an argument, no other user sees it."""
    reader, writer = os.pipe()
    try:
        os.write(writer, f"{text}\n".encode())
        os.close(writer)
        yield reader
    finally:
        os.close(reader)


def engine_process(
    measurement: str,
    launcher: Launcher,
    site: Site,
    segments: Sequence[Segment],
    params: Mapping[str, Scalar],
    flavour: str | None,
) -> EngineProcess:
    """``flavour``: the engine to start, when it is not the launcher's own ("" for one without MPI)."""
    flavour = launcher.flavour if flavour is None else flavour
    arguments = ["run", measurement, *option_arguments(params)]
    command = rank_command(probe(flavour), flavour, launcher.program(), arguments)
    argv = launcher.command(site, segments, command)
    hosts = [host for segment in segments for host in segment.hosts]
    here = site.name != REMOTE.name and not simulates(launcher)
    return EngineProcess(
        argv, launcher.environment(site), [] if site.name == "here" else hosts, timed_here=here, site=site
    )


def option_arguments(params: Mapping[str, Scalar]) -> list[str]:
    """A measurement's parameters as the engine reads them: {"sizes": "1,2", "no_verify": True}."""
    arguments: list[str] = []
    for name, value in params.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(option)
        elif value is not False:
            arguments += [option, str(value)]
    return arguments
