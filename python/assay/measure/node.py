"""Node measurements: each host by itself, without MPI."""

from __future__ import annotations

from assay.launch.engines import describe, probe
from assay.launch.launchers import Launcher, Local
from assay.launch.placement import Segment, Site
from assay.measure.session import Session
from assay.records.schema import Scalar


def node_measurements() -> list[str]:
    """The names of all measurements of a node."""
    return [m.name for m in describe(probe()).measurements if m.scope == "node"]


def measure_nodes(
    session: Session, site: Site, hosts: list[str], launcher: Launcher | None, params: dict[str, Scalar]
) -> None:
    """Every node measurement, on every host at once; ``launcher`` is not needed on this machine alone."""
    starter = Local() if site.name == "here" or launcher is None else launcher
    segments = [Segment(list(dict.fromkeys(hosts)))]
    for name in node_measurements():
        session.measure(name, starter, site, segments, params, flavour="")
