"""``assay io drain``: waits until background drains have written their stores into the file system."""

from __future__ import annotations

import argparse
import sys
import time

from assay.commands.io.recover import add_stores, for_each_store, recover_and_show
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, EXIT_UNUSABLE
from assay.launch.stores import wait_for_drain
from assay.records.text import name_text
from assay.records.units import format_quantity

LIMIT_S = 3600.0


def prepare_drain(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "drain",
        help="wait until the file system has all that ended jobs wrote with --until memory",
        description="Waits for the background drains of this node's stores. A store without one, because it was "
        "killed or gave up, is written by this command. The exit code is 2 if something is not in the file system "
        "within the limit. Stores of running jobs are skipped.",
        examples=[
            Example("assay io drain", needs="stores"),
            Example("assay io drain --timeout 10min /dev/dax0.0", needs="persistent memory"),
            Example('pdsh -w "n[1-64]" assay io drain', "every node of a job", "a cluster"),
        ],
    )
    add_stores(parser)
    add_option(parser, "--timeout", "of all stores together; default: 1h", default=LIMIT_S)
    add_option(parser, "--json", "one object per recovered store")
    parser.set_defaults(sub_verb=run_drain)


def run_drain(args: argparse.Namespace) -> int:
    deadline = time.monotonic() + args.timeout

    def drain(store: str) -> int:
        contents = wait_for_drain(store, deadline - time.monotonic())
        if contents is None or contents.state == "kept":
            return EXIT_PASS
        if contents.state == "left":
            return recover_and_show(store, as_json=args.json)
        if contents.state == "running":
            print(f"{name_text(store)}: in use by the running job {name_text(contents.job)}", file=sys.stderr)
            return EXIT_PASS
        failed = f": {name_text(contents.files[0].path)}: {contents.files[0].error}" if contents.files else ""
        print(
            f"assay: {name_text(store)} has still {format_quantity(contents.bytes, 'B')} to write{failed}; "
            "fix: wait again, with a longer --timeout",
            file=sys.stderr,
        )
        return EXIT_UNUSABLE

    return for_each_store(args.stores, drain)
