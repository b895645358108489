"""``assay io recover``: writes data that ended jobs have left in stores into the file system.

A store is node-local memory that holds a program's parallel I/O until it is in the file system.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from assay.commands.options import add_option
from assay.commands.parser import Example, Parser
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, EXIT_UNUSABLE, UserError
from assay.launch.stores import RecoveredStore, UndrainedFile, find_stores, read_store, recover_store
from assay.records.text import json_line, name_text, one_line
from assay.records.units import format_quantity

REASONS = {  # why a file's data are not written, by ``UndrainedFile.condition``
    "ready": "not written yet",
    "gone": "the file no longer exists",
    "replaced": "another file is at that path",
    "changed": "it was changed since the job",
    "failed": "it cannot be written",
}
FIXES = {
    "gone": "move the file back to that path and recover again, or delete the data with --discard",
    "replaced": "move the file back to that path and recover again, or delete the data with --discard",
    "changed": "--force overwrites the changes with the data, --discard deletes the data",
    "failed": "correct the file system's error and recover again",
}


def prepare_recover(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "recover",
        help="write what an aborted job has left in this node's stores into the file system",
        description="Writes what an aborted job has left in this node's stores into the file system, then removes "
        "them. What cannot be written stays in its store, and the exit code is 2. Only the owner of a store can "
        "recover it. Stores in use are skipped. The command may be killed at any time: run it again.",
        examples=[
            Example("assay io recover", needs="stores"),
            Example("assay io recover /dev/dax0.0", needs="persistent memory"),
            Example('pdsh -w "n[1-64]" assay io recover', "every node of a job", "a cluster"),
        ],
    )
    add_stores(parser)
    parser.add_argument("--force", action="store_true", help="also write files that were changed since")
    add_option(parser, "--discard", "what cannot be written, with its store")
    add_option(parser, "--json", "one object per line")
    parser.set_defaults(sub_verb=run_recover)


def run_recover(args: argparse.Namespace) -> int:
    def recover(store: str) -> int:
        contents = read_store(store)
        if contents.state == "kept":
            print(
                f"{name_text(store)}: kept as {name_text(contents.name)}; the file system has all its data",
                file=sys.stderr,
            )
            return EXIT_PASS
        if contents.in_use:
            print(
                f"{name_text(store)}: in use by the {contents.state} job {name_text(contents.job)}",
                file=sys.stderr,
            )
            return EXIT_PASS
        return recover_and_show(store, force=args.force, discard=args.discard, as_json=args.json)

    return for_each_store(args.stores, recover)


def add_stores(parser: Parser) -> None:
    parser.add_argument(
        "stores", nargs="*", metavar="STORE", help="store files, devices, or folders of stores"
    )


def for_each_store(paths: list[str], act: Callable[[str], int]) -> int:
    """Calls ``act`` for each store; continues with the next store after an error. Returns the highest exit code.

    Without ``paths``, a store that its job removes after the search is left out.
    """
    status = EXIT_PASS
    stores = find_stores(paths)
    if not stores:
        print("no stores found", file=sys.stderr)
    for store in stores:
        try:
            status = max(status, act(store))
        except UserError as error:
            if not paths and not os.path.lexists(store):
                continue
            print(f"assay: {one_line(str(error))}", file=sys.stderr)
            status = EXIT_UNUSABLE
    return status


def recover_and_show(store: str, *, force: bool = False, discard: bool = False, as_json: bool = False) -> int:
    """Recovers a store and prints the result. Returns the exit code: 2 if data remain in the store."""
    recovered = recover_store(store, force=force, discard=discard)
    _show(recovered, as_json)
    if recovered.is_complete:
        return EXIT_PASS
    print(f"assay: {kept_line(recovered)}", file=sys.stderr)
    return EXIT_UNUSABLE


def _show(recovered: RecoveredStore, as_json: bool) -> None:
    if as_json:
        print(json_line(recovered))
        return
    print(
        f"{name_text(recovered.store)}: wrote {format_quantity(recovered.written, 'B')} "
        f"in {recovered.records} records"
    )
    unwritten = [file.path for file in recovered.kept]
    if recovered.discarded:
        print(f"  {format_quantity(recovered.discarded, 'B'):>12}  discarded")
    show_files(recovered.files, unwritten)
    if recovered.torn:
        print(f"  {recovered.torn} torn (half-written) records cannot be read")


def show_files(files: list[UndrainedFile], unwritten: list[str]) -> None:
    """Prints a line for each file. ``unwritten``: the paths of files that were not written."""
    for file in files:
        reason = f"  (not written: {file.error or REASONS[file.condition]})" if file.path in unwritten else ""
        print(f"  {format_quantity(file.bytes, 'B'):>12}  {name_text(file.path)}{reason}")


def kept_line(recovered: RecoveredStore) -> str:
    """A line that says what a store still holds, why, and how to correct it."""
    store = name_text(recovered.store)
    if not recovered.kept:
        return f"{store} keeps {recovered.kept_torn} torn (half-written) records; fix: --discard deletes them"
    first = recovered.kept[0]
    others = len(recovered.kept) - 1
    more = f" and {others} more file{'s' if others > 1 else ''}" if others else ""
    reason = first.error if first.condition == "failed" else REASONS[first.condition]
    size = format_quantity(sum(file.bytes for file in recovered.kept), "B")
    return f"{store} keeps {size} of {name_text(first.path)}{more}: {reason}; fix: {FIXES[first.condition]}"
