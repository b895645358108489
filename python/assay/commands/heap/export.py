"""``assay heap export``: a profile in the formats of other tools."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from assay.commands.heap.runs import add_metric, main_profile
from assay.commands.parser import Example
from assay.errors import EXIT_PASS
from assay.profile.export import callgrind, collapsed, pprof, speedscope

if TYPE_CHECKING:
    from assay.commands.heap import Verbs

FORMATS = ("collapsed", "speedscope", "pprof", "callgrind")


class Export:
    """The sub-verb."""

    name = "export"

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            self.name,
            help=f"write a profile for other tools: {', '.join(FORMATS)}",
            description="Writes the merged ranks of an MPI program, or else the largest process, to standard output: "
            "for flamegraph.pl (collapsed), speedscope.app, pprof and KCachegrind (callgrind).",
            examples=[
                Example("assay heap export first speedscope", "one profile for each metric", "a run"),
                Example("assay heap export first pprof", needs="a run"),
                Example("assay heap export first collapsed --metric leaked", "for flamegraph.pl", "a run"),
            ],
        )
        parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
        parser.add_argument("format", choices=FORMATS, metavar="FORMAT", help=f"one of {', '.join(FORMATS)}")
        add_metric(parser)
        parser.set_defaults(heap_verb=export)


def export(args: argparse.Namespace) -> int:
    profile = main_profile(args.run)
    if args.format == "pprof":
        sys.stdout.buffer.write(pprof(profile))
    elif args.format == "callgrind":
        sys.stdout.write(callgrind(profile))
    elif args.format == "collapsed":
        sys.stdout.write(collapsed(profile, args.metric))
    else:
        sys.stdout.write(speedscope(profile))
    return EXIT_PASS
