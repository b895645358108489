"""``assay fabric slurm``: writes the fabric as Slurm's topology, or compares a given topology with the fabric."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.commands.fabric.files import write_files
from assay.commands.fabric.source import add_cables, read_cables
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_FAIL, EXIT_PASS, UserError
from assay.fabric import Fabric
from assay.fabric.remedies.slurm import comments, ports_left_out, topology_conf, topology_yaml, tree_of
from assay.fabric.remedies.slurm_files import read_topology
from assay.fabric.remedies.slurm_verify import differences, require_agreement

EXAMPLES = [
    Example("assay fabric slurm --fat-tree radix=36,nodes=45", "topology.conf on standard output"),
    Example("assay fabric slurm --fabric net.txt --into /etc/slurm", "topology.conf and .yaml", "a fabric"),
    Example("assay fabric slurm --fabric net.txt --verify /etc/slurm/topology.conf", needs="a fabric"),
]


def prepare_slurm(verbs: Verbs) -> None:
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
    parser.set_defaults(sub_verb=run_slurm)


def run_slurm(args: argparse.Namespace) -> int:
    if args.into is not None and args.verify is not None:
        raise UserError("--into and --verify are both given", "give one of them")
    fabric = read_cables(args)
    if args.verify is not None:
        return _verify(args.verify, fabric)
    switches = tree_of(fabric)
    require_agreement(switches, fabric)
    notes = comments(fabric, switches)
    if args.into is None:
        print(topology_conf(switches, notes), end="")
        return EXIT_PASS
    texts = {"topology.conf": topology_conf(switches, notes), "topology.yaml": topology_yaml(switches, notes)}
    write_files({args.into / name: text for name, text in texts.items()})
    for name in texts:
        print(args.into / name)
    return EXIT_PASS


def _verify(path: Path, fabric: Fabric) -> int:
    topology = read_topology(path)
    mismatches, notes = differences(path, topology.switches, fabric, topology.elsewhere)
    hosts = sum(len(switch.nodes) for switch in topology.switches)
    left_out = ports_left_out(fabric)
    for line in (*topology.left_out, *mismatches):
        print(line)
    if not mismatches:
        print(f"{path}: agrees with {fabric.source}, {hosts} hosts")
    for line in notes:
        print(line)
    if left_out:
        print(f"not compared: {len(left_out)} ports whose description names no host, such as {left_out[0]}")
    return EXIT_FAIL if mismatches else EXIT_PASS
