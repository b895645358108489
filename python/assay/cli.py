"""The command line: one visible list of verbs, one place where errors become exit codes.

Each verb is a class in ``assay.commands`` (one file a verb) whose docstring is its help; see ``Command``.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from typing import Protocol

from assay import __version__
from assay.commands.alloc import Alloc
from assay.commands.check import Check
from assay.commands.comply import Comply
from assay.commands.doctor import Doctor
from assay.commands.gpu import Gpu
from assay.commands.heap import Heap
from assay.commands.io import Io
from assay.commands.judge import Judge
from assay.commands.lab import Lab
from assay.commands.list import List
from assay.commands.mem import Mem
from assay.commands.model import Model
from assay.commands.net import Net
from assay.commands.rdma import Rdma
from assay.commands.report import Report
from assay.commands.run import Run as RunOne
from assay.commands.saturate import Saturate
from assay.commands.simulate import Simulate
from assay.commands.udp import Udp
from assay.errors import EXIT_INTERRUPTED, EXIT_UNUSABLE, UserError
from assay.records.run import Run


class Command(Protocol):
    """A verb. The class docstring is its help: first line the summary, then the rest; ``examples``
    are shown below the options."""

    name: str
    examples: str

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


COMMANDS: list[Command] = [
    Check(),
    Comply(),
    Net(),
    Saturate(),
    Model(),
    Simulate(),
    Mem(),
    Gpu(),
    Udp(),
    Rdma(),
    Heap(),
    Alloc(),
    Io(),
    Lab(),
    List(),
    Doctor(),
    RunOne(),
    Judge(),
    Report(),
]


class _Parser(argparse.ArgumentParser):
    """argparse, but a wrong option is one line (what, and where the right ones are listed)."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(f"{self.prog}: {message}", f"see '{self.prog} --help'")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="assay",
        description="Tells whether a cluster is fit for its purpose and, if it is not, why.",
        epilog="Start with 'assay check' (this machine), or 'assay lab up' (a virtual cluster to try).",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"assay {__version__}")
    verbs = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for command in COMMANDS:
        help_text = " ".join((command.__doc__ or "").split())
        verb = verbs.add_parser(
            command.name,
            help=help_text.split(". ")[0].rstrip("."),
            description=help_text,
            epilog=f"examples:\n{command.examples.rstrip()}" if command.examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.prepare_parser(verb)
        verb.set_defaults(execute=command.run)
    return parser


def parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """The words of a command line; of ``run --resume RUN`` those of that run, with ``resumed`` set to it."""
    given = words
    words, program = _split(words)
    args, others = parser.parse_known_args(words)
    resumed = getattr(args, "resume", None)
    if resumed is not None:
        if getattr(args, "measurement", None) is not None or others:
            raise UserError("--resume takes the command of the run", "give nothing else with it")
        given = Run.load(resumed).info.command[1:]
        words, program = _split(given)
        args, others = parser.parse_known_args(words)
    if others and not getattr(args, "takes_others", False):
        parser.error(f"unrecognised: {' '.join(others)}")
    args.others, args.resumed = others, resumed
    if program is not None:
        args.program = program
    args.words = ["assay", *given]  # as typed, for run.json
    return args


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Of a verb that says so (``takes_program``): its own words, and those behind "--". None for the other verbs."""
    takes = {command.name for command in COMMANDS if getattr(command, "takes_program", False)}
    if not words or words[0] not in takes:
        return words, None
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def netsan() -> int:
    """``run_netsan.sh``: the Network Sanitizer under its old name."""
    return main(["net", *sys.argv[1:]])


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if sys.stdout is None:  # closed by the caller ("assay net >&-")
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    parser = build_parser()
    try:
        args = parse(parser, words)
        if not hasattr(args, "execute"):
            parser.print_help()
            return EXIT_UNUSABLE
        status: int = args.execute(args)
        sys.stdout.flush()
        return status
    except UserError as error:
        print(f"assay: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("assay: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away ("assay list | head"): not our fault
        _discard_output()
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _discard_output()
        print("assay: no space left to write to; make room on that disk and try again", file=sys.stderr)
        return EXIT_UNUSABLE


def _discard_output() -> None:
    """So that the interpreter's last flush does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
