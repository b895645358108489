"""The command line: one visible list of verbs, one place where errors become exit codes.

Each verb is a class in ``assay.commands`` (one file per verb) whose docstring is its help; see ``Command``.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Protocol

from assay import __version__
from assay.commands.alloc import Alloc
from assay.commands.check import Check
from assay.commands.comply import Comply
from assay.commands.doctor import Doctor
from assay.commands.fabric import Fabric
from assay.commands.gpu import Gpu
from assay.commands.heap import Heap
from assay.commands.io import Io
from assay.commands.judge import Judge
from assay.commands.lab import Lab
from assay.commands.list import List
from assay.commands.mem import Mem
from assay.commands.model import Model
from assay.commands.net import Net
from assay.commands.parser import Example, Parser, nearest
from assay.commands.rdma import Rdma
from assay.commands.report import Report
from assay.commands.run import Run as RunMeasurement
from assay.commands.saturate import Saturate
from assay.commands.simulate import Simulate
from assay.commands.udp import Udp
from assay.errors import EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNUSABLE, UserError
from assay.records.run import Run


class Command(Protocol):
    """A verb. The class docstring is its help, of which the first sentence is the summary; ``examples`` come last."""

    name: str

    @property
    def examples(self) -> Sequence[Example]: ...

    def prepare_parser(self, parser: Parser) -> None: ...

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
    Fabric(),
    Heap(),
    Alloc(),
    Io(),
    Lab(),
    List(),
    Doctor(),
    RunMeasurement(),
    Judge(),
    Report(),
]


def build_parser() -> Parser:
    parser = Parser(
        prog="assay",
        description="Tells whether a cluster is fit for its purpose and, if it is not, why.",
        notes="Start with 'assay check' (this machine), or 'assay lab up' (a virtual cluster to try).",
        usage="%(prog)s COMMAND [options]",
    )
    parser.add_argument("--version", action="version", version=f"assay {__version__}")
    verbs = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", prog="assay")
    for command in COMMANDS:
        description = " ".join((command.__doc__ or "").split())
        verb = verbs.add_parser(
            command.name,
            help=description.split(". ")[0].rstrip("."),
            description=description,
            notes=getattr(command, "notes", ""),
            examples=command.examples,
        )
        command.prepare_parser(verb)
        verb.set_defaults(execute=command.run)
    return parser


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """A command line; of ``run --resume RUN`` that of the run, with ``resumed`` set to it."""
    typed = arguments
    arguments, program = _split(arguments)
    args, unknown = parser.parse_known_args(arguments)
    resumed = getattr(args, "resume", None)
    if resumed is not None:
        if getattr(args, "measurement", None) is not None or unknown:
            raise UserError("--resume takes the command of the run", "give nothing else with it")
        typed = Run.load(resumed).info.command[1:]
        arguments, program = _split(typed)
        args, unknown = parser.parse_known_args(arguments)
    if unknown and not getattr(args, "takes_unknown", False):
        _refuse(args.parser, unknown)
    args.unknown, args.resumed = unknown, resumed
    if program is not None:
        args.program = program
    args.command_line = ["assay", *typed]  # for run.json
    return args


def _refuse(parser: Parser, unknown: list[str]) -> None:
    options = [option for action in parser._actions for option in action.option_strings]
    near = nearest(unknown[0], options) if unknown[0].startswith("-") else ""
    parser.error(f"unrecognised: {' '.join(unknown)}{near}")


def _split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Splits at "--" for a verb with ``takes_program``: its arguments, and the program's. None for other verbs."""
    takes = {command.name for command in COMMANDS if getattr(command, "takes_program", False)}
    if not arguments or arguments[0] not in takes:
        return arguments, None
    dashes = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:dashes], arguments[dashes + 1 :]


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if sys.stdout is None:  # closed by the caller ("assay net >&-")
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    _interrupt_on_sigterm()
    try:
        parser = build_parser()
        args = parse(parser, arguments)
        if not hasattr(args, "execute"):
            parser.print_help()
            return EXIT_UNUSABLE
        status: int = args.execute(args)
    except UserError as error:
        print(f"assay: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("assay: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has ended ("assay list | head")
        _discard_output()
        return EXIT_PASS
    except OSError as error:
        return _disk_is_full(error)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        return _disk_is_full(error)
    return status


def _interrupt_on_sigterm() -> None:
    """Handles SIGTERM like Ctrl-C: measured records are kept. Ignores a second SIGTERM, as 'timeout' sends two."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may set handlers
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        return
    seen = False

    def interrupt(*_: object) -> None:
        nonlocal seen
        if not seen:
            seen = True
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def _disk_is_full(error: OSError) -> int:
    """Reports a full disk. Raises any other error."""
    if error.errno != errno.ENOSPC:
        raise error
    _discard_output()
    print("assay: no space left to write to; fix: make room on that disk and try again", file=sys.stderr)
    return EXIT_UNUSABLE


def _discard_output() -> None:
    """Redirects standard output, so that the interpreter's last flush does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
