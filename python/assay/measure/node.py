"""Node measurements: each host by itself, without MPI."""

from __future__ import annotations

from assay.launch.engines import describe, probe
from assay.launch.launchers import Launcher, Local
from assay.launch.placement import HERE, Segment, Site
from assay.measure.session import Session
from assay.records.schema import Scalar


def node_measurements() -> list[str]:
    """The names of all measurements of a node."""
    return [m.name for m in describe(probe()).measurements if m.scope == "node"]


def measure_nodes(
    session: Session, site: Site, hosts: list[str], launcher: Launcher | None, params: dict[str, Scalar]
) -> None:
    """Every node measurement on every host at once; a lab's hosts are this one machine, measured once."""
    here = site.name in ("here", "lab")
    starter = Local() if here or launcher is None else launcher
    place = HERE if here else site
    segments = [Segment(hosts[:1] if here else list(dict.fromkeys(hosts)))]
    for name in node_measurements():
        session.measure(name, starter, place, segments, params, flavour="")
