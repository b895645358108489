"""``assay numa diff``: what has changed between two profiles."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from assay.commands.numa.runs import add_metric, main_profile, metric_of
from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_PASS
from assay.profile.compare import changes
from assay.profile.numa import remote_share, total
from assay.records.numa import NumaCells
from assay.report.numa import compared_objects, show_numa_comparison
from assay.report.terminal import console

if TYPE_CHECKING:
    from assay.commands.numa import Verbs


class Diff:
    """The sub-verb."""

    name = "diff"

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            self.name,
            help="what has changed between two profiles, by object and function",
            description="Compares the remote shares of two runs, of the whole and of each object, and the functions "
            "by a metric. Objects are the same by the line that allocates them.",
            examples=[
                Example("assay numa diff serial parallel", needs="two runs"),
                Example("assay numa diff serial parallel --metric accesses", needs="two runs"),
                Example("assay numa diff serial parallel --json", needs="two runs"),
            ],
        )
        parser.add_argument("before", type=Path, metavar="BEFORE", help="run directory")
        parser.add_argument("after", type=Path, metavar="AFTER", help="run directory")
        add_metric(parser)
        add(parser, "--json")
        parser.set_defaults(numa_verb=diff)


def diff(args: argparse.Namespace) -> int:
    before, after = main_profile(args.before), main_profile(args.after)
    metric = metric_of(args, before)
    changed = changes(before.calls, after.calls, metric)
    if not args.json:
        show_numa_comparison(console(), before, after, metric, changed)
        return EXIT_PASS
    functions = [
        {
            "function": change.location.function,
            "file": change.location.file,
            "before": change.before,
            "after": change.after,
        }
        for change in changed
    ]
    objects = [
        {"object": name, "before": _figures(old), "after": _figures(new)}
        for name, old, new in compared_objects(before, after)
    ]
    shown = {
        "metric": metric,
        "before": _figures(before.matrix),
        "after": _figures(after.matrix),
        "objects": objects,
        "functions": functions,
    }
    print(json.dumps(shown, indent=1))
    return EXIT_PASS


def _figures(cells: NumaCells) -> dict[str, float | None]:
    return {"total": total(cells), "remote_share": remote_share(cells)}
