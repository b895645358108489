"""``assay fabric repair``: forwarding tables that avoid cables and spread the destinations evenly."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from assay.commands.fabric.files import refuse_existing, write_files
from assay.commands.fabric.source import add_source, read_source
from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_PASS, UserError
from assay.fabric import Fabric, Routes
from assay.fabric.faults import credit_loops, unreachable_pairs
from assay.fabric.remedies.lfts import write_lfts
from assay.fabric.remedies.tables import entry_bound, find_cable, lower_bound, repair, without_cables

if TYPE_CHECKING:
    from assay.commands.fabric import Verbs

EXAMPLES = [
    Example("assay fabric repair --fat-tree radix=36,nodes=45 --avoid leaf0:19", "a model"),
    Example("assay fabric repair --fabric net.txt --tables fts.txt --lfts new.lfts", needs="a fabric"),
    Example(
        "assay fabric repair --fabric net.txt --tables fts.txt --avoid leaf2:19 --lfts new.lfts",
        needs="a fabric",
    ),
]


class Repair:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "repair",
            help="forwarding tables that avoid cables and spread the load, for opensm to load",
            description="Tables without the cables that are gone or to be avoided, in which no link carries more flows "
            "of an all-to-all exchange than needed. Entries that still serve stay. Routes go up, then down, so there "
            "is no credit loop; that, and that all hosts reach each other, is verified on the result.",
            notes="Load the file with: opensm -R file -U FILE",
            examples=EXAMPLES,
        )
        add_source(parser)
        parser.add_argument(
            "--avoid",
            action="append",
            default=[],
            metavar="SWITCH:PORT",
            help="a cable between switches to leave out, by one end; repeatable",
        )
        parser.add_argument("--lfts", type=Path, metavar="FILE", help="write the tables into this file")
        add(parser, "--json")
        parser.set_defaults(fabric_verb=run_repair)


def run_repair(args: argparse.Namespace) -> int:
    routes = read_source(args)
    if args.lfts is not None:
        refuse_existing([args.lfts])
    avoided = {find_cable(routes.fabric, text) for text in args.avoid}
    fabric = without_cables(routes.fabric, avoided)
    result = repair(fabric, routes.tables)
    repaired = Routes(fabric, result.tables)
    if lost := unreachable_pairs(repaired):
        raise UserError(f"{lost} pairs of hosts would not reach each other", "avoid fewer cables")
    if credit_loops(repaired):
        raise UserError("the tables would have a credit loop", "avoid fewer cables")
    figures = {
        "fullest_before": _fullest(routes),
        "fullest": result.heaviest,
        "least_with_tables": entry_bound(fabric),
        "least_with_split_flows": lower_bound(fabric),
        "entries_changed": result.changed,
        "cables_avoided": len({min(link, int(routes.fabric.reverse[link])) for link in avoided}),
        "credit_loops": 0,
        "unreachable_pairs": 0,
    }
    text = write_lfts(fabric, result.tables) if args.lfts is not None else ""
    if text:
        write_files({args.lfts: text})
    if args.json:
        print(json.dumps(figures))
    else:
        _show(fabric, routes, figures)
        if text:
            print(f"\nwritten: {args.lfts}; load it with: opensm -R file -U {args.lfts}")
    return EXIT_PASS


def _fullest(routes: Routes) -> int | None:
    """Flows of the fullest link of the given tables; None where some pairs have no route."""
    if unreachable_pairs(routes):
        return None
    crossed = routes.all_between_switches()
    senders = np.bincount(routes.fabric.leaf_of)[:, None, None]
    weights = np.broadcast_to(senders, crossed.shape)[crossed >= 0]
    return int(np.bincount(crossed[crossed >= 0], weights).max(initial=0))


def _show(fabric: Fabric, routes: Routes, figures: dict[str, int | float | None]) -> None:
    before, split = figures["fullest_before"], figures["least_with_split_flows"]
    print(f"{fabric.source}, {fabric.hosts} hosts; tables: {routes.tables.source}")
    print(f"cables avoided: {figures['cables_avoided']}; entries changed: {figures['entries_changed']}\n")
    print("flows on the fullest link, all hosts to all")
    print(f"  given tables        {'hosts are cut off' if before is None else f'{before:8.0f}'}")
    print(f"  these tables        {figures['fullest']:8.0f}")
    print(f"  any tables, at least{figures['least_with_tables']:8.0f}")
    if split is None:
        print("  every flow split    not computed, the fabric is too large")
    else:
        print(f"  every flow split    {split:10.1f}")
    print("\nno credit loop; all hosts reach each other")
