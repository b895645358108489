"""``assay numa export``: a profile in the formats of other tools."""

from __future__ import annotations

from assay.commands.numa.runs import NUMA
from assay.commands.parser import Example
from assay.commands.profiler import Export

EXPORT = Export(
    NUMA,
    [
        Example("assay numa export placed speedscope", "one profile for each metric", "a run"),
        Example("assay numa export placed json", needs="a run"),
        Example("assay numa export placed collapsed --metric touched", "for flamegraph.pl", "a run"),
    ],
    with_json=True,
)
