"""Verbs with sub-verbs, such as ``assay io``: each sub-verb is one function, which adds its parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from assay.commands.parser import Parser

# argparse has no public name for this type.
Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"
# Adds the parser of a sub-verb, with ``sub_verb`` among its defaults: a function of the arguments that returns the exit
# code.
SubVerb: TypeAlias = Callable[[Verbs], None]


class VerbGroup:
    """A verb that leaves the work to its sub-verbs, or to the ``sub_verb`` that its own parser has as default."""

    name: str
    sub_verbs: tuple[SubVerb, ...]

    def prepare_parser(self, parser: Parser) -> None:
        self.add_sub_verbs(parser)

    def add_sub_verbs(self, parser: Parser, metavar: str = "COMMAND", required: bool = True) -> Verbs:
        verbs = parser.add_subparsers(
            title="commands",
            dest=f"{self.name}_command",
            metavar=metavar,
            required=required,
            prog=f"assay {self.name}",
        )
        for prepare in self.sub_verbs:
            prepare(verbs)
        return verbs

    def run(self, args: argparse.Namespace) -> int:
        status: int = args.sub_verb(args)
        return status
