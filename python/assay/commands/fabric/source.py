"""The options by which the sub-verbs of ``assay fabric`` read a fabric: files of InfiniBand tools, or the description
of a fat tree."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from assay.commands.options import Group, add_option
from assay.commands.parser import Parser
from assay.commands.session import open_session
from assay.errors import UserError
from assay.fabric import Fabric, Routes, synthetic, tables
from assay.fabric.read import files_of, read_fabric, read_order, read_tables
from assay.fabric.topology import Ints
from assay.launch.hosts import parse_hosts
from assay.measure.fabric import describe_fabric, members_of
from assay.measure.session import Session
from assay.records.schema import Scalar

FABRIC = (
    "its topology: ibnetdiscover's, opensm-subnet.lst, ibdiagnet2.db_csv or opareport -o snapshot -r; or a folder "
    "with it and the tables"
)
TABLES = (
    "its forwarding tables: dump_fts, opensm-lfts.dump, .fdbs of opensm or ibdiagnet, or opareport's snapshot"
)
OPTIONS = (  # recorded in run.json
    "fabric",
    "tables",
    "fat_tree",
    "routing",
    "hosts",
    "order",
    "schedule",
    "schedule_file",
    "matchings",
)
ORDER = "hosts by rank: opensm-ftree-ca-order.dump, or a host or list a line; DUMMY is an empty slot"


def add_cables(parser: Group) -> None:
    """Adds the options that name a fabric."""
    parser.add_argument("--fabric", type=Path, metavar="FILE|DIR", help=FABRIC)
    parser.add_argument(
        "--fat-tree",
        metavar="TEXT|FILE",
        help="a described fat tree instead, such as radix=36,nodes=45",
    )


def add_source(parser: Parser) -> None:
    """Adds the options that name a fabric and its forwarding tables."""
    add_routes(parser.add_argument_group("fabric"))


def add_routes(source: Group) -> None:
    """Adds the same options to a given group."""
    add_cables(source)
    source.add_argument("--tables", type=Path, metavar="FILE", help=TABLES)
    source.add_argument(
        "--routing",
        choices=list(tables.ENGINES),
        metavar="NAME",
        help=f"computed tables: {', '.join(tables.ENGINES)} (default without --tables: d-mod-k)",
    )


def add_rail(group: Group) -> None:
    """Adds the option that says which of their adapters the hosts of a run use."""
    group.add_argument(
        "--rail",
        metavar="DEVICE",
        default="",
        help="the adapters that hosts with several use, such as mlx5_0 or mlx5_0,mlx5_1 (default: those of "
        "$UCX_NET_DEVICES)",
    )


def rail_of(args: argparse.Namespace) -> str:
    """The adapters of --rail, else those of $UCX_NET_DEVICES; "" where neither names one."""
    used = os.environ.get("UCX_NET_DEVICES", "")
    return str(args.rail or (used if used != "all" else ""))


def add_members(parser: Parser) -> None:
    """Adds the options that say which hosts take part, and in which order."""
    ranks = parser.add_argument_group("ranks")
    add_option(ranks, "-w --hosts", "in this order; default: all, in the order of their names")
    ranks.add_argument(
        "--order",
        type=Path,
        metavar="FILE",
        help=ORDER,
    )


def read_source(args: argparse.Namespace) -> Routes:
    """The fabric and its tables. Raises UserError."""
    if (args.fabric is None) == (args.fat_tree is None):
        raise UserError("which fabric?", "give --fabric FILE --tables FILE, or --fat-tree radix=36,nodes=45")
    if args.tables and (args.fat_tree or args.routing):
        raise UserError(
            f"--tables with --{'fat-tree' if args.fat_tree else 'routing'}", "give real tables or a model's"
        )
    if args.fabric is not None and args.fabric.is_dir():
        args = argparse.Namespace(**vars(args))
        args.fabric, tables_file = files_of(args.fabric)
        args.tables = args.tables or (None if args.routing else tables_file)
    if args.fabric and not args.tables and not args.routing:
        raise UserError(
            "--fabric without --tables",
            "give the tables (dump_fts > fts.txt), or --routing up/down for computed ones",
        )
    return _routes(args, read_cables(args))


def read_fabric_and_tables(args: argparse.Namespace) -> tuple[Fabric, Routes | None]:
    """The fabric, and its routes where tables are given or computed. Raises UserError."""
    if args.fabric is None or args.tables or args.routing or args.fat_tree is not None:
        routes = read_source(args)
        return routes.fabric, routes
    if args.fabric.is_dir() and files_of(args.fabric)[1] is not None:
        routes = read_source(args)
        return routes.fabric, routes
    return read_cables(args), None


def _routes(args: argparse.Namespace, fabric: Fabric) -> Routes:
    if args.tables:
        return Routes(fabric, read_tables(args.tables, fabric))
    return Routes(fabric, tables.compute(fabric, args.routing or "d-mod-k"))


def read_cables(args: argparse.Namespace) -> Fabric:
    """The fabric without its tables. Raises UserError."""
    if (args.fabric is None) == (args.fat_tree is None):
        raise UserError("which fabric?", "give --fabric FILE, or --fat-tree radix=36,nodes=45")
    if args.fabric is not None and args.fabric.is_dir():
        return read_fabric(files_of(args.fabric)[0])
    return read_fabric(args.fabric) if args.fabric else synthetic.build(_read_fat_tree(args.fat_tree))


def is_named(args: argparse.Namespace) -> bool:
    """Whether a fabric is given. Raises UserError for tables or a routing without a fabric."""
    if args.fabric is None and args.fat_tree is None and (args.tables or args.routing):
        raise UserError("--tables or --routing without a fabric", "give --fabric or --fat-tree as well")
    return args.fabric is not None or args.fat_tree is not None


def options_of_source(args: argparse.Namespace) -> dict[str, Scalar]:
    """The options that name the fabric, for run.json: files by their absolute path."""
    paths = {name: getattr(args, name) for name in ("fabric", "tables")}
    files: dict[str, Scalar] = {name: str(path.resolve()) for name, path in paths.items() if path is not None}
    return files | {name: value for name in ("fat_tree", "routing") if (value := getattr(args, name))}


def source_of_run(args: argparse.Namespace, options: dict[str, Any]) -> argparse.Namespace:
    """``args`` with the fabric of a run, whose ``options`` are given, where ``args`` name no fabric."""
    if is_named(args) or not (options.get("fabric") or options.get("fat_tree")):
        return args
    texts = {name: options.get(name) for name in ("fat_tree", "routing")}
    paths = {name: Path(options[name]) if options.get(name) else None for name in ("fabric", "tables")}
    return argparse.Namespace(**(vars(args) | texts | paths))


def _read_fat_tree(text: str) -> synthetic.FatTree:
    if not text.strip():
        raise UserError("--fat-tree is empty", "write radix=36,nodes=45, or name a file")
    return synthetic.read(Path(text)) if "=" not in text else synthetic.parse(text)


def read_members(args: argparse.Namespace, fabric: Fabric) -> Ints:
    """[ranks] index of the host of each rank, -1 for an empty slot. Raises UserError."""
    if args.hosts is not None and args.order is not None:
        raise UserError("--hosts and --order are both given", "give one of them")
    hosts = _parse_members(args.hosts, fabric) if args.hosts is not None else None
    order = read_order(args.order, fabric) if args.order is not None else None
    return members_of(fabric, hosts, order)


def _parse_members(text: str, fabric: Fabric) -> list[str]:
    """The hosts of a node set, or a list with rails, whose names have a blank: "n1 mlx5_0,n2"."""

    def is_rail(name: str) -> bool:
        words = name.split()
        return len(words) > 1 and words[0] in fabric.ports_of and words[1] not in fabric.ports_of

    parts = list(dict.fromkeys(part.strip() for part in text.split(",")))
    is_named = any(map(is_rail, parts)) or set(parts) <= set(fabric.host_names)
    return parts if is_named else parse_hosts(text, "--hosts")


def start_session(
    args: argparse.Namespace, verb: str, fabric: Fabric, routes: Routes | None, members: Ints | None = None
) -> Session:
    """Creates a run with the fabric and its hosts. ``routes``: None without tables. ``members``: the ports that take
    part, by rank; default: all of hosts."""
    if args.resumed is not None:
        raise UserError(f"{args.resumed}: a fabric is analysed in one go", "start the command again")
    ports = np.flatnonzero(fabric.is_host) if members is None else members[members >= 0]
    options = {name: str(value) for name in OPTIONS if (value := getattr(args, name, None)) is not None}
    session = open_session(verb, args, [fabric.host_names[port] for port in ports], options)
    session.run.append(describe_fabric(fabric, routes))
    return session
