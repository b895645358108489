"""``assay eb``: measures the event builder (each node assembles events from fragments of all nodes), and for comparison
the bandwidth of the network alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from assay.commands.eb.options import add_builder_options, add_host_options, build_request
from assay.commands.eb.tune import prepare_tune
from assay.commands.options import add_alias, add_option, add_output
from assay.commands.parser import Example, Parser
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.commands.sub_verbs import VerbGroup
from assay.errors import UserError
from assay.launch.hosts import fold
from assay.launch.launchers import Launcher
from assay.launch.reach import check_hosts
from assay.measure.events import EventRequest, measure_events

DURATION_S = 10.0
MAX_DURATION_S = 1e7


class Eb(VerbGroup):
    """Build events over a network: each node assembles some, from a part of every node. Each byte is verified; what the
    network can carry is shown beside it."""

    name = "eb"
    examples = [
        Example("assay eb --transport null -n 4 --budget 2s", "the engine's own limit"),
        Example('assay eb -w "node[1-64]" --budget 3h', "does the network hold it?", "a cluster"),
        Example("assay eb --lab --transport tcp --protocol pull", "goes on when a host dies", "a lab"),
    ]
    sub_verbs = (prepare_tune,)

    def prepare_parser(self, parser: Parser) -> None:
        self.add_sub_verbs(parser, metavar="[COMMAND]", required=False)
        add_host_options(parser)
        add_builder_options(parser)
        add_option(parser, "--budget", "default: 10s")
        add_alias(parser, "--duration", "--budget")
        parser.advanced.add_argument(
            "--alone", action="store_true", help="only the event builder, nothing beside it to compare with"
        )
        add_output(parser)
        parser.set_defaults(sub_verb=run_eb)


def run_eb(args: argparse.Namespace, simulated: Launcher | None = None, platform: Sequence[str] = ()) -> int:
    """Runs ``assay eb``. ``simulated``, ``platform``: the launcher of a simulation, and its hosts. Returns the exit
    code."""
    request = build_request(args, simulated, platform)
    if args.alone:
        request.mpi = None
    if args.budget is not None and args.budget > MAX_DURATION_S:
        raise UserError(f"--budget {args.budget:g} s: too long", f"give at most {MAX_DURATION_S:g} s")
    if args.events is not None and args.budget is None:
        request.params["duration"] = 0
    else:
        request.params["duration"] = args.budget or DURATION_S
    return run_request(args, request)


def run_request(args: argparse.Namespace, request: EventRequest) -> int:
    """Measures and judges a checked request. Returns the exit code."""
    specs = specifications(args, "events")
    check_hosts(request.site, request.hosts, request.launcher.name)
    session = open_session(
        "eb",
        args,
        list(dict.fromkeys(request.hosts)),
        {
            "transport": args.transport or "mpi",
            "processes": args.processes or 1,
            "simulated": request.is_simulated,
            **request.params,
        },
    )
    session.err.print(describe_request(request), soft_wrap=True)
    with session.interruptible():
        measure_events(session, request)
    return session.conclude(specs)


def describe_request(request: EventRequest) -> str:
    ranks, hosts = len(request.hosts), len(set(request.hosts))
    if request.site.name == "here" and not request.is_simulated:
        return f"{ranks} ranks on this machine build events over {request.launcher.name}"
    several = f", {ranks} ranks" if ranks > hosts else ""
    named = fold(list(dict.fromkeys(request.hosts)))
    return f"{hosts} hosts ({named}){several} build events over {request.launcher.name}"
