"""``assay fabric anonymise``: a fabric's files without its names and GUIDs."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.commands.fabric.source import FABRIC, ORDER, TABLES
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS
from assay.fabric import anonymous
from assay.fabric.read import files_of, read_fabric, read_order, read_tables

EXAMPLES = [
    Example("assay fabric anonymise --fabric net.txt --tables fts.txt --into shared", needs="a fabric"),
    Example(
        "assay fabric anonymise --fabric opensm-subnet.lst --into shared", "the cables alone", "a fabric"
    ),
    Example(
        "assay fabric anonymise --fabric net.txt --tables opensm.fdbs --order ranks --into shared",
        needs="a fabric",
    ),
]


def prepare_anonymise(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "anonymise",
        help="a fabric's files without its names and GUIDs, for bug reports",
        description="Writes topology, tables and order with every name and GUID replaced, each always by the same "
        "other one. The files give the same conflicts and faults. LIDs, ports and rates stay as they are.",
        examples=EXAMPLES,
    )
    parser.add_argument("--fabric", type=Path, required=True, metavar="FILE|DIR", help=FABRIC)
    parser.add_argument("--tables", type=Path, metavar="FILE", help=TABLES)
    parser.add_argument("--order", type=Path, metavar="FILE", help=ORDER)
    parser.add_argument("--into", type=Path, required=True, metavar="DIR", help="where the new files go")
    parser.set_defaults(sub_verb=run_anonymise)


def run_anonymise(args: argparse.Namespace) -> int:
    if args.fabric.is_dir():
        args.fabric, tables_file = files_of(args.fabric)
        args.tables = args.tables or tables_file
    fabric = read_fabric(args.fabric)
    tables = read_tables(args.tables, fabric) if args.tables else None
    order = read_order(args.order, fabric) if args.order else None
    for path in anonymous.write(fabric, tables, order, args.into):
        print(path)
    return EXIT_PASS
