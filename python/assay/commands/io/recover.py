"""``assay io recover`` and ``assay io drain``: write what jobs have left in stores into the file system."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import msgspec

from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_PASS, EXIT_UNUSABLE, UserError
from assay.launch.stores import RecoveredStore, StoreContents, find_stores, read_store, recover_store
from assay.records.units import format_quantity

if TYPE_CHECKING:
    from assay.commands.io import Verbs

SUMMARIES = {
    "recover": "write what an aborted job has left in this node's stores into the file system",
    "drain": "write what a job with --detach has left in this node's stores into the file system",
}

REASONS = {
    "ready": "not written yet",
    "gone": "there is no such file",
    "replaced": "another file is at that path",
    "changed": "it was changed since the job",
    "failed": "it cannot be written",
}
FIXES = {
    "gone": "move the file back to that path and recover again, or drop the data with --discard",
    "replaced": "move the file back to that path and recover again, or drop the data with --discard",
    "changed": "--force writes the data over the changes, --discard drops them",
    "failed": "make the file system accept it and recover again",
}


class Recover:
    """Both sub-verbs: they differ in their help only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            self.name,
            help=SUMMARIES[self.name],
            description=f"{SUMMARIES[self.name].capitalize()}, then remove them. What cannot be written stays in its "
            "store, and the exit code is 2. Only the owner of a store can recover it. Stores of running jobs are "
            "skipped. The command may be killed at any time: run it again.",
            examples=[
                Example(f"assay io {self.name} --list", "what the stores of this node hold"),
                Example(f"assay io {self.name} /dev/dax0.0", needs="persistent memory"),
                Example(f'pdsh -w "n[1-64]" assay io {self.name}', "every node of a job", "a cluster"),
            ],
        )
        parser.add_argument(
            "stores", nargs="*", metavar="STORE", help="store files, devices, or folders of stores"
        )
        parser.add_argument("--list", action="store_true", help="only show what the stores hold")
        parser.add_argument("--force", action="store_true", help="also write files that were changed since")
        parser.add_argument(
            "--discard", action="store_true", help="drop what cannot be written, and remove the stores"
        )
        add(parser, "--json", "one object per line")
        parser.set_defaults(io_verb=run_recover)


def run_recover(args: argparse.Namespace) -> int:
    """Recovers each store; continues with the next one after an error."""
    status = EXIT_PASS
    stores = find_stores(args.stores)
    if not stores:
        print("no stores found", file=sys.stderr)
    for store in stores:
        try:
            contents = read_store(store)
            if args.list:
                _show(contents, args.json)
            elif contents.in_use:
                print(f"{store}: in use by the running job {contents.job}", file=sys.stderr)
            else:
                recovered = recover_store(store, force=args.force, discard=args.discard)
                _show(recovered, args.json)
                if not recovered.is_complete:
                    print(f"assay: {kept_line(recovered)}", file=sys.stderr)
                    status = EXIT_UNUSABLE
        except UserError as error:
            print(f"assay: {error}", file=sys.stderr)
            status = EXIT_UNUSABLE
    return status


def _show(result: StoreContents | RecoveredStore, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(result).decode())
        return
    if isinstance(result, StoreContents) and result.in_use:
        print(
            f"{result.store}: in use by job {result.job} ({result.ranks} ranks, {format_quantity(result.size, 'B')})"
        )
        return
    if isinstance(result, StoreContents):
        print(f"{result.store}: holds {format_quantity(result.bytes, 'B')} in {result.records} records")
        kept = [file.path for file in result.files if file.condition != "ready"]
    else:
        print(f"{result.store}: wrote {format_quantity(result.written, 'B')} in {result.records} records")
        kept = [file.path for file in result.kept]
        if result.discarded:
            print(f"  {format_quantity(result.discarded, 'B'):>12}  dropped")
    for file in result.files:
        reason = f"  (not written: {REASONS[file.condition]})" if file.path in kept else ""
        print(f"  {format_quantity(file.bytes, 'B'):>12}  {file.path}{reason}")
    if result.torn:
        print(f"  {result.torn} torn records cannot be read")


def kept_line(recovered: RecoveredStore) -> str:
    """What a store still holds, why, and what to do."""
    if not recovered.kept:
        return f"{recovered.store} keeps {recovered.kept_torn} torn records; fix: --discard drops them"
    first = recovered.kept[0]
    others = len(recovered.kept) - 1
    more = f" and {others} more file{'s' if others > 1 else ''}" if others else ""
    reason = first.error if first.condition == "failed" else REASONS[first.condition]
    size = format_quantity(sum(file.bytes for file in recovered.kept), "B")
    return f"{recovered.store} keeps {size} of {first.path}{more}: {reason}; fix: {FIXES[first.condition]}"
