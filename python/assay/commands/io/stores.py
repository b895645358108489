"""``assay io stores``: lists the stores of this node."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import msgspec

from assay.commands.io.recover import for_each_store, show_files
from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_PASS
from assay.launch.stores import read_store
from assay.records.units import format_quantity

if TYPE_CHECKING:
    from assay.commands.io import Verbs

STATES = """\
states:
  running    a job has the store open
  draining   its job has ended; the background drain goes on
  left       its job has ended, nobody drains it: assay io recover
"""


class Stores:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "stores",
            help="list this node's stores: state, size, owner, and what is not in the file system yet",
            description="Lists the stores of this node, and what of them is not in the file system yet.",
            notes=STATES,
            examples=[
                Example("assay io stores"),
                Example("assay io stores --json"),
                Example('pdsh -w "n[1-64]" assay io stores', "every node of a job", "a cluster"),
            ],
        )
        parser.add_argument(
            "stores", nargs="*", metavar="STORE", help="store files, devices, or folders of stores"
        )
        add(parser, "--json", "one object per line")
        parser.set_defaults(io_verb=run_stores)


def run_stores(args: argparse.Namespace) -> int:
    def show(store: str) -> int:
        contents = read_store(store)
        if args.json:
            print(msgspec.json.encode(contents).decode())
            return EXIT_PASS
        print(
            f"{store}: {contents.state}, {format_quantity(contents.size, 'B')} of {contents.owner}, "
            f"job {contents.job}, {contents.ranks} ranks; "
            f"{format_quantity(contents.bytes, 'B')} not in the file system yet"
        )
        show_files(
            contents.files, [file.path for file in contents.files if file.error or file.condition != "ready"]
        )
        if contents.torn:
            print(f"  {contents.torn} torn records cannot be read")
        return EXIT_PASS

    return for_each_store(args.stores, show)
