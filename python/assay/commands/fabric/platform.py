"""``assay fabric platform``: writes the fabric and its routes as a platform file of SimGrid."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np

from assay.commands.fabric.files import refuse_existing, write_files
from assay.commands.fabric.source import add_source, read_source
from assay.commands.options import argument_type
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, UserError
from assay.fabric.platform import Floats, own_rates, platform_text
from assay.fabric.topology import Fabric
from assay.records.units import format_quantity, parse_in

RATE = 12.5e9  # B/s: EDR and Omni-Path, 100 Gbit/s; of cables whose rate is not known
EXAMPLES = [
    Example("assay fabric platform --fat-tree radix=4,nodes=6", "on standard output"),
    Example(
        "assay fabric platform --fabric net.txt --tables fts.txt --platform fabric.xml", needs="a fabric"
    ),
    Example(
        "assay fabric platform --fat-tree radix=36,nodes=45 --rate 25GB/s --platform fabric.xml",
        "for 'assay simulate fabric.xml'",
        "a folder to write to",
    ),
]


def prepare_platform(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "platform",
        help="a SimGrid platform with the fabric's cables and routes",
        description="Writes a platform for 'assay simulate' and SimGrid: a link for each direction of each cable, "
        "and the route of each pair of hosts, so that flows that share a cable share its rate.",
        examples=EXAMPLES,
    )
    add_source(parser)
    parser.add_argument(
        "--rate",
        type=argument_type(_rate, "give a rate, such as 12.5GB/s"),
        metavar="RATE",
        help="of every cable (default: each cable's own; 12.5GB/s where the source gives none)",
    )
    parser.add_argument("--platform", metavar="FILE", help="the platform file (default: standard output)")
    parser.set_defaults(sub_verb=run_platform)


def _rate(text: str) -> float:
    rate = parse_in(text, "B/s")
    if not 0 < rate < math.inf:
        raise UserError(f"'{text}' is not a rate above zero", "give a rate, such as 12.5GB/s")
    return rate


def _own_rates(fabric: Fabric) -> Floats:
    rates = own_rates(fabric)
    known = rates > 0
    if not known.all() and len(fabric.node_lines):  # a described fabric has no rates
        print(
            f"{fabric.source} gives no rate of {(~known).sum() // 2} of {fabric.links // 2} cables: "
            f"{format_quantity(RATE, 'B/s')} is taken; fix: give --rate for all",
            file=sys.stderr,
        )
    return np.where(known, rates, RATE)


def run_platform(args: argparse.Namespace) -> int:
    target = Path(args.platform) if args.platform else None
    if target is not None:
        refuse_existing([target])
    routes = read_source(args)
    text = platform_text(routes, _own_rates(routes.fabric) if args.rate is None else args.rate)
    if target is None:
        print(text, end="")
    else:
        write_files({target: text})
        print(target)
    return EXIT_PASS
