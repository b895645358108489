"""The command line ``assay``: lists the verbs, parses the arguments, and turns errors into exit codes.

Each verb (a command of ``assay``, such as "net") is a class in ``assay.commands`` (one file per verb) whose docstring
is its help; see ``Command``.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol

from assay.commands.parser import Example, Parser, nearest
from assay.errors import EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNUSABLE, UserError, exit_code_after
from assay.records.text import one_line
from assay.report.streams import discard_output, prepare_output

FULL = {errno.ENOSPC: "no space left to write to", errno.EDQUOT: "the disk quota is used up"}
TRACEBACK = (
    "ASSAY_TRACEBACK"  # environment variable; where it is set, a defect is reported with its traceback
)


class Command(Protocol):
    """A verb. Its class docstring is its help: the first sentence is the summary that ``VERBS`` has, ``examples`` are
    shown last.

    Optional attributes: ``notes``, a text before the examples; ``takes_program``, true where a program's command line
    may follow "--"; ``complete(arguments)``, which returns the arguments with the default sub-verb inserted.
    """

    name: str

    @property
    def examples(self) -> Sequence[Example]: ...

    def prepare_parser(self, parser: Parser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


# The verbs with their summaries, by what they are for, in the order of the help. Verb "net" is class Net of module
# assay.commands.net, which is imported when it is used: the list of verbs imports none of them.
GROUPS = {
    "qualify": {
        "check": "Qualify this machine or a cluster: memory, noise, network",
        "comply": "Measure what a specification asks for, and judge it",
        "expect": "Show what memory, ports and GPUs should reach",
    },
    "node": {
        "mem": "Memory bandwidth: the peak, and at an application's pace",
        "gpu": "Bandwidth between this machine's memory and its NVIDIA GPUs",
        "udp": "UDP reception on one interface: speed, loss, and where it happened",
        "rdma": "RDMA bandwidth between two devices or hosts",
    },
    "network": {
        "net": "Qualify a network: which node, side, pair or adapter is slow",
        "saturate": "Find a network's capacities: hosts, cabinets, and between cabinets",
        "model": "Make a SimGrid platform of a saturation run, and verify it",
        "simulate": "Run a network measurement or an MPI program on a simulated network",
        "eb": "Build events over a network: each node assembles some, from a part of every node",
    },
    "fabric": {
        "fabric": "Find conflicts and faults in the routing of an InfiniBand fabric",
    },
    "profile": {
        "heap": "Memory profile of a program: every allocation, with its stack",
        "numa": "NUMA profile of a program: which node each page is on, and who uses it from afar",
        "alloc": "Compare allocators on this machine, or on a recorded program",
    },
    "storage": {
        "io": "Measure and accelerate parallel I/O, and a node's own storage",
    },
    "runs": {
        "run": "Run one measurement by its name",
        "judge": "Judge a run by a specification, again or by another one",
        "report": "Write the HTML report of a run",
    },
    "set-up": {
        "lab": "Make a virtual cluster on this machine to try things on",
        "list": "List what Assay can measure, and what of it applies here",
        "doctor": "Check this machine's tools, MPIs, launchers and settings, with fixes",
        "completion": "Write the completion of a shell, or the manual page",
    },
}


class _Version(argparse.Action):
    """--version: asks git for the commit only when it is shown."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from assay.version import version

        print(version())
        parser.exit()


VERBS = {verb: summary for verbs in GROUPS.values() for verb, summary in verbs.items()}


def verbs_of(arguments: Sequence[str]) -> list[str]:
    """The verb that a command line names first, or none."""
    named = [argument for argument in arguments if not argument.startswith("-")]
    return named[:1] if named[:1] and named[0] in VERBS else []


def load(verb: str) -> Command:
    """Imports the verb's module and returns an instance of its class."""
    command: Command = getattr(import_module(f"assay.commands.{verb}"), verb.capitalize())()
    return command


def build_parser(arguments: Sequence[str] | None = None) -> Parser:
    """The parser for a command line; without one, that of all verbs. Only the verb that the line names has its options.
    A line that begins with its verb needs no others."""
    parser = Parser(
        prog="assay",
        description="Tells whether a cluster is fit for its purpose and, if it is not, why.",
        notes="Start with 'assay check' (this machine), or 'assay lab up' (a virtual cluster to try).",
        usage="%(prog)s COMMAND [options]  |  %(prog)s --help  |  %(prog)s --version",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and the commit")
    verbs = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", prog="assay")
    parser._optionals._group_actions = []  # the usage has both options: the list of verbs fills a screen
    verbs.groups = GROUPS  # type: ignore[attr-defined]
    loaded = list(VERBS) if arguments is None else verbs_of(arguments)
    for name in loaded if arguments and arguments[0] in VERBS else VERBS:
        if name not in loaded:
            verbs.add_parser(name, help=VERBS[name])
            continue
        command = load(name)
        description = " ".join((command.__doc__ or "").split())
        verb = verbs.add_parser(
            command.name,
            help=VERBS[name],
            description=description,
            notes=getattr(command, "notes", ""),
            examples=command.examples,
        )
        verb.line = arguments[1:] if arguments and arguments[0] == name else ()
        command.prepare_parser(verb)
        verb.set_defaults(execute=command.run)
    return parser


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parses a command line. ``run --resume RUN`` gives the command line of that run, with ``resumed`` set to RUN."""
    typed = arguments
    arguments, program = _split_program(_insert_default_verb(arguments))
    args, unknown = parser.parse_known_args(arguments)
    resumed = getattr(args, "resume", None)
    if resumed is not None:
        if getattr(args, "measurement", None) is not None or unknown:
            raise UserError("--resume takes the command of the run", "give nothing else with it")
        from assay.records.run import Run  # the records take a good part of a start

        run = Run.load(resumed)
        run.check_owner()
        typed = run.info.command[1:]
        arguments, program = _split_program(_insert_default_verb(typed))
        args, unknown = build_parser(arguments).parse_known_args(arguments)
    if unknown and not getattr(args, "takes_unknown", False):
        _refuse_unknown(args.parser, unknown)
    args.unknown, args.resumed = unknown, resumed
    if program is not None:
        args.program = program
    args.command_line = ["assay", *typed]  # for run.json
    args.build_parser = build_parser  # for what is made from the parser of all verbs
    return args


def _refuse_unknown(parser: Parser, unknown: list[str]) -> None:
    options = [option for action in parser._actions for option in action.option_strings]
    suggestion = nearest(unknown[0], options) if unknown[0].startswith("-") else ""
    parser.error(f"unrecognised: {' '.join(unknown)}{suggestion}")


def _insert_default_verb(arguments: list[str]) -> list[str]:
    """The arguments with the verb's default sub-verb inserted, where it has one and none is typed."""
    for verb in verbs_of(arguments):
        command = load(verb)
        if arguments[:1] == [verb] and hasattr(command, "complete"):
            return [verb, *command.complete(arguments[1:])]
    return arguments


def _split_program(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Splits at "--" into the verb's arguments and the program's, for verbs with ``takes_program``. For other verbs the
    program is None."""
    verbs_with_program = {verb for verb in verbs_of(arguments) if getattr(load(verb), "takes_program", False)}
    if not arguments or arguments[0] not in verbs_with_program:
        return arguments, None
    dashes = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:dashes], arguments[dashes + 1 :]


def main(argv: list[str] | None = None, begin: Callable[[], object] = lambda: None) -> int:
    """Runs a command line; returns its exit code. ``begin`` is called inside the block that handles Ctrl-C and
    SIGTERM."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        begin()
        _interrupt_on_ending()
        prepare_output()
        status = _execute(arguments)
        sys.stdout.flush()
    except UserError as error:
        from assay.system import in_local_words  # imported when it is needed: a start is short

        _print_error(in_local_words(str(error)))
        return exit_code_after(error)
    except KeyboardInterrupt:
        _print_error("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:
        return _report_exception(error)
    return status


def _execute(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:  # as git and others have it
        arguments = [*arguments[1:], "--help"]
    parser = build_parser(arguments)
    try:
        args = parse(parser, arguments)
    except SystemExit:  # argparse has printed the help or the version
        return EXIT_PASS
    if not hasattr(args, "execute"):
        parser.print_help()
        return EXIT_UNUSABLE
    status: int = args.execute(args)
    return status


def _print_error(text: str) -> None:
    """Prints one line on standard error; line breaks in the text are replaced."""
    print(f"assay: {one_line(text)}", file=sys.stderr)


def _report_exception(error: Exception) -> int:
    """Reports an unexpected exception in one line. Its exit code is that of the user's program or 2, never that of a
    verdict."""
    import traceback

    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    if isinstance(error, OSError):
        discard_output()
    name = ""
    if isinstance(error, OSError) and error.filename is not None:
        name = os.fsencode(str(error.filename)).decode(errors="backslashreplace") + ": "
    if isinstance(error, OSError) and error.errno in FULL:
        _print_error(f"{name}{FULL[error.errno]}; fix: make room on that disk and try again")
    elif name and isinstance(error, OSError):
        _print_error(f"{name}{error.strerror}; fix: check the path and its rights")
    else:
        place = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _print_error(
            f"defect of Assay: {problem} ({os.path.basename(place.filename)}:{place.lineno}); "
            f"fix: report it with the output of the same command under {TRACEBACK}=1"
        )
    return exit_code_after(error)


def _interrupt_on_ending() -> None:
    """Handles SIGTERM, and SIGHUP of a terminal that is closed, like Ctrl-C: measured records are kept. Ignores the
    second one: 'timeout' sends two, and a shell that is hung up sends its own beside the terminal's."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may set handlers
    seen = False

    def interrupt(*_: object) -> None:
        nonlocal seen
        if not seen:
            seen = True
            raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, interrupt)
