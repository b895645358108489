"""``assay numa show``: shows a recorded NUMA profile."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.commands.numa.runs import NUMA
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.errors import EXIT_PASS
from assay.measure.kept_sources import keep_sources
from assay.records.schema import Finding
from assay.report.html import build_report
from assay.report.numa import show_numa_profiles
from assay.report.terminal import console, show_findings

if TYPE_CHECKING:
    from assay.commands.numa import Verbs


class Show:
    """The sub-verb."""

    name = "show"

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            self.name,
            help="show a recorded profile, and write its report again",
            description="Shows the profile of a run, and writes its report again.",
            examples=[
                Example("assay numa show placed", needs="a run"),
                Example("assay numa show placed --all", "every process", "a run"),
                Example("assay numa show placed --json", "all figures", "a run"),
            ],
        )
        parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
        parser.add_argument("--all", action="store_true", help="show every process, not only the largest")
        parser.add_argument(
            "--sources", action="store_true", help="put this machine's source files into the report"
        )
        add_option(parser, "--json")
        parser.set_defaults(numa_verb=show)


def show(args: argparse.Namespace) -> int:
    run, profiles = NUMA.profiles_of(args.run)
    if args.json:
        main = profiles.numa_main
        sys.stdout.buffer.write(msgspec.json.encode(profiles.numa if args.all else [main]) + b"\n")
        return EXIT_PASS
    if args.sources:
        keep_sources(run, [profile.calls for profile in profiles.numa])
    out = console()
    show_numa_profiles(out, profiles, run.path, show_all=args.all)
    show_findings(out, [record for record in run.records if isinstance(record, Finding)])
    out.print(f"report: {build_report(run.path, profiles=profiles)}", soft_wrap=True)
    return EXIT_PASS
