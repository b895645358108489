"""The NUMA profiler as the sub-verbs of ``assay numa`` use it."""

from __future__ import annotations

from assay.commands.profiler import Profiler
from assay.measure.numa import analyse_recordings
from assay.profile.numa import METRICS, NumaProfile

NUMA: Profiler[NumaProfile] = Profiler(
    verb="numa",
    recorded="NUMA profile",
    metrics=METRICS,
    metric=lambda profile: "remote" if profile.is_exact else "touched",
    default="remote, or touched without accesses",
    analyse=lambda run: analyse_recordings(run.path),
    main=lambda profiles: profiles.numa_main,
)
