"""``assay heap export``: a profile in the formats of other tools."""

from __future__ import annotations

from assay.commands.heap.runs import HEAP
from assay.commands.parser import Example
from assay.commands.profiler import Export

EXPORT = Export(
    HEAP,
    [
        Example("assay heap export first speedscope", "one profile for each metric", "a run"),
        Example("assay heap export first pprof", needs="a run"),
        Example("assay heap export first collapsed --metric leaked", "for flamegraph.pl", "a run"),
    ],
    with_json=False,
)
