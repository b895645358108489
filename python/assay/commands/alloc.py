"""``assay alloc``: what allocators cost, and what they would make of a recorded program."""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from assay.commands.options import count, open_run
from assay.errors import UserError
from assay.measure.alloc import (
    QUESTIONS,
    Plan,
    Step,
    parse_sizes,
    parse_threads,
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
REPLAY_EXPECTED_S = 5.0

T = TypeVar("T")


class Alloc:
    """Allocators compared on this machine: malloc, first touch, touch again and free by size, each timed apart, with
    page faults; what stays resident after free; threads; blocks freed by another thread; resident over live memory.
    With 'replay', the calls of a heap trace again under each: one thread for each that was recorded, its calls in
    order, blocks handed over as they were, one store a page of each block; the program's own work between its calls
    is left out."""

    name = "alloc"
    examples = """
  assay alloc                                        glibc, jemalloc, tcmalloc, mimalloc, tbbmalloc; minutes
  assay alloc --quick
  assay alloc --allocators glibc,glibc+huge,/opt/hoard/libhoard.so --only sizes,retention
  assay alloc --allocators glibc,glibc+GLIBC_TUNABLES=glibc.malloc.arena_max=1 --threads 1,8,64
  assay alloc --sizes 20MB --cycles 100
  assay heap -o before -- ./solver && assay alloc replay before

An allocator is glibc, jemalloc, tcmalloc, mimalloc, tbbmalloc or the path of a library, and with a plus a variant:
  +huge     huge pages, by the allocator's own switch        +nohuge  without the kernel's transparent huge pages
  glibc+mmap    mmap_threshold fixed at 128 KiB              glibc+keep    nothing given back, nothing mapped
  glibc+arena1  one arena for all threads                    +NAME=value   any setting of its environment
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "%(prog)s [options]  |  %(prog)s replay RUN|TRACE [options]"
        parser.add_argument(
            "what", nargs="*", metavar="replay RUN|TRACE", help="a trace of 'assay heap' again"
        )
        parser.add_argument(
            "--allocators",
            "-a",
            type=_read(parse_allocators),
            default=",".join(DEFAULT),
            metavar="LIST",
            help=f"names and paths (default: {','.join(DEFAULT)})",
        )
        parser.add_argument(
            "--sizes",
            type=_read(parse_sizes),
            metavar="SIZES",
            help=f"FROM:TO, a factor of four each, or a list (default: {SIZES}, where it fits into memory)",
        )
        parser.add_argument(
            "--threads",
            type=_read(parse_threads),
            metavar="LIST",
            help="numbers of threads; sizes: the least and the most (default: 1, 2, 4 ... to all cores)",
        )
        parser.add_argument(
            "--cycles",
            type=count,
            metavar="N",
            help="of allocating, touching and freeing, for what is retained (default: 10)",
        )
        parser.add_argument(
            "--only", type=_read(_questions), metavar="LIST", help=f"of {', '.join(QUESTIONS)}"
        )
        parser.add_argument("--quick", action="store_true", help=f"{QUICK_SIZES}, a fifth of the time each")
        parser.add_argument(
            "--repeats",
            type=count,
            metavar="N",
            help="of a replay, each in a process of its own (default: 3)",
        )
        parser.add_argument(
            "--no-touch", action="store_true", help="a replay that leaves the blocks' pages alone"
        )
        parser.add_argument(
            "--output", "-o", metavar="DIR", help="the run's directory (default: runs/DATE-...)"
        )
        parser.add_argument("--json", action="store_true", help="the whole run as JSON on standard output")
        parser.add_argument(
            "--verbose", "-v", action="store_true", help="show commands and engines' own words"
        )

    def run(self, args: argparse.Namespace) -> int:
        trace = _trace(args.what)
        _refuse_of_the_other(args, trace is not None)
        for allocator in args.allocators:
            if not allocator.missing:
                check(allocator)
        if all(allocator.missing for allocator in args.allocators):
            raise UserError(args.allocators[0].missing, "or name others with --allocators")
        if trace is not None:
            return _replay(args, trace)
        plan = _plan(args)
        session = _session(args, {"sizes": ",".join(map(str, plan.sizes))})
        run_steps(session, steps_of(plan))
        return _conclude(session, args)


def _read(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A reader whose errors argparse names the option of."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _questions(text: str) -> list[str]:
    chosen = text.split(",")
    for one in chosen:
        if one not in QUESTIONS:
            raise UserError(f"no question '{one}'", f"there are: {', '.join(QUESTIONS)}")
    return [one for one in QUESTIONS if one in chosen]


def _trace(what: list[str]) -> Path | None:
    """The trace that is to be replayed; of a run the largest. None when nothing is."""
    if not what:
        return None
    if what[0] != "replay":
        raise UserError(f"assay alloc knows no '{what[0]}'", "did you mean 'assay alloc replay RUN'?")
    if len(what) != 2:
        raise UserError("replay takes one run or one trace", "record one: assay heap -- PROGRAM")
    place = Path(what[1])
    if not place.exists():
        raise UserError(
            f"{place} is not there", "give a run of 'assay heap', or a trace of it (RUN/heap/*.heap)"
        )
    if place.is_file():
        return place
    found = traces(Run.load(place).path / "heap")
    if not found:
        raise UserError(f"{place} holds no heap trace", "record one: assay heap -- PROGRAM")
    return found[0]


def _refuse_of_the_other(args: argparse.Namespace, is_replay: bool) -> None:
    of_study, of_replay = ("sizes", "threads", "cycles", "only", "quick"), ("repeats", "no_touch")
    for option in of_study if is_replay else of_replay:
        if getattr(args, option):
            where = "the study" if is_replay else "replay"
            raise UserError(f"--{option.replace('_', '-')} is of {where}", "leave it out")


def _plan(args: argparse.Namespace) -> Plan:
    sizes = args.sizes or parse_sizes(QUICK_SIZES if args.quick else SIZES)
    threads = args.threads or thread_counts(len(os.sched_getaffinity(0)))
    return Plan(
        args.allocators,
        sizes,
        threads,
        cycles=args.cycles or (5 if args.quick else 10),
        seconds=0.1 if args.quick else 0.5,
        total=16 << 20 if args.quick else 64 << 20,
        only=args.only or list(QUESTIONS),
    )


def _session(args: argparse.Namespace, options: dict[str, Scalar]) -> Session:
    run = open_run("alloc", args)
    run.info.hosts = [socket.gethostname()]
    run.info.options = {
        "allocators": [one.name for one in args.allocators],
        "started": [f"{one.name} {one.words()}" for one in args.allocators if one.words()],
        **options,
    }
    run.save()
    session = Session(run, verbose=args.verbose, quiet=args.json)
    for context in read_contexts():
        run.append(context)
    return session


def _replay(args: argparse.Namespace, trace: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="assay-alloc-") as folder:
        script = Path(folder) / "script"
        prepare(trace, script)
        session = _session(args, {"trace": str(trace)})
        name = Path(args.what[1]).resolve().name
        params: dict[str, Scalar] = {"script": str(script), "trace": name, "repeats": args.repeats or 3}
        if args.no_touch:
            params["no_touch"] = True
        run_steps(session, [Step(REPLAY, one, params, REPLAY_EXPECTED_S) for one in args.allocators])
        return _conclude(session, args)


def _conclude(session: Session, args: argparse.Namespace) -> int:
    status = session.conclude([])
    if args.json:
        session.print_json()
    return status
