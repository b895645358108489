"""``assay numa export``: a profile in the formats of other tools."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.commands.numa.runs import add_metric, main_profile, metric_of
from assay.commands.parser import Example
from assay.errors import EXIT_PASS
from assay.profile.export import callgrind, collapsed, pprof, speedscope

if TYPE_CHECKING:
    from assay.commands.numa import Verbs

FORMATS = ("json", "collapsed", "speedscope", "pprof", "callgrind")


class Export:
    """The sub-verb."""

    name = "export"

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            self.name,
            help=f"write a profile for other tools: {', '.join(FORMATS)}",
            description="Writes the merged ranks of an MPI program, or else the first process, to standard output: "
            "whole (json), or its call stacks for flamegraph.pl (collapsed), speedscope.app, pprof and KCachegrind "
            "(callgrind).",
            examples=[
                Example("assay numa export placed speedscope", "one profile for each metric", "a run"),
                Example("assay numa export placed json", needs="a run"),
                Example("assay numa export placed collapsed --metric touched", "for flamegraph.pl", "a run"),
            ],
        )
        parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
        parser.add_argument("format", choices=FORMATS, metavar="FORMAT", help=f"one of {', '.join(FORMATS)}")
        add_metric(parser)
        parser.set_defaults(numa_verb=export)


def export(args: argparse.Namespace) -> int:
    profile = main_profile(args.run)
    if args.format == "json":
        sys.stdout.buffer.write(msgspec.json.encode(profile) + b"\n")
    elif args.format == "pprof":
        sys.stdout.buffer.write(pprof(profile))
    elif args.format == "callgrind":
        sys.stdout.write(callgrind(profile))
    elif args.format == "collapsed":
        sys.stdout.write(collapsed(profile, metric_of(args, profile)))
    else:
        sys.stdout.write(speedscope(profile))
    return EXIT_PASS
