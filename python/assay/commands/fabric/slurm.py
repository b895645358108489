"""``assay fabric slurm``: writes the fabric as Slurm's topology, or compares a given topology with the fabric."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from assay.commands.fabric.files import write_files
from assay.commands.fabric.source import add_cables, read_cables
from assay.commands.parser import Example
from assay.errors import EXIT_FAIL, EXIT_PASS, UserError
from assay.fabric.remedies.slurm import differences, read_topology, topology_conf, topology_yaml, tree_of

if TYPE_CHECKING:
    from assay.commands.fabric import Verbs

EXAMPLES = [
    Example("assay fabric slurm --fat-tree radix=36,nodes=45", "topology.conf on standard output"),
    Example("assay fabric slurm --fabric net.txt --into /etc/slurm", "topology.conf and .yaml", "a fabric"),
    Example("assay fabric slurm --fabric net.txt --verify /etc/slurm/topology.conf", needs="a fabric"),
]


class Slurm:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "slurm",
            help="topology.conf and topology.yaml of Slurm, or a given one verified",
            description="Writes the fabric as the tree that Slurm's topology/tree wants: each leaf switch with its "
            "hosts, and a switch for each part of the fabric that is joined above. --verify prints a line for each "
            "difference between a given file and the fabric, and exits with 1 if there is one.",
            examples=EXAMPLES,
        )
        add_cables(parser)
        parser.add_argument("--into", type=Path, metavar="DIR", help="where the new files go")
        parser.add_argument("--verify", type=Path, metavar="FILE", help="topology.conf or .yaml to verify")
        parser.set_defaults(fabric_verb=run_slurm)


def run_slurm(args: argparse.Namespace) -> int:
    if args.into is not None and args.verify is not None:
        raise UserError("--into and --verify are both given", "give one of them")
    fabric = read_cables(args)
    if args.verify is not None:
        mismatches = differences(args.verify, read_topology(args.verify), fabric)
        for line in mismatches:
            print(line)
        if not mismatches:
            print(f"{args.verify}: agrees with {fabric.source}, {fabric.hosts} hosts")
        return EXIT_FAIL if mismatches else EXIT_PASS
    switches = tree_of(fabric)
    if args.into is None:
        print(topology_conf(switches), end="")
        return EXIT_PASS
    texts = {"topology.conf": topology_conf(switches), "topology.yaml": topology_yaml(switches)}
    write_files({args.into / name: text for name, text in texts.items()})
    for name in texts:
        print(args.into / name)
    return EXIT_PASS
