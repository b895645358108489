"""Shared by ``assay heap`` and ``assay numa``: opening runs, choosing a metric, and the sub-verbs ``export`` and
``diff``."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.session import open_session
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, UserError
from assay.measure.session import Session
from assay.profile.compare import Change, changes
from assay.profile.heap import HeapProfile
from assay.profile.numa import NumaProfile
from assay.profile.profiles import Profiles
from assay.records.foreign import named
from assay.records.run import Run
from assay.records.schema import Scalar
from assay.records.text import json_line

Profile = TypeVar("Profile", HeapProfile, NumaProfile)
STACK_FORMATS = ("collapsed", "speedscope", "pprof", "callgrind")


@dataclass(frozen=True)
class Profiler(Generic[Profile]):
    """A profiler of the command line, heap or numa."""

    verb: str  # of the command line
    recorded: str  # name of its recordings in messages, such as "heap trace"
    metrics: dict[str, str]  # their descriptions by name
    metric: Callable[[Profile], str]  # the metric of a profile that is shown by default
    default: str  # the same, as a text for the help
    analyse: Callable[[Run], object]  # analyses the recordings of a run that have not been analysed
    main: Callable[[Profiles], Profile | None]  # the profile to show first

    def new_session(self, args: argparse.Namespace, options: dict[str, Scalar | list[str] | None]) -> Session:
        return open_session(self.verb, args, [socket.gethostname()], options)

    def profiles_of(self, path: Path) -> tuple[Run, Profiles]:
        """Loads a run and its profiles, after analysing recordings that have not been analysed. Raises UserError."""
        fix = f"record one: assay {self.verb} -o RUN -- PROGRAM"
        if not (path / "run.json").is_file():
            raise UserError(f"{named(path)} is not a run", fix)
        run = Run.load(path)
        self.analyse(run)
        profiles = Profiles(run.path)
        if self.main(profiles) is None:
            raise UserError(f"{run.path} holds no {self.recorded}", fix)
        return run, profiles

    def main_profile(self, path: Path) -> Profile:
        """The profile to show first: the merged ranks of an MPI program, otherwise the largest process."""
        profile = self.main(self.profiles_of(path)[1])
        assert profile is not None
        return profile

    def add_metric(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--metric",
            choices=list(self.metrics),
            metavar="NAME",
            help=f"figure of the profile (one of {', '.join(self.metrics)}; default: {self.default})",
        )

    def metric_of(self, args: argparse.Namespace, profile: Profile) -> str:
        chosen: str | None = args.metric
        return chosen or self.metric(profile)


class Export(Generic[Profile]):
    """``assay VERB export``: a profile in the formats of other tools. ``with_json``: the whole profile as JSON too."""

    def __init__(self, profiler: Profiler[Profile], examples: Sequence[Example], with_json: bool) -> None:
        self.profiler: Profiler[Profile] = profiler
        self.examples = examples
        self.formats = ("json", *STACK_FORMATS) if with_json else STACK_FORMATS

    def prepare(self, verbs: Verbs) -> None:
        json = "whole (json), or its call stacks " if "json" in self.formats else ""
        parser = verbs.add_parser(
            "export",
            help=f"write a profile for other tools: {', '.join(self.formats)}",
            description="Writes the merged ranks of an MPI program, or else the largest process, to standard output: "
            f"{json}for flamegraph.pl (collapsed), speedscope.app, pprof and KCachegrind (callgrind).",
            examples=list(self.examples),
        )
        parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
        formats = ", ".join(self.formats)
        parser.add_argument("format", choices=self.formats, metavar="FORMAT", help=f"one of {formats}")
        self.profiler.add_metric(parser)
        parser.set_defaults(sub_verb=self.run)

    def run(self, args: argparse.Namespace) -> int:
        from assay.profile.export import callgrind, collapsed, pprof, speedscope

        profile = self.profiler.main_profile(args.run)
        if args.format == "json":
            sys.stdout.buffer.write(json_line(profile).encode() + b"\n")
        elif args.format == "pprof":
            sys.stdout.buffer.write(pprof(profile))
        elif args.format == "callgrind":
            sys.stdout.write(callgrind(profile))
        elif args.format == "collapsed":
            sys.stdout.write(collapsed(profile, self.profiler.metric_of(args, profile)))
        else:
            sys.stdout.write(speedscope(profile))
        return EXIT_PASS


@dataclass(frozen=True)
class Comparison(Generic[Profile]):
    """Two profiles, and how their functions differ in a metric."""

    before: Profile
    after: Profile
    metric: str
    changes: list[Change]

    def functions(self) -> list[dict[str, object]]:
        """The functions for ``--json``."""
        return [
            {
                "function": change.location.function,
                "file": change.location.file,
                "before": change.before,
                "after": change.after,
            }
            for change in self.changes
        ]


class Diff(Generic[Profile]):
    """``assay VERB diff``: compares two profiles. ``help`` and ``description`` are those of the sub-verb; ``show``
    prints the comparison, as JSON if its second argument is true."""

    def __init__(
        self,
        profiler: Profiler[Profile],
        examples: Sequence[Example],
        help: str,
        description: str,
        show: Callable[[Comparison[Profile], bool], None],
    ) -> None:
        self.profiler: Profiler[Profile] = profiler
        self.show: Callable[[Comparison[Profile], bool], None] = show
        self.examples, self.help, self.description = examples, help, description

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "diff", help=self.help, description=self.description, examples=list(self.examples)
        )
        parser.add_argument("before", type=Path, metavar="BEFORE", help="run directory")
        parser.add_argument("after", type=Path, metavar="AFTER", help="run directory")
        self.profiler.add_metric(parser)
        add_option(parser, "--json")
        parser.set_defaults(sub_verb=self.run)

    def run(self, args: argparse.Namespace) -> int:
        before, after = self.profiler.main_profile(args.before), self.profiler.main_profile(args.after)
        metric = self.profiler.metric_of(args, before)
        functions = changes(before.calls, after.calls, metric)
        self.show(Comparison(before, after, metric, functions), args.json)
        return EXIT_PASS
