"""``assay fabric conflicts``: the flows of a schedule that share links."""

from __future__ import annotations

import argparse

from assay.commands.fabric.source import (
    add_members,
    add_source,
    read_members,
    read_source,
    start_session,
)
from assay.commands.options import add_option, add_output, count
from assay.commands.parser import Example
from assay.commands.specifications import specifications
from assay.commands.sub_verbs import Verbs
from assay.errors import UserError
from assay.fabric import schedules
from assay.measure.fabric import conflict_records, describe_picture

MATCHINGS = 100  # random matchings of hosts, over which the effective bisection bandwidth is averaged
MAX_MATCHINGS = 100_000
EXAMPLES = [
    Example("assay fabric conflicts --fat-tree radix=36,nodes=45", "before it is bought"),
    Example("assay fabric conflicts --fabric net.txt --tables fts.txt --schedule shift", needs="a fabric"),
    Example(
        "assay fabric conflicts --fabric net.txt --tables fts.txt --order opensm-ftree-ca-order.dump",
        needs="a fabric",
    ),
]


def prepare_conflicts(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "conflicts",
        help="flows of an all-to-all schedule that share links, step by step",
        description="For each step of a schedule, the directed links between switches that carry more than one "
        "flow, and the pairs that share them. A link with n flows has n - 1 conflicts. 'rounds' is the time in "
        "lockstep, in units of a step without conflicts. Nothing is sent: the forwarding tables are followed.",
        examples=EXAMPLES,
    )
    add_source(parser)
    add_members(parser)
    add_option(parser, "--schedule", "default: shift")
    add_option(parser, "--schedule-file")
    parser.add_argument(
        "--matchings",
        type=count,
        default=MATCHINGS,
        metavar="N",
        help=f"random matchings for the effective bisection bandwidth (default: {MATCHINGS})",
    )
    add_output(parser)
    parser.set_defaults(sub_verb=run_conflicts)


def run_conflicts(args: argparse.Namespace) -> int:
    specs = specifications(args)
    if args.matchings > MAX_MATCHINGS:
        raise UserError(f"--matchings {args.matchings} is more than {MAX_MATCHINGS}", "give fewer")
    if args.schedule and args.schedule_file:
        raise UserError("--schedule and --schedule-file are both given", "give one of them")
    routes = read_source(args)
    members = read_members(args, routes.fabric)
    if args.schedule_file is not None:
        schedule = schedules.read(args.schedule_file, len(members))
    else:
        args.schedule = args.schedule or "shift"
        schedule = schedules.find(args.schedule, len(members))
    conflict_stream = conflict_records(routes, schedule, members, args.matchings)
    first = next(
        conflict_stream
    )  # raises UserError for a route that does not arrive, before a run is created
    session = start_session(args, "fabric-conflicts", routes.fabric, routes, members)
    for context in describe_picture(routes, schedule, members):
        session.run.append(context)
    session.run.append(first)
    with session.interruptible():
        for record in conflict_stream:
            session.run.append(record)
    return session.conclude(specs)
