"""``assay fabric check``: the faults of a fabric's cables and forwarding tables, without any schedule or run."""

from __future__ import annotations

import argparse

from assay.commands.fabric.source import add_source, read_fabric_and_tables, start_session
from assay.commands.options import add_output
from assay.commands.parser import Example
from assay.commands.specifications import specifications
from assay.commands.sub_verbs import Verbs
from assay.measure.fabric import cable_records, check_records, tells_of_own_tables

# Specifications. Tables that are computed here are no part of a fabric, so its cables alone are judged.
WITH_TABLES, CABLES_ALONE = "fabric", "fabric-cables"
EXAMPLES = [
    Example("assay fabric check --fabric net.txt", "the cables alone", "a fabric"),
    Example("assay fabric check --fabric net.txt --tables fts.txt", needs="a fabric"),
    Example("assay fabric check --fat-tree radix=8,rate=4xHDR,dead=leaf0:5 --routing up/down", "a model"),
]


def prepare_check(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "check",
        help="slow cables, hosts that do not reach each other, credit loops, crowded ports",
        description="Faults of a fabric by itself: cables that are narrower or slower than most of their kind, "
        "parts that no cable joins, hosts that do not reach each other (loops and holes in the tables), routes "
        "whose buffers can wait for each other for good (credit loops), and up ports with far more destinations "
        "than others. Without tables, and with computed ones of a real fabric, the cables alone are judged.",
        examples=EXAMPLES,
    )
    add_source(parser)
    parser.add_argument(
        "--one-lane",
        action="store_true",
        help="a credit loop in given tables is a fault: no engine made them that keeps routes apart by virtual lanes "
        "(dfsssp, lash, nue, torus-2QoS)",
    )
    add_output(parser)
    parser.set_defaults(sub_verb=run_check)


def run_check(args: argparse.Namespace) -> int:
    specs = {name: specifications(args, name) for name in (WITH_TABLES, CABLES_ALONE)}
    fabric, routes = read_fabric_and_tables(args)
    session = start_session(args, "fabric-check", fabric, routes)
    with session.interruptible():
        for record in check_records(routes, args.one_lane) if routes is not None else cable_records(fabric):
            session.run.append(record)
    is_judged = routes is not None and tells_of_own_tables(routes)
    return session.conclude(specs[WITH_TABLES if is_judged else CABLES_ALONE])
