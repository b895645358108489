"""``assay gpu``: bandwidth between host memory and GPUs, each GPU alone and all at once, as gpu-copy of the COBALT
correlator measures it."""

from __future__ import annotations

import argparse
import socket

from assay.commands.options import add_output
from assay.commands.parser import Example, Parser
from assay.commands.run import read_parameters
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.launch.engines import describe, probe
from assay.launch.placement import HERE
from assay.measure.node import measure_node

NAME = "node.gpu_copy"


class Gpu:
    """Bandwidth between this machine's memory and its NVIDIA GPUs. Each alone, all at once, both ways at once
    (COBALT's gpu-copy). Every byte that was copied is compared. Other options are the measurement's, see 'assay
    list node.gpu_copy': --size, --copies, --repeats, --timeout, --realtime. CUDA_VISIBLE_DEVICES chooses GPUs."""

    name = "gpu"
    examples = [
        Example("assay gpu"),
        Example("assay gpu --size 256MiB --repeats 21"),
        Example("CUDA_VISIBLE_DEVICES=0 assay gpu --json"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        add_output(parser)
        parser.set_defaults(takes_unknown=True)

    def run(self, args: argparse.Namespace) -> int:
        described = describe(probe()).find(NAME)
        params = read_parameters(NAME, described.parameters, args.unknown)
        described.check_bounds(params)
        specs = specifications(args, "gpu")
        this_host = socket.gethostname()
        session = open_session("gpu", args, [this_host], {**params})
        with session.interruptible():
            measure_node(session, NAME, HERE, [this_host], None, params)
        return session.conclude(specs)
