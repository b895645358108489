"""``assay heap diff``: compares two heap profiles by function."""

from __future__ import annotations

import json

from msgspec import to_builtins

from assay.commands.heap.runs import HEAP
from assay.commands.parser import Example
from assay.commands.profiler import Comparison, Diff
from assay.profile.heap import HeapProfile
from assay.report.console import console
from assay.report.heap import show_comparison


def show(comparison: Comparison[HeapProfile], as_json: bool) -> None:
    if not as_json:
        return show_comparison(
            console(), comparison.before, comparison.after, comparison.metric, comparison.changes
        )
    totals = [to_builtins(comparison.before.totals), to_builtins(comparison.after.totals)]
    print(
        json.dumps(
            {"metric": comparison.metric, "totals": totals, "functions": comparison.functions()}, indent=1
        )
    )


DIFF = Diff(
    HEAP,
    [
        Example("assay heap diff before after", needs="two runs"),
        Example("assay heap diff before after --metric leaked", needs="two runs"),
        Example("assay heap diff before after --json", needs="two runs"),
    ],
    help="what has changed between two profiles, by function",
    description="Compares two runs, by function. Functions of two builds are the same by name and file.",
    show=show,
)
