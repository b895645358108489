"""``assay expect``: the figures that this machine's devices should reach, with their derivation."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from assay.commands.options import add_option
from assay.commands.parser import Example, Parser
from assay.errors import EXIT_PASS
from assay.explain.expected import expected_figures
from assay.measure.node import read_contexts
from assay.records.run import Run
from assay.report.console import console


class Expect:
    """Show what memory, ports and GPUs should reach. Intervals are derived from what the machine reports:
    memory modules, negotiated rates, PCIe links, MTUs, and the headers of each protocol. With a run: of the hosts that
    it measured. Figures below their interval are warnings in every report."""

    name = "expect"
    examples = [
        Example("assay expect"),
        Example("assay expect --json"),
        Example("assay expect runs/20261121-040000-comply-1f2e", needs="a run"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.add_argument(
            "run", nargs="?", metavar="RUN", help="run directory (default: this machine, now)"
        )
        add_option(parser, "--json")

    def run(self, args: argparse.Namespace) -> int:
        records = Run.load(args.run).records if args.run else read_contexts()
        figures = expected_figures(records)
        if args.json:
            print(json.dumps([asdict(figure) for figure in figures], indent=1))
            return EXIT_PASS
        out = console()
        for figure in figures:
            interval = f"{figure.format_rate(figure.low)} to {figure.format_rate(figure.high)}"
            out.print(f"{figure.host} {figure.device}  {figure.name}/bandwidth  {interval}", soft_wrap=True)
            for step in figure.steps:
                out.print(f"    {step}", soft_wrap=True)
        if not figures:
            out.print(
                "nothing can be derived: no Ethernet or RDMA port that is up tells its rate, no GPU its link, "
                "and the firmware no memory module (in a virtual machine: none that exists)"
            )
        return EXIT_PASS
