"""``assay numa compare RUN RUN``: two profiles side by side."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from assay.commands.numa.show import profiles_of
from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_PASS
from assay.numa.profile import total
from assay.report.numa import show_numa_comparison
from assay.report.terminal import console

if TYPE_CHECKING:
    from assay.commands.numa import Verbs


class Compare:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "compare",
            help="compare two profiles",
            description="Compares the remote shares of two profiles, of the whole and of each object.",
            examples=[
                Example("assay numa compare serial parallel", needs="two runs"),
                Example("assay numa compare serial parallel --json", needs="two runs"),
                Example("assay numa compare runs/20261122-serial runs/20261122-parallel", needs="two runs"),
            ],
        )
        parser.add_argument("before", metavar="RUN", help="the run before the change")
        parser.add_argument("after", metavar="RUN", help="the run after it")
        add(parser, "--json")
        parser.set_defaults(numa_verb=compare)


def compare(args: argparse.Namespace) -> int:
    before, after = profiles_of(args.before)[0], profiles_of(args.after)[0]
    if args.json:
        shares = {
            name: total(profile).remote_share for name, profile in (("before", before), ("after", after))
        }
        print(json.dumps(shares))
    else:
        show_numa_comparison(console(), before, after)
    return EXIT_PASS
