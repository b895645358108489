"""``assay numa show RUN``: shows a recorded profile."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_PASS, UserError
from assay.measure.numa import FOLDER, load_profiles
from assay.numa.advice import findings
from assay.numa.profile import Profile
from assay.records.run import Run
from assay.report.numa import show_numa
from assay.report.terminal import console, show_findings

if TYPE_CHECKING:
    from assay.commands.numa import Verbs


class Show:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "show",
            help="show a recorded profile",
            description="Shows a profile that assay numa has recorded.",
            examples=[
                Example("assay numa show placed", needs="a run"),
                Example("assay numa show placed --all", "every process", "a run"),
                Example("assay numa show placed --json", needs="a run"),
            ],
        )
        parser.add_argument("run", metavar="RUN", help="the run's directory")
        parser.add_argument("--all", action="store_true", help="show every process, not only the largest")
        add(parser, "--json")
        parser.set_defaults(numa_verb=show)


def profiles_of(run: str) -> list[Profile]:
    """Raises UserError for a folder without a NUMA profile."""
    profiles = load_profiles(Run.load(run).path / FOLDER)
    if not profiles:
        raise UserError(f"{Path(run)} holds no NUMA profile", "record one: assay numa -o RUN -- PROGRAM")
    return profiles


def show(args: argparse.Namespace) -> int:
    profiles = profiles_of(args.run)
    if args.json:
        sys.stdout.buffer.write(msgspec.json.encode(profiles if args.all else profiles[:1]) + b"\n")
        return EXIT_PASS
    out = console()
    for profile in profiles if args.all else profiles[:1]:
        show_numa(out, profile)
    show_findings(out, findings(profiles[0], Run.load(args.run).info.hosts[0]))
    return EXIT_PASS
