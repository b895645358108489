"""``assay io``: measures and accelerates storage. One file per sub-verb."""

from __future__ import annotations

import argparse
from typing import Protocol, TypeAlias

from assay.commands.io.bench import Bench
from assay.commands.io.device import Device
from assay.commands.io.doctor import Doctor
from assay.commands.io.drain import Drain
from assay.commands.io.playground import Playground
from assay.commands.io.recover import Recover
from assay.commands.io.run import RunProgram
from assay.commands.io.stores import Drop, Stores
from assay.commands.parser import Example, Parser

# argparse has no public name for this type.
Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


class SubVerb(Protocol):
    """Like ``assay.cli.Command``, for ``assay io``."""

    def prepare(self, verbs: Verbs) -> None: ...


SUB_VERBS: list[SubVerb] = [
    RunProgram(),
    Bench(),
    Device(),
    Playground(),
    Doctor(),
    Stores(),
    Drain(),
    Recover(),
    Drop(),
]


class Io:
    """Measure and accelerate parallel I/O, and a node's own storage. Benchmarks are IOR, reaction-diffusion (RDBench)
    and HDF5 (h5bench), stock and accelerated."""

    name = "io"
    notes = "See also the --help of each command."
    examples = [
        Example("assay io run -- mpirun -n 64 ./app", "parallel I/O at the speed of memory", "a program"),
        Example("assay io bench ior", "transfer sizes, with and without the accelerator", "minutes"),
        Example("assay io doctor", "what the accelerator can use on this node"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        verbs = parser.add_subparsers(title="commands", dest="io_command", metavar="COMMAND", required=True)
        for verb in SUB_VERBS:
            verb.prepare(verbs)

    def run(self, args: argparse.Namespace) -> int:
        status: int = args.io_verb(args)
        return status


__all__ = ["Io"]
