"""``assay heap diff``: what has changed between two profiles."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from assay.commands.heap.runs import add_metric, main_profile
from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_PASS
from assay.profile.compare import changes
from assay.report.heap import show_comparison
from assay.report.terminal import console

if TYPE_CHECKING:
    from assay.commands.heap import Verbs


class Diff:
    """The sub-verb."""

    name = "diff"

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            self.name,
            help="what has changed between two profiles, by function",
            description="Compares two runs, by function. Functions of two builds are the same by name and file.",
            examples=[
                Example("assay heap diff before after", needs="two runs"),
                Example("assay heap diff before after --metric leaked", needs="two runs"),
                Example("assay heap diff before after --json", needs="two runs"),
            ],
        )
        parser.add_argument("before", type=Path, metavar="BEFORE", help="run directory")
        parser.add_argument("after", type=Path, metavar="AFTER", help="run directory")
        add_metric(parser)
        add(parser, "--json")
        parser.set_defaults(heap_verb=diff)


def diff(args: argparse.Namespace) -> int:
    before, after = main_profile(args.before), main_profile(args.after)
    changed = changes(before.calls, after.calls, args.metric)
    if args.json:
        rows = [
            {
                "function": change.location.function,
                "file": change.location.file,
                "before": change.before,
                "after": change.after,
            }
            for change in changed
        ]
        totals = [to_builtins(before.totals), to_builtins(after.totals)]
        print(json.dumps({"metric": args.metric, "totals": totals, "functions": rows}, indent=1))
    else:
        show_comparison(console(), before, after, args.metric, changed)
    return EXIT_PASS
