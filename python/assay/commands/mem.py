"""``assay mem``: peak memory bandwidth, and whether the memory sustains an application's rates (paced workload)."""

from __future__ import annotations

import argparse
import socket

from assay.commands.options import add_option, add_output, share
from assay.commands.parser import Example, Parser
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.errors import UserError
from assay.launch.engines import describe, probe
from assay.launch.placement import HERE
from assay.measure.node import measure_node
from assay.measure.workload import load_workload
from assay.records.schema import Scalar

MAX_SCALE = 10.0  # of the workload's rates; beyond it a slip of units is likely
PEAK, PACED = "node.memory", "node.memory_paced"


class Mem:
    """Memory bandwidth: the peak, and at an application's pace. Peak bandwidth is measured from the cores of each
    NUMA node to the memory of each; the paced workload tells whether the machine keeps up with an application's memory
    traffic (COBALT's mem-test)."""

    name = "mem"
    examples = [
        Example("assay mem", "peak bandwidth, then the COBALT2 workload"),
        Example("assay mem --paced --scale 50% --budget 5s", "the workload alone, at half its rates"),
        Example("assay mem --peak --budget 3s --json"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--peak", action="store_true", help="peak bandwidth alone")
        mode.add_argument("--paced", action="store_true", help="the paced workload alone")
        parser.add_argument(
            "--workload", default="cobalt2", metavar="NAME", help="a built-in workload, or a TOML file"
        )
        parser.add_argument(
            "--scale", type=share, metavar="SHARE", help="share of the workload's rates (default: 100%%)"
        )
        add_option(parser, "--budget", "of both, half for each; default: 25s for the workload alone")
        add_option(parser, "--realtime")
        add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        names = [PEAK] if args.peak else [PACED] if args.paced else [PEAK, PACED]
        if args.peak and args.scale:
            raise UserError("--scale is for the workload", "leave it out with --peak")
        if args.scale is not None and not 0 < args.scale <= MAX_SCALE:
            raise UserError(
                f"--scale {args.scale:.0%}: out of bounds", f"give from above 0 to {MAX_SCALE:.0%}"
            )
        specs = specifications(args)
        common: dict[str, Scalar] = {"realtime": True} if args.realtime else {}
        paced: dict[str, Scalar] = {"workload": load_workload(args.workload), **common}
        peak: dict[str, Scalar] = {**common}
        if args.scale is not None:
            paced["scale"] = args.scale
        if args.budget is not None:
            peak["limit"] = paced["budget"] = args.budget / len(names)
        described = describe(probe())
        for name, params in ((PACED, paced), (PEAK, peak)):
            described.find(name).check_bounds(params)
        this_host = socket.gethostname()
        session = open_session("mem", args, [this_host])
        with session.interruptible():
            for name in names:
                measure_node(session, name, HERE, [this_host], None, paced if name == PACED else peak)
        return session.conclude(specs)
