"""``assay fabric check``: the faults of a fabric's cables and forwarding tables, without any schedule or run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from assay.commands.fabric.source import add_output, add_source, read_source, start_session
from assay.commands.parser import Example
from assay.commands.specifications import specifications
from assay.measure.fabric import check_records

if TYPE_CHECKING:
    from assay.commands.fabric import Verbs

EXAMPLES = [
    Example("assay fabric check --fabric net.txt --tables fts.txt", needs="a fabric"),
    Example("assay fabric check --fabric net.txt --routing min-hop", "would it be safe?", "a fabric"),
    Example("assay fabric check --fat-tree radix=8,rate=4xHDR,dead=leaf0:5 --routing up/down", "a model"),
]


class Check:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "check",
            help="slow cables, hosts that do not reach each other, credit loops, crowded ports",
            description="Faults of a fabric by itself: cables that are narrower or slower than most of their kind, "
            "hosts that do not reach each other (loops and holes in the tables), routes whose buffers can wait for "
            "each other for good (credit loops), and up ports with far more destinations than others.",
            examples=EXAMPLES,
        )
        add_source(parser)
        add_output(parser)
        parser.set_defaults(fabric_verb=run_check)


def run_check(args: argparse.Namespace) -> int:
    specs = specifications(args, "fabric")
    routes = read_source(args)
    session = start_session(args, "fabric-check", routes)
    with session.interruptible():
        for record in check_records(routes):
            session.run.append(record)
    status = session.conclude(specs)
    if args.json:
        session.print_json()
    return status
