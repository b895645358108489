"""Node measurements: each host alone, without MPI."""

from __future__ import annotations

from collections.abc import Mapping

from assay.errors import UserError
from assay.launch.engines import probe
from assay.launch.launchers import Launcher, Local
from assay.launch.placement import Segment, Site
from assay.launch.supervise import EngineProcess, Limits, run_engine
from assay.measure.session import Session
from assay.records.schema import AnyRecord, Context, Scalar

READ_LIMIT_S = 30.0  # to read the facts of a host; usually 0.1 s


def read_contexts() -> list[Context]:
    """The facts of this machine and its devices; no run keeps them."""
    contexts: list[Context] = []

    def keep(record: AnyRecord) -> None:
        if isinstance(record, Context):
            contexts.append(record)

    started = EngineProcess([str(probe()), "run", "node.settings"], {})
    limits = Limits(start=READ_LIMIT_S, silence=READ_LIMIT_S)
    ending = run_engine(started, keep, lambda _: None, lambda _: None, limits)
    if ending.failure:
        raise UserError(ending.failure.problem, ending.failure.fix)
    return contexts


def measure_node(
    session: Session,
    name: str,
    site: Site,
    hosts: list[str],
    launcher: Launcher | None,
    params: Mapping[str, Scalar],
) -> None:
    """Makes one node measurement on all hosts at the same time; one after the other without a ``launcher``."""
    distinct = list(dict.fromkeys(hosts))
    if launcher is not None and len(distinct) > 1:
        session.measure(name, launcher, site, [Segment(distinct)], params, flavour="")
        return
    for host in distinct:
        session.measure(
            name, Local(), site, [Segment([host])], params, flavour="", more_follow=host != distinct[-1]
        )
