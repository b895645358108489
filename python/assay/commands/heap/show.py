"""``assay heap show``: shows a recorded heap profile."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from msgspec import to_builtins

from assay.commands.heap.runs import HEAP
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS
from assay.measure.kept_sources import keep_sources
from assay.profile.heap import METRICS, HeapProfile
from assay.profile.sources import load_sources
from assay.records.profile import SourceProblem
from assay.records.schema import Finding
from assay.report.console import console
from assay.report.heap import show_profiles
from assay.report.html import build_report
from assay.report.sources import show_source_notices
from assay.report.terminal import show_findings


def prepare_show(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "show",
        help="show a recorded profile, and write its report again",
        description="Shows the profile of a run, and writes its report again.",
        examples=[
            Example("assay heap show first", needs="a run"),
            Example("assay heap show first --all", "every process", "a run"),
            Example("assay heap show first --json", "totals and functions", "a run"),
        ],
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--all", action="store_true", help="show every process, not only the largest")
    add_option(parser, "--sources")
    add_option(parser, "--json")
    parser.set_defaults(sub_verb=show)


def show(args: argparse.Namespace) -> int:
    run, profiles = HEAP.profiles_of(args.run)
    if args.sources:
        keep_sources(run, [profile.calls for profile in profiles.processes])
    if args.json:
        source_problems = load_sources(run.path).problems()
        print(json.dumps([_summary(profile, source_problems) for profile in profiles.processes], indent=1))
        return EXIT_PASS
    out = console()
    show_profiles(out, profiles, run.path, show_all=args.all)
    show_source_notices(out, run.path)
    show_findings(out, [record for record in run.records if isinstance(record, Finding)])
    out.print(f"report: {build_report(run.path, profiles=profiles)}", soft_wrap=True)
    return EXIT_PASS


def _summary(profile: HeapProfile, source_problems: list[SourceProblem]) -> dict[str, object]:
    """Totals and functions; the whole analysis is in the run's heap folder."""
    return {
        "process": to_builtins(profile.process),
        "totals": to_builtins(profile.totals),
        "pools": to_builtins(profile.pools),
        "source_problems": to_builtins(source_problems),
        "functions": {
            metric: [
                {
                    "function": figures.location.function,
                    "source": figures.location.source,
                    "exclusive": round(figures.exclusive),
                    "inclusive": round(figures.inclusive),
                }
                for figures in profile.by(metric, "function")
            ]
            for metric in METRICS
        },
    }
