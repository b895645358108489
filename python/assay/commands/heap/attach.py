"""``assay heap attach``: records the heap of a running process."""

from __future__ import annotations

import argparse

from assay.commands.heap.recording import add_recording, read_recording
from assay.commands.heap.runs import HEAP, fail_if_nothing_recorded
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, UserError
from assay.measure.heap import FOLDER, conclude
from assay.measure.heap_recorder import record_running
from assay.records.units import format_quantity


def prepare_attach(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "attach",
        help="record a process that runs already",
        description="Records a running process until Ctrl-C, for a time, or to its end. Then it goes on without "
        "hooks. It needs the process's owner and kernel.yama.ptrace_scope=0, or root.",
        examples=[
            Example("assay heap attach 4711", "until Ctrl-C", "a process"),
            Example("assay heap attach 4711 --budget 30s", needs="a process"),
            Example("assay heap attach 4711 --at-least 4KiB -o server", needs="a process"),
        ],
    )
    parser.add_argument("pid", type=int, metavar="PID", help="the process")
    add_option(parser, "-o --output")
    add_option(parser, "--budget", "default: to its end")
    add_recording(parser)
    parser.set_defaults(sub_verb=attach)


def attach(args: argparse.Namespace) -> int:
    pid: int = args.pid
    session = HEAP.new_session(args, {"attach": pid})
    until = f"for {format_quantity(args.budget, 's')}, or until Ctrl-C" if args.budget else "until Ctrl-C"
    try:
        recorded = record_running(
            session.run.path / FOLDER,
            pid,
            args.budget or 0.0,
            read_recording(args),
            lambda: session.err.print(f"attached to {pid} {until}"),
        )
    except UserError:
        session.run.discard()
        raise
    if recorded.problem:
        session.err.print(recorded.problem, soft_wrap=True)
    session.err.print(
        f"left {pid}: it goes on" if recorded.still_runs else f"{pid} has ended, or runs another program now"
    )
    fail_if_nothing_recorded(session, f"nothing was recorded of process {pid}")
    conclude(session, sources=True)
    return EXIT_PASS
