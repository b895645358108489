"""``assay heap record``: runs a program and records its allocations."""

from __future__ import annotations

import argparse
import os
import re
import resource
from pathlib import Path

from assay.commands.heap.recording import add_ranks, add_recording, read_recording
from assay.commands.heap.runs import HEAP
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import UserError, after_program
from assay.measure.heap import FOLDER, conclude, traces
from assay.measure.heap_recorder import record_program
from assay.measure.session import Session
from assay.measure.startable import require_program
from assay.profile.heap import HeapProfile
from assay.records.run import as_text
from assay.records.units import format_quantity

PYTHON = re.compile(r"python[0-9.]*$")
PYTHON_ARENA_BYTES = 1 << 20  # of CPython's allocator (Include/internal/pycore_obmalloc.h)


def prepare_record(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "record",
        help="run a program and record it (understood where no command is typed)",
        description="Runs a program and records its allocations and frees, and those of the processes that it "
        "starts. Its output and exit status are unchanged (2 if it succeeded and its profile cannot be written); the "
        "profile goes to standard error and into the run.",
        usage="%(prog)s [options] -- PROGRAM [ARGUMENT ...]",
        examples=[
            Example("assay heap -o first -- python3 -c pass"),
            Example("assay heap record -o second --sample 64KiB -- python3 -c pass", "figures are estimates"),
            Example("assay heap record --only-ranks 0,3 -- mpirun -n 4 ./solver", needs="a program"),
        ],
    )
    add_option(parser, "-o --output")
    add_recording(parser)
    add_ranks(parser)
    parser.set_defaults(sub_verb=record, program=[])


def record(args: argparse.Namespace) -> int:
    if not args.program:
        raise UserError("no program given", "write it after --: assay heap -- ./program")
    require_program(args.program[0])
    session = HEAP.new_session(args, {"program": [as_text(argument) for argument in args.program]})
    session.out = session.err  # standard output is the program's
    status = record_program(session.run.path / FOLDER, args.program, read_recording(args))
    with after_program(status):
        _conclude(session, args.program[0])
    return status


def _conclude(session: Session, program: str) -> None:
    if not traces(session.run.path / FOLDER):
        session.run.finish("partial", "nothing was recorded")
        limits = _set_limits()
        room = f", or does {limits} leave no room for the buffers of its records" if limits else ""
        reason = f"nothing was recorded of {program}; is it statically linked, or does it run as another user{room}?"
        session.err.print(f"assay: {reason}", soft_wrap=True, markup=False, highlight=False)
        return
    profiles = conclude(session, sources=True)
    if "PYTHONMALLOC" not in os.environ:
        _print_arena_notice(session, program, profiles.processes)


def _set_limits() -> str:
    """The limits that are set and bound the buffers of records, "ulimit -v and ulimit -f"; empty without one."""
    limits = {"ulimit -v": resource.RLIMIT_AS, "ulimit -f": resource.RLIMIT_FSIZE}
    return " and ".join(
        name for name, limit in limits.items() if resource.getrlimit(limit)[0] != resource.RLIM_INFINITY
    )


def _print_arena_notice(session: Session, program: str, profiles: list[HeapProfile]) -> None:
    """Notes that CPython's arenas hide small objects."""
    python_profiles = [profile for profile in profiles if profile.has_python]
    if not python_profiles and not PYTHON.match(Path(program).name):
        return
    mapped = max((profile.totals.mapped_bytes for profile in python_profiles), default=0)
    size = f", {format_quantity(mapped, 'B')}" if mapped >= PYTHON_ARENA_BYTES else ""
    notice = f"Python allocates small objects from its own arenas{size}; set PYTHONMALLOC=malloc to see each of them"
    session.err.print(notice, soft_wrap=True)
