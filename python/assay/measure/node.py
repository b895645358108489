"""Node measurements: each host by itself, without MPI."""

from __future__ import annotations

from collections.abc import Mapping

from assay.launch.launchers import Launcher, Local
from assay.launch.placement import Segment, Site
from assay.measure.session import Session
from assay.records.schema import Scalar


def measure_node(
    session: Session,
    name: str,
    site: Site,
    hosts: list[str],
    launcher: Launcher | None,
    params: Mapping[str, Scalar],
) -> None:
    """One node measurement, on every host at once; one after the other where there is no ``launcher`` that
    could start them together."""
    distinct = list(dict.fromkeys(hosts))
    if launcher is not None and len(distinct) > 1:
        session.measure(name, launcher, site, [Segment(distinct)], params, flavour="")
        return
    for host in distinct:
        session.measure(name, Local(), site, [Segment([host])], params, flavour="", more=host != distinct[-1])
