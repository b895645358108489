"""What a specification asks for, measured, and no more.

A criterion names a metric; its measurement is run in the setting that the specification gives
(``[parameters."node.udp_receive"]``), on every offered host. Measurements that need more than the host
itself are repeated for each of its devices: a UDP reception for each interface, from a peer; an RDMA
transfer from each port. What cannot be measured is waived with the reason, and then never passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from assay.judge import Specification
from assay.judge.criteria import Share
from assay.launch.engines import describe, probe
from assay.launch.launchers import Launcher
from assay.launch.placement import Site

SETTINGS = "node.settings"  # what a host is: part of every acceptance


@dataclass(frozen=True)
class Offer:
    """What is offered for acceptance, and what stands by to test it."""

    site: Site
    hosts: list[str]
    launcher: Launcher | None  # for what several hosts do together
    no_launcher: str = ""  # why there is none
    peer: str = ""  # the additional system that sends to the offered ones
    interfaces: list[str] = field(default_factory=list)  # to receive on; none: every one that is fast enough
    realtime: bool = False


def needed(specification: Specification) -> list[str]:
    """The measurements that the criteria speak of, in the order of the engines' own list."""
    asked = set(_metrics(specification))
    return [
        measurement.name
        for measurement in describe(probe()).measurements
        if measurement.name == SETTINGS
        or any(
            fnmatchcase(f"{measurement.name}/{metric.name}", one)
            for metric in measurement.metrics
            for one in asked
        )
    ]


def _metrics(specification: Specification) -> Iterator[str]:
    for criterion in specification.criteria:
        if criterion.metric:
            yield criterion.metric
        for limit in (criterion.min, criterion.max):
            if isinstance(limit, Share):
                yield limit.of
