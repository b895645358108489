"""The heap profiler as the sub-verbs of ``assay heap`` use it."""

from __future__ import annotations

from assay.commands.profiler import Profiler
from assay.errors import UserError
from assay.measure.heap import FOLDER, analyse_traces, traces
from assay.measure.session import Session
from assay.profile.heap import METRICS, HeapProfile

HEAP: Profiler[HeapProfile] = Profiler(
    verb="heap",
    recorded="heap trace",
    metrics=METRICS,
    metric=lambda _: "bytes",
    default="bytes",
    analyse=analyse_traces,
    main=lambda profiles: profiles.main,
)


def fail_if_nothing_recorded(session: Session, reason: str) -> None:
    if not traces(session.run.path / FOLDER):
        session.run.finish("partial", "nothing was recorded")
        raise UserError(reason)
