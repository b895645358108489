"""``assay mem``: memory bandwidth, at its peak and at an application's own pace."""

from __future__ import annotations

import argparse
import socket

from assay.commands.options import add_output, open_run, quantity, specifications
from assay.errors import UserError
from assay.launch.engines import describe, probe
from assay.launch.placement import HERE
from assay.measure.node import measure_node
from assay.measure.session import Session
from assay.measure.workload import load_workload
from assay.records.schema import Scalar

PEAK, PACED = "node.memory", "node.memory_paced"


class Mem:
    """Memory of this machine: peak bandwidth from the cores of each NUMA node to the memory of each, and
    whether it keeps up with an application's memory traffic at the application's own pace (COBALT's
    mem-test)."""

    name = "mem"
    examples = """
  assay mem                                  peak, then the COBALT2 workload
  assay mem --paced --realtime               the workload alone, with real-time priority
  assay mem --paced --workload site.toml     a workload of your own (see workloads/cobalt2.toml)
  assay mem --paced --scale 50%              at half its rates
  assay mem --peak --json
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--peak", action="store_true", help="peak bandwidth alone")
        which.add_argument("--paced", action="store_true", help="the paced workload alone")
        parser.add_argument(
            "--workload", default="cobalt2", metavar="NAME", help="a built-in workload, or a TOML file"
        )
        parser.add_argument(
            "--scale", type=quantity("1"), metavar="SHARE", help="share of the workload's rates (default: 1)"
        )
        parser.add_argument(
            "--seconds", type=quantity("s"), metavar="TIME", help="of the workload (default: 25s)"
        )
        parser.add_argument("--realtime", action="store_true", help="real-time priority, as chrt -f 1")
        add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        names = [PEAK] if args.peak else [PACED] if args.paced else [PEAK, PACED]
        if args.peak and (args.scale or args.seconds):
            raise UserError("--scale and --seconds are of the workload", "leave them out with --peak")
        wanted = specifications(args)
        common: dict[str, Scalar] = {"realtime": True} if args.realtime else {}
        paced: dict[str, Scalar] = {"workload": load_workload(args.workload), **common}
        for option in ("scale", "seconds"):
            if getattr(args, option) is not None:
                paced[option] = getattr(args, option)
        describe(probe()).find(PACED).check_bounds(paced)
        here = socket.gethostname()
        run = open_run("mem", args)
        run.info.hosts = [here]
        run.save()
        session = Session(run, verbose=args.verbose, quiet=args.json)
        for name in names:
            measure_node(session, name, HERE, [here], None, paced if name == PACED else common)
        status = session.conclude(wanted)
        if args.json:
            session.print_json()
        return status
