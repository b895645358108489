"""``assay numa``: where a program's memory lies, and who uses it from which node. One file per sub-verb."""

from __future__ import annotations

import argparse
from typing import Protocol, TypeAlias

from assay.commands.numa.compilers import Compiler
from assay.commands.numa.diff import DIFF
from assay.commands.numa.export import EXPORT
from assay.commands.numa.predict import Predict
from assay.commands.numa.record import prepare_record, record
from assay.commands.numa.show import Show
from assay.commands.parser import Example, Parser

# argparse has no public name for this type.
Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


class SubVerb(Protocol):
    """Like ``assay.cli.Command``, for ``assay numa``."""

    def prepare(self, verbs: Verbs) -> None: ...


SUB_VERBS: list[SubVerb] = [
    Show(),
    DIFF,
    EXPORT,
    Predict(),
    Compiler("cc"),
    Compiler("c++"),
    Compiler("fortran"),
]


class Numa:
    """NUMA profile of a program: which node each page is on, and who uses it from afar. Page
    faults are watched and pages are looked up, with who touched them first, so that any program can be profiled at
    little cost; its output and exit status are unchanged."""

    name = "numa"
    takes_program = True
    examples = [
        Example("assay numa -- python3 -c pass", "record a program"),
        Example("assay numa --emulate 2 -o placed -- python3 -c pass", "on two emulated nodes"),
        Example("assay numa show placed", "show it again"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.usage = "%(prog)s [options] -- PROGRAM [ARGUMENT ...]  |  %(prog)s COMMAND ..."
        prepare_record(parser)
        parser.set_defaults(numa_verb=record)
        verbs = parser.add_subparsers(
            title="commands", dest="numa_command", metavar="COMMAND", required=False, prog="assay numa"
        )
        for verb in SUB_VERBS:
            verb.prepare(verbs)

    def run(self, args: argparse.Namespace) -> int:
        status: int = args.numa_verb(args)
        return status


__all__ = ["Numa"]
