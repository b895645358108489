"""``assay fabric repair``: forwarding tables that avoid cables and spread the destinations evenly."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from assay.commands.fabric.files import refuse_existing, write_files
from assay.commands.fabric.source import add_source, read_source
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, UserError
from assay.fabric import Fabric, ForwardingTables, Routes
from assay.fabric.faults import unreachable_pairs
from assay.fabric.remedies.counted import fullest_link, is_sound, require_sound
from assay.fabric.remedies.lfts import write_lfts
from assay.fabric.remedies.tables import (
    entry_bound,
    find_cable,
    lower_bound,
    path_of,
    repair,
    without_cables,
)

MAX_LMC = 3  # InfiniBand allows 7; more than 3 do not spread the load better, and use up LIDs of the subnet
EXAMPLES = [
    Example("assay fabric repair --fat-tree radix=36,nodes=45 --avoid leaf0:19", "a model"),
    Example("assay fabric repair --fabric net.txt --tables fts.txt --lfts new.lfts", needs="a fabric"),
    Example(
        "assay fabric repair --fabric net.txt --tables fts.txt --avoid leaf2:19 --lfts new.lfts",
        needs="a fabric",
    ),
]


def prepare_repair(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "repair",
        help="forwarding tables that avoid cables and spread the load, for opensm to load",
        description="Tables without the cables that are gone or to be avoided, in which no link carries more flows "
        "of an all-to-all exchange than needed. Entries that still serve stay. Routes go up, then down, so there "
        "is no credit loop; that, and that all hosts reach each other, is verified on the result. With --lmc, "
        "hosts of a switch send to different LIDs of a destination, which spreads the load more evenly.",
        notes="Load the file with: opensm -R file -U FILE; with --lmc N: opensm --lmc N -R file -U FILE, and\n"
        "give each host its number from FILE.paths, such as UCX_IB_LID_PATH_BITS=1.",
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
    parser.add_argument(
        "--lmc",
        type=int,
        choices=range(MAX_LMC + 1),
        default=0,
        metavar="BITS",
        help=f"2**BITS LIDs a host, 0 to {MAX_LMC}, each with a way of its own (default: 0)",
    )
    parser.add_argument("--lfts", type=Path, metavar="FILE", help="write the tables into this file")
    add_option(parser, "--json")
    parser.set_defaults(sub_verb=run_repair)


def run_repair(args: argparse.Namespace) -> int:
    routes = read_source(args)
    files = [args.lfts, Path(f"{args.lfts}.paths")] if args.lfts is not None else []
    refuse_existing(files)
    avoided = {find_cable(routes.fabric, text) for text in args.avoid}
    fabric = without_cables(routes.fabric, avoided)
    tables, fullest, changed = _better_tables(fabric, routes.tables, 1 << args.lmc)
    figures = {
        "fullest_before": None if unreachable_pairs(routes) else _fullest(routes),
        "fullest": fullest,
        "lids_per_host": len(tables),
        "least_with_tables": entry_bound(fabric),
        "least_with_split_flows": split
        if (split := lower_bound(fabric)) is None or split <= fullest
        else None,
        "entries_changed": changed,
        "cables_avoided": len({min(link, int(routes.fabric.reverse[link])) for link in avoided}),
        "credit_loops": 0,
        "unreachable_pairs": 0,
    }
    texts = {args.lfts: write_lfts(fabric, tables)} if args.lfts is not None else {}
    if texts and len(tables) > 1:
        names = zip(fabric.host_names, path_of(fabric, len(tables)), strict=True)
        texts[files[1]] = "".join(f"{name} {path}\n" for name, path in names)
    write_files(texts)
    if args.json:
        print(json.dumps(figures))
    else:
        _show(fabric, routes, figures)
        if texts:
            lmc = f"--lmc {args.lmc} " if args.lmc else ""
            written = ", ".join(map(str, texts))
            print(f"\nwritten: {written}; load it with: opensm {lmc}-R file -U {args.lfts}")
    return EXIT_PASS


def _better_tables(
    fabric: Fabric, given: ForwardingTables, paths: int
) -> tuple[list[ForwardingTables], int, int]:
    """Tables for each LID of a host, the flows of their fullest link, and the entries that differ from the given ones.
    The given tables stay where they are sound and no others that were found are better. Raises UserError."""
    result = repair(fabric, given, paths)
    repaired = [Routes(fabric, tables) for tables in result.paths]
    require_sound(repaired)
    fullest = fullest_link(repaired, path_of(fabric, paths))
    as_given = Routes(fabric, given)
    if unreachable_pairs(as_given) or (before := _fullest(as_given)) > fullest:
        return result.paths, fullest, result.changed
    if is_sound([as_given]):
        return [given] * paths, before, 0
    if not given.is_computed and before < fullest:
        raise UserError(
            f"{given.source}: {before} flows on the fullest link, {fullest} with the tables found; but the given ones "
            "wait for each other in a circle if they share a virtual lane",
            "keep them if the engine is dfsssp, lash, nue or torus-2QoS; else start from --routing up/down",
        )
    return result.paths, fullest, result.changed


def _fullest(routes: Routes) -> int:
    return fullest_link([routes], np.zeros(routes.fabric.hosts, np.int32))


def _show(fabric: Fabric, routes: Routes, figures: dict[str, int | float | None]) -> None:
    before, split = figures["fullest_before"], figures["least_with_split_flows"]
    print(
        f"{fabric.source}, {fabric.count_text(np.flatnonzero(fabric.is_host))}; tables: {routes.tables.source}"
    )
    changed = figures["entries_changed"] or "none, nothing to repair"
    print(f"cables avoided: {figures['cables_avoided']}; entries changed: {changed}\n")
    print("flows on the fullest link, all hosts to all")
    print(f"  given tables        {'hosts are cut off' if before is None else f'{before:8.0f}'}")
    print(f"  these tables        {figures['fullest']:8.0f}")
    if figures["lids_per_host"] == 1:
        print(f"  any tables, at least{figures['least_with_tables']:8.0f}")
    if split is None:
        print("  every flow split    not known: the fabric is too large, or no tree")
    else:
        reached = split / figures["fullest"] if figures["fullest"] else 1.0
        print(f"  every flow split    {split:10.1f}; these tables reach {reached:.1%} of that bandwidth")
    print("\nno credit loop; all hosts reach each other")
