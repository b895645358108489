"""Options that several verbs share, and the readers of their values."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable
from pathlib import Path

from assay.errors import UserError
from assay.explain import RULES
from assay.judge import Specification, Vocabulary, find_specification, load_specification
from assay.lab import Lab
from assay.launch.engines import described, described_profilers, described_storage, metrics_of
from assay.launch.placement import HERE, REMOTE, Site, lab_site
from assay.measure.heap import HEAP
from assay.measure.storage import SPEEDUP_DESCRIBED
from assay.records.run import Run
from assay.records.units import parse_in


def quantity(unit: str) -> Callable[[str], float]:
    """A reader of quantities in ``unit``; a bare number is in that unit."""

    def read(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            pass
        try:
            return parse_in(text, unit)
        except UserError as error:  # argparse adds the option's name
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def count(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


def add_lab(parser: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lab", nargs="?", const="", metavar="NAME", help="on the virtual cluster (see 'assay lab --help')"
    )


def place(
    args: argparse.Namespace, hosts: list[str], others: list[str] | None = None, ranks_here: int = 0
) -> tuple[Site, list[str]]:
    """Where ranks run, and on which hosts: the named ones, the lab's, or ``ranks_here`` on this machine.

    ``others`` are hosts that already have a role; ``ranks_here`` 0 means one for each core, at least 2.
    """
    others = others or []
    wanted = getattr(args, "ranks", None)
    if wanted and (hosts or others or args.lab is not None):
        raise UserError("--ranks goes with no hosts", "leave it out, or leave the hosts out")
    if args.lab is not None:
        lab = Lab.load(args.lab or None)
        return lab_site(lab), hosts or [h for h in lab.hosts if h not in others]
    if hosts or others:
        return REMOTE, hosts
    ranks = wanted or ranks_here or max(2, len(os.sched_getaffinity(0)))
    return HERE, [socket.gethostname()] * ranks


def specifications(args: argparse.Namespace, *built_in: str) -> list[Specification]:
    """The built-in ones and those of --spec, read before anything starts: a fault in one is said at once."""
    return [read_specification(name) for name in [*built_in, *args.spec]]


def read_specification(name: str) -> Specification:
    """By path or built-in name, checked against what the engines know; where none is built, a run can be
    judged all the same."""
    known = described()
    if known is None:
        return load_specification(find_specification(name), Vocabulary(rules=RULES))
    measurements = [
        *known.measurements,
        *described_profilers(),
        HEAP,
        *described_storage(),
        SPEEDUP_DESCRIBED,
    ]
    vocabulary = Vocabulary(
        metrics=metrics_of(measurements),
        rules=RULES,
        facts={fact.name: fact.unit for fact in known.facts},
        parameters={one.name: {p.name: p.unit for p in one.parameters} for one in measurements},
    )
    return load_specification(find_specification(name), vocabulary)


def open_run(verb: str, args: argparse.Namespace) -> Run:
    """The run that this command fills: a new one, or the one that it goes on with."""
    if args.resumed is not None:
        return Run.reopen(args.resumed)
    return Run.create(verb, args.words, path=Path(args.output) if args.output else None)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", "-o", metavar="DIR", help="the run's directory (default: runs/DATE-...)")
    parser.add_argument(
        "--spec", action="append", default=[], metavar="SPEC", help="a specification to judge by, besides"
    )
    parser.add_argument("--json", action="store_true", help="the whole run as JSON on standard output")
    parser.add_argument("--verbose", "-v", action="store_true", help="show commands and engines' own words")
