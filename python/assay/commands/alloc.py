"""``assay alloc``: compares allocators on this machine, or replays a recorded program's calls on them."""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
from pathlib import Path

from assay.commands.options import add_option, argument_type, parse_sizes
from assay.commands.parser import Example, Parser
from assay.commands.session import open_session
from assay.errors import UserError
from assay.measure.alloc import (
    QUESTIONS,
    Plan,
    Step,
    run_steps,
    steps_of,
    thread_counts,
)
from assay.measure.allocators import DEFAULT, check, parse_allocators, prepare
from assay.measure.heap import traces
from assay.measure.node import read_contexts
from assay.measure.session import Session
from assay.profile.alloc import REPLAY
from assay.records.run import Run
from assay.records.schema import Scalar

SIZES, QUICK_SIZES = "16B:4GiB", "16B:64MiB"
REPLAY_EXPECTED_S = 5.0  # for the progress display


class Alloc:
    """Compare allocators on this machine, or on a recorded program. Malloc, first touch, touch again and free by size
    are timed apart, with page faults; and what stays resident after free, threads, blocks freed by another thread,
    resident over live memory. 'replay' repeats the calls of a heap trace under each allocator, in one thread for each
    recorded thread, with one store per page; the program's own work between its calls is left out."""

    name = "alloc"
    notes = """allocators (--allocators): glibc, jemalloc, tcmalloc, mimalloc, tbbmalloc, or the path of a library;
variants:
  +huge         huge pages, by the allocator's own switch   glibc+keep  nothing given back or mapped
  +nohuge       without transparent huge pages              glibc+mmap  mmap_threshold 128 KiB
  glibc+arena1  one arena for all threads                   +NAME=value  an environment variable"""
    examples = [
        Example("assay alloc --quick", "all five", "minutes"),
        Example("assay alloc -a glibc,glibc+huge --only retention --sizes 20MB", "two, one question"),
        Example("assay heap -o before -- ./solver && assay alloc replay before", needs="a program"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.usage = "%(prog)s [options]  |  %(prog)s replay RUN|TRACE [options]"
        parser.add_argument(
            "mode", nargs="*", metavar="replay RUN|TRACE", help="replay a trace of 'assay heap'"
        )
        parser.add_argument(
            "-a",
            "--allocators",
            type=argument_type(parse_allocators),
            default=",".join(DEFAULT),
            metavar="LIST",
            help="names and paths (default: all five)",
        )
        add_option(parser, "--sizes", f"default: {SIZES}, where it fits into memory")
        add_option(parser, "--threads", "default: 1, 2, 4 ... to all cores")
        parser.add_argument(
            "--only", type=argument_type(_questions), metavar="LIST", help=f"of {', '.join(QUESTIONS)}"
        )
        add_option(parser, "--repeats", "cycles of retention, default: 10; replays, default: 3")
        parser.add_argument("--quick", action="store_true", help=f"{QUICK_SIZES}, a fifth of the time each")
        parser.add_argument(
            "--no-touch", action="store_true", help="a replay that leaves the blocks' pages alone"
        )
        add_option(parser, "-o --output")
        add_option(parser, "--json")
        add_option(parser, "-v --verbose")

    def run(self, args: argparse.Namespace) -> int:
        trace = _trace(args.mode)
        _refuse_options_of_other_mode(args, trace is not None)
        for allocator in args.allocators:
            if not allocator.missing_reason:
                check(allocator)
        if all(allocator.missing_reason for allocator in args.allocators):
            raise UserError(args.allocators[0].missing_reason, "or name others with --allocators")
        if trace is not None:
            return _replay(args, trace)
        plan = _plan(args)
        session = _session(args, {"sizes": ",".join(map(str, plan.sizes))})
        with session.interruptible():
            run_steps(session, steps_of(plan))
        return session.conclude([])


def _questions(text: str) -> list[str]:
    chosen = text.split(",")
    for question in chosen:
        if question not in QUESTIONS:
            raise UserError(f"unknown question '{question}'", f"expected some of {', '.join(QUESTIONS)}")
    return [question for question in QUESTIONS if question in chosen]


def _trace(arguments: list[str]) -> Path | None:
    """The trace to replay (the largest of a run); None without "replay"."""
    if not arguments:
        return None
    if arguments[0] != "replay":
        raise UserError(
            f"assay alloc does not know '{arguments[0]}'", "did you mean 'assay alloc replay RUN'?"
        )
    if len(arguments) != 2:
        raise UserError("replay takes one run or one trace", "record one: assay heap -- PROGRAM")
    path = Path(arguments[1])
    if not path.exists():
        raise UserError(
            f"{path} does not exist", "give a run of 'assay heap', or a trace of it (RUN/heap/*.heap)"
        )
    if path.is_file():
        return path
    trace_files = traces(Run.load(path).path / "heap")
    if not trace_files:
        raise UserError(f"{path} holds no heap trace", "record one: assay heap -- PROGRAM")
    return trace_files[0]


def _refuse_options_of_other_mode(args: argparse.Namespace, is_replay: bool) -> None:
    study_options, replay_options = ("sizes", "threads", "only", "quick"), ("no_touch",)
    for option in study_options if is_replay else replay_options:
        if getattr(args, option):
            mode = "the study" if is_replay else "replay"
            raise UserError(f"--{option.replace('_', '-')} is an option of {mode}", "leave it out")


def _plan(args: argparse.Namespace) -> Plan:
    sizes = args.sizes or parse_sizes(QUICK_SIZES if args.quick else SIZES)
    threads = args.threads or thread_counts(len(os.sched_getaffinity(0)))
    return Plan(
        args.allocators,
        sizes,
        threads,
        cycles=args.repeats or (5 if args.quick else 10),
        seconds=0.1 if args.quick else 0.5,
        total=16 << 20 if args.quick else 64 << 20,
        questions=args.only or list(QUESTIONS),
    )


def _session(args: argparse.Namespace, source: dict[str, Scalar]) -> Session:
    options = {
        "allocators": [allocator.name for allocator in args.allocators],
        "started": [
            f"{allocator.name} {allocator.environment()}"
            for allocator in args.allocators
            if allocator.environment()
        ],
        **source,
    }
    session = open_session("alloc", args, [socket.gethostname()], options)
    for context in read_contexts():
        session.run.append(context)
    return session


def _replay(args: argparse.Namespace, trace: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="assay-alloc-") as folder:
        script = Path(folder) / "script"
        prepare(trace, script)
        session = _session(args, {"trace": str(trace)})
        name = Path(args.mode[1]).resolve().name
        params: dict[str, Scalar] = {"script": str(script), "trace": name, "repeats": args.repeats or 3}
        if args.no_touch:
            params["no_touch"] = True
        with session.interruptible():
            run_steps(
                session, [Step(REPLAY, allocator, params, REPLAY_EXPECTED_S) for allocator in args.allocators]
            )
        return session.conclude([])
