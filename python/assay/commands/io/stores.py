"""``assay io stores`` and ``assay io drop``: list and remove the stores of this node."""

from __future__ import annotations

import argparse

from assay.commands.io.recover import add_stores, for_each_store, show_files
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, UserError
from assay.launch.stores import (
    StoreContents,
    UnreadableStore,
    drop_store,
    find_stores,
    list_store,
    read_store,
)
from assay.records.text import json_line, name_text
from assay.records.units import format_quantity

STATES = """\
states:
  running    a job has the store open
  draining   its job has ended; the background drain goes on
  kept       for later jobs: assay io run --keep NAME
  left       its job has ended before its data were drained: assay io recover
  unreadable of another user, or of another version of Assay
"""


def prepare_stores(verbs: Verbs) -> None:
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
    add_stores(parser)
    add_option(parser, "--json", "one object per line")
    parser.set_defaults(sub_verb=run_stores)


def run_stores(args: argparse.Namespace) -> int:
    def show(store: str) -> int:
        contents = list_store(store)
        if args.json:
            print(json_line(contents))
            return EXIT_PASS
        print(summary(contents))
        if isinstance(contents, StoreContents):
            failed = [file.path for file in contents.files if file.error or file.condition != "ready"]
            show_files(contents.files, failed)
            if contents.torn:
                print(f"  {contents.torn} torn (half-written) records cannot be read")
        return EXIT_PASS

    return for_each_store(args.stores, show)


def summary(contents: StoreContents | UnreadableStore) -> str:
    """A line about a store: state, size, owner, job, data."""
    if isinstance(contents, UnreadableStore):
        return f"{name_text(contents.store)}: unreadable, of {contents.owner}: {contents.reason}"
    return (
        f"{name_text(contents.store)}: {contents.state}{f' as {name_text(contents.name)}' if contents.name else ''}, "
        f"{format_quantity(contents.size, 'B')} of {contents.owner}, "
        f"job {name_text(contents.job)}, {contents.ranks} ranks; {format_quantity(contents.held_bytes, 'B')} of "
        f"{contents.held_files} files, "
        f"{format_quantity(contents.bytes, 'B')} not in the file system yet"
    )


def prepare_drop(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "drop",
        help="remove kept stores",
        description="Removes stores by name or path. Stores in use are refused, and so are stores with data that "
        "the file system lacks, unless --discard is given.",
        examples=[
            Example("assay io drop checkpoint", needs="a kept store"),
            Example("assay io drop /dev/dax0.0", needs="persistent memory"),
            Example('pdsh -w "n[1-64]" assay io drop checkpoint', "every node of a job", "a cluster"),
        ],
    )
    parser.add_argument("stores", nargs="+", metavar="NAME", help="names of kept stores, or paths of stores")
    add_option(parser, "--discard")
    parser.set_defaults(sub_verb=run_drop)


def run_drop(args: argparse.Namespace) -> int:
    for name in args.stores:
        for store in _stores_of(name):
            contents = list_store(store)
            drop_store(store, discard=args.discard)
            if isinstance(contents, UnreadableStore):
                print(f"{name_text(store)}: dropped")
                continue
            held = format_quantity(contents.held_bytes, "B")
            print(f"{name_text(store)}: dropped {held} of {contents.held_files} files")
    return EXIT_PASS


def _stores_of(name: str) -> list[str]:
    if "/" in name:
        return [name]
    listed = []
    for store in find_stores():
        try:
            if read_store(store).name == name:
                listed.append(store)
        except UserError:
            continue  # another user's, or just removed
    if not listed:
        raise UserError(f"no store of this node is kept as {name}", "list them with assay io stores")
    return listed
