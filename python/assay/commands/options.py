"""Options that several verbs share, and the readers of their values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from assay.errors import UserError
from assay.lab import Lab
from assay.records.units import parse_in


def quantity(unit: str) -> Callable[[str], float]:
    """A reader of quantities in ``unit``; a bare number is in that unit."""

    def read(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return parse_in(text, unit)

    return read


def count(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UserError(f"'{text}' is not a whole number of at least 1", "give one, such as 16")
    return int(text)


def add_lab(parser: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lab", nargs="?", const="", metavar="NAME", help="on the virtual cluster (see 'assay lab --help')"
    )


def chosen_lab(args: argparse.Namespace) -> Lab | None:
    """The lab of --lab; None when it was not given."""
    if args.lab is None:
        return None
    return Lab.load(args.lab or os.environ.get("ASSAY_LAB"))


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", "-o", metavar="DIR", help="the run's directory (default: runs/DATE-...)")
    parser.add_argument(
        "--spec", action="append", default=[], metavar="FILE", help="a specification to judge by, besides"
    )
    parser.add_argument("--json", action="store_true", help="the whole run as JSON on standard output")
    parser.add_argument("--verbose", "-v", action="store_true", help="show commands and engines' own words")
