"""``assay fabric``: InfiniBand fabrics by their topology and forwarding tables. One file per sub-verb."""

from __future__ import annotations

import argparse
from typing import Protocol, TypeAlias

from assay.commands.fabric.anonymise import Anonymise
from assay.commands.fabric.blame import Blame
from assay.commands.fabric.check import Check
from assay.commands.fabric.conflicts import Conflicts
from assay.commands.fabric.platform import Platform
from assay.commands.fabric.repair import Repair
from assay.commands.fabric.schedule import Schedule
from assay.commands.fabric.slurm import Slurm
from assay.commands.parser import Example, Parser

# argparse has no public name for this type.
Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


class SubVerb(Protocol):
    """Like ``assay.cli.Command``, for ``assay fabric``."""

    def prepare(self, verbs: Verbs) -> None: ...


SUB_VERBS: list[SubVerb] = [
    Conflicts(),
    Check(),
    Schedule(),
    Repair(),
    Blame(),
    Slurm(),
    Platform(),
    Anonymise(),
]


class Fabric:
    """Find conflicts and faults in the routing of an InfiniBand fabric. It reads what ibnetdiscover, dump_fts,
    OpenSM and ibdiagnet write, and sends nothing through the fabric: any copy of the files will do."""

    name = "fabric"
    notes = "See also the --help of each command."
    examples = [
        Example("assay fabric conflicts --fat-tree radix=36,nodes=45", "a model"),
        Example(
            "assay fabric check --fabric net.txt --tables fts.txt", "of ibnetdiscover, dump_fts", "a fabric"
        ),
        Example(
            "assay fabric anonymise --fabric net.txt --tables fts.txt --into shared",
            "to pass on",
            "a fabric",
        ),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        verbs = parser.add_subparsers(
            title="commands", dest="fabric_command", metavar="COMMAND", required=True
        )
        for verb in SUB_VERBS:
            verb.prepare(verbs)

    def run(self, args: argparse.Namespace) -> int:
        status: int = args.fabric_verb(args)
        return status


__all__ = ["Fabric"]
