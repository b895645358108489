"""``assay numa``: where a program's memory lies, and who uses it from which node. One file per sub-verb."""

from __future__ import annotations

from functools import partial

from assay.commands.numa.compilers import COMPILERS, prepare_compiler
from assay.commands.numa.diff import DIFF
from assay.commands.numa.export import EXPORT
from assay.commands.numa.predict import prepare_predict
from assay.commands.numa.record import prepare_record, record
from assay.commands.numa.show import prepare_show
from assay.commands.parser import Example, Parser
from assay.commands.sub_verbs import VerbGroup


class Numa(VerbGroup):
    """NUMA profile of a program: which node each page is on, and who uses it from afar. Page
    faults are watched and pages are looked up, with who touched them first, so that any program can be profiled at
    little cost; its output and exit status are unchanged (2 if it succeeded and its profile cannot be written)."""

    name = "numa"
    takes_program = True
    examples = [
        Example("assay numa -- python3 -c pass", "record a program"),
        Example("assay numa --emulate 2 -o placed -- python3 -c pass", "on two emulated nodes"),
        Example("assay numa show placed", "show it again"),
    ]
    sub_verbs = (
        prepare_show,
        DIFF.prepare,
        EXPORT.prepare,
        prepare_predict,
        *(partial(prepare_compiler, language) for language in COMPILERS),
    )

    def prepare_parser(self, parser: Parser) -> None:
        parser.usage = "%(prog)s [options] -- PROGRAM [ARGUMENT ...]  |  %(prog)s COMMAND ..."
        prepare_record(parser)
        parser.set_defaults(sub_verb=record)
        self.add_sub_verbs(parser, required=False)
