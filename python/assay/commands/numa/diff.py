"""``assay numa diff``: compares two NUMA profiles by object and function."""

from __future__ import annotations

import json

from assay.commands.numa.runs import NUMA
from assay.commands.parser import Example
from assay.commands.profiler import Comparison, Diff
from assay.profile.numa import NumaProfile, remote_share, total
from assay.records.numa import NumaCells
from assay.report.console import console
from assay.report.numa import compared_objects, show_numa_comparison


def show(comparison: Comparison[NumaProfile], as_json: bool) -> None:
    before, after = comparison.before, comparison.after
    if not as_json:
        return show_numa_comparison(console(), before, after, comparison.metric, comparison.changes)
    objects = [
        {"object": name, "before": _figures(old), "after": _figures(new)}
        for name, old, new in compared_objects(before, after)
    ]
    shown = {
        "metric": comparison.metric,
        "before": _figures(before.matrix),
        "after": _figures(after.matrix),
        "objects": objects,
        "functions": comparison.functions(),
    }
    print(json.dumps(shown, indent=1))


def _figures(node_matrix: NumaCells) -> dict[str, float | None]:
    return {"total": total(node_matrix), "remote_share": remote_share(node_matrix)}


DIFF = Diff(
    NUMA,
    [
        Example("assay numa diff serial parallel", needs="two runs"),
        Example("assay numa diff serial parallel --metric accesses", needs="two runs"),
        Example("assay numa diff serial parallel --json", needs="two runs"),
    ],
    help="what has changed between two profiles, by object and function",
    description="Compares the remote shares of two runs, of the whole and of each object, and the functions by a "
    "metric. Objects are matched by the line that allocates them.",
    show=show,
)
