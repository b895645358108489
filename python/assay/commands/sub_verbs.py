"""Verbs with sub-verbs, such as ``assay io``: each sub-verb is one function, which adds its parser.

A sub-verb may have a module of its own, which is imported when it is used: ``assay io run`` starts programs, and loads
nothing of what measures and judges.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TypeAlias

from assay.commands.parser import Parser

# argparse has no public name for this type.
Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"
# Adds the parser of a sub-verb, with ``sub_verb`` among its defaults: a function of the arguments that returns the exit
# code.
SubVerb: TypeAlias = Callable[[Verbs], None]


class VerbGroup:
    """A verb that leaves the work to its sub-verbs, or to the ``sub_verb`` that its own parser has as default.

    ``modules``: by sub-verb, a module of the verb's package. It has the function ``prepare_NAME`` of the sub-verb.
    """

    name: str
    sub_verbs: tuple[SubVerb, ...] = ()
    modules: Mapping[str, str] = MappingProxyType({})

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
        for prepare in (*self.sub_verbs, *self._imported(parser)):
            prepare(verbs)
        return verbs

    def _imported(self, parser: Parser) -> Iterator[SubVerb]:
        """The sub-verb that the command line names; all of them where it names none."""
        named = parser.line[:1]
        for sub_verb in named if named and named[0] in self.modules else self.modules:
            module = import_module(f"assay.commands.{self.name}.{self.modules[sub_verb]}")
            yield getattr(module, f"prepare_{sub_verb}")

    def run(self, args: argparse.Namespace) -> int:
        status: int = args.sub_verb(args)
        return status
