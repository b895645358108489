"""``assay io recover`` and ``assay io drain``: what jobs have left in stores, into the file system."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import msgspec

from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_PASS, EXIT_UNUSABLE, UserError
from assay.launch.stores import Held, Rescued, found, held, rescue
from assay.records.units import format_quantity

if TYPE_CHECKING:
    from assay.commands.io import Verbs

SUMMARIES = {
    "recover": "what a job that ended early has left in this node's stores, into the file system",
    "drain": "what a job with --detach has left in this node's stores, into the file system",
}


class Rescue:
    """Both sub-verbs: they differ in who has left it there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            self.name,
            help=SUMMARIES[self.name],
            description=f"Writes {SUMMARIES[self.name]}, and removes the stores; but not of jobs that run.",
            examples=[
                Example(f"assay io {self.name} --list", "what the stores of this node hold"),
                Example(f"assay io {self.name} /dev/dax0.0", needs="persistent memory"),
                Example(f'pdsh -w "n[1-64]" assay io {self.name}', "every node of a job", "a cluster"),
            ],
        )
        parser.add_argument("stores", nargs="*", metavar="STORE", help="files, devices, folders of stores")
        parser.add_argument("--list", action="store_true", help="show what they hold and change nothing")
        add(parser, "--json", "one object per line")
        parser.set_defaults(io_verb=run_rescue)


def run_rescue(args: argparse.Namespace) -> int:
    """Every store has its turn, whatever became of the one before."""
    status = EXIT_PASS
    stores = found(args.stores)
    if not stores:
        print("no stores here", file=sys.stderr)
    for store in stores:
        try:
            left = held(store)
            if args.list:
                _show(left, args.json)
            elif left.in_use:
                print(f"{store}: in use by the running job {left.job}", file=sys.stderr)
            else:
                _show(rescue(store), args.json)
        except UserError as error:
            print(f"assay: {error}", file=sys.stderr)
            status = EXIT_UNUSABLE
    return status


def _show(what: Held | Rescued, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(what).decode())
        return
    if isinstance(what, Held) and what.in_use:
        print(
            f"{what.store}: in use by job {what.job} ({what.ranks} ranks, {format_quantity(what.size, 'B')})"
        )
        return
    verb = "holds" if isinstance(what, Held) else "brought"
    print(f"{what.store}: {verb} {format_quantity(what.bytes, 'B')} in {what.records} records")
    for file in what.files:
        gone = "  (removed or replaced since: not written)" if file.gone else ""
        print(f"  {format_quantity(file.bytes, 'B'):>12}  {file.path}{gone}")
    if what.torn:
        print(f"  {what.torn} records were torn and cannot be read")
