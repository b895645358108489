"""``assay heap``: heap profiles of programs. One file per sub-verb."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from assay.commands.heap.attach import prepare_attach
from assay.commands.heap.diff import DIFF
from assay.commands.heap.export import EXPORT
from assay.commands.heap.importing import prepare_import
from assay.commands.heap.record import prepare_record
from assay.commands.heap.show import prepare_show
from assay.commands.parser import Example, Parser, nearest
from assay.commands.sub_verbs import VerbGroup
from assay.errors import UserError

SUB_VERBS = {
    "record": prepare_record,
    "attach": prepare_attach,
    "show": prepare_show,
    "diff": DIFF.prepare,
    "export": EXPORT.prepare,
    "import": prepare_import,
}


class Heap(VerbGroup):
    """Memory profile of a program: every allocation, with its stack. Each free is recorded too, with thread and time.
    The program's output and exit status are unchanged (2 if it succeeded and its profile cannot be written); the
    profile goes to standard error and into the run. Without a command, 'record' is understood."""

    name = "heap"
    takes_program = True
    notes = "See also the --help of each command."
    examples = [
        Example("assay heap -o before -- python3 -c pass", "record a program"),
        Example("assay heap show before", "show it again"),
        Example("assay heap export before collapsed --metric leaked", "for flamegraph.pl"),
    ]
    sub_verbs = tuple(SUB_VERBS.values())

    def prepare_parser(self, parser: Parser) -> None:
        parser.usage = "%(prog)s [options] -- PROGRAM [ARGUMENT ...]  |  %(prog)s COMMAND [options]"
        parser.default_verb = self.add_sub_verbs(parser).choices["record"]

    def run(self, args: argparse.Namespace) -> int:
        if args.program and args.heap_command != "record":
            raise UserError(f"'heap {args.heap_command}' takes no program", "leave out what comes after --")
        return super().run(args)

    def complete(self, arguments: list[str]) -> list[str]:
        """The arguments, with 'record' inserted if they name no sub-verb. Raises UserError for a spelling of earlier
        versions, with the spelling to use."""
        if not arguments:
            raise UserError("heap: no program given", "one is required after --: assay heap -- ./program")
        if arguments[0] in ("-h", "--help", *SUB_VERBS):
            return arguments
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        if command := _command_for_old_spelling(options):
            raise UserError("heap: this is spelled otherwise now", f"assay heap {command}")
        if "--" in arguments or arguments[0].startswith("-"):
            return ["record", *arguments]
        if suggestion := nearest(arguments[0], list(SUB_VERBS)):
            raise UserError(f"heap: unknown command '{arguments[0]}'{suggestion}")
        raise UserError(
            f"heap: unknown command '{arguments[0]}'",
            f"a program comes after --: assay heap -- {arguments[0]}",
        )


def _command_for_old_spelling(options: Sequence[str]) -> str:
    """The command that replaces an option or positional of earlier versions; "" if ``options`` has none."""
    if any(option == "--attach" or option.startswith("--attach=") for option in options):
        return "attach PID"
    if options[:1] == ["compare"]:
        return f"diff {' '.join(options[1:]) or 'RUN RUN'}"
    runs = [option for option in options[:1] if os.path.isfile(os.path.join(option, "run.json"))]
    if any(option == "--export" or option.startswith("--export=") for option in options):
        return f"export {runs[0] if runs else 'RUN'} FORMAT"
    return f"show {' '.join(options)}" if runs else ""
