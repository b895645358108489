"""``assay numa show``: shows a recorded NUMA profile."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from assay.commands.numa.runs import NUMA
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS
from assay.measure.kept_sources import keep_sources
from assay.measure.numa import FOLDER, load_profiles
from assay.numa.assembly import assemblies
from assay.profile.sources import load_sources
from assay.records.run import Run
from assay.records.schema import Finding
from assay.records.text import json_line
from assay.report.assembly import show_assembly
from assay.report.console import console
from assay.report.html import build_report
from assay.report.numa import show_numa_profiles
from assay.report.sources import show_source_notices
from assay.report.terminal import show_findings


def prepare_show(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "show",
        help="show a recorded profile, and write its report again",
        description="Shows the profile of a run, and writes its report again.",
        examples=[
            Example("assay numa show placed", needs="a run"),
            Example("assay numa show placed --assembly work", "the instructions of a function", "a run"),
            Example("assay numa show placed --json", "all figures", "a run"),
        ],
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--all", action="store_true", help="show every process, not only the largest")
    add_option(parser, "--sources")
    parser.add_argument(
        "--assembly",
        metavar="FUNCTION",
        help="show a function's instructions, each with its accesses (with objdump)",
    )
    add_option(parser, "--json")
    parser.set_defaults(sub_verb=show)


def show(args: argparse.Namespace) -> int:
    run, profiles = NUMA.profiles_of(args.run)
    if args.assembly:
        return _show_assembly(run, args.assembly, args.json)
    if args.sources:
        keep_sources(run, [profile.calls for profile in profiles.numa])
    if args.json:
        source_problems = load_sources(run.path).problems()
        shown = profiles.numa if args.all else [profiles.numa_main]
        rows = [msgspec.to_builtins(profile) | {"source_problems": source_problems} for profile in shown]
        sys.stdout.buffer.write(json_line(rows).encode() + b"\n")
        return EXIT_PASS
    out = console()
    show_numa_profiles(out, profiles, run.path, show_all=args.all)
    show_source_notices(out, run.path)
    show_findings(out, [record for record in run.records if isinstance(record, Finding)])
    out.print(f"report: {build_report(run.path, profiles=profiles)}", soft_wrap=True)
    return EXIT_PASS


def _show_assembly(run: Run, function: str, as_json: bool) -> int:
    found = assemblies(load_profiles(run.path / FOLDER), function)
    if as_json:
        sys.stdout.buffer.write(json_line(found).encode() + b"\n")
    else:
        for assembly in found:
            show_assembly(console(), assembly)
    return EXIT_PASS
