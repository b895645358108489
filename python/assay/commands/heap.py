"""``assay heap``: a heap profile of a program; every allocation is recorded."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import sys
from datetime import datetime
from pathlib import Path

from msgspec.structs import asdict

from assay.commands.options import add, open_run, reader, size
from assay.commands.parser import Example, Parser
from assay.errors import EXIT_PASS, UserError
from assay.explain.heap import heap_advice
from assay.measure.heap import (
    HEAP,
    Recording,
    analyse_trace,
    check_program,
    import_file,
    pack_trace,
    record_program,
    record_running,
    traces,
)
from assay.profile.compare import changes
from assay.profile.export import callgrind, collapsed, pprof, speedscope
from assay.profile.heap import METRICS, HeapProfile, load_profiles
from assay.profile.ranks import merge_ranks, mpi_ranks
from assay.profile.sources import collect_sources, save_sources
from assay.profile.tree import by_function
from assay.records.run import Run, as_text
from assay.records.schema import Measurement, Scalar, Subject, Summary
from assay.records.units import format_quantity
from assay.report.heap import show_comparison, show_profile, show_ranks
from assay.report.html import REPORT_NAME, build_report
from assay.report.terminal import console, show_findings

PYTHON = re.compile(r"python[0-9.]*$")
PYTHON_ARENA_BYTES = 1 << 20  # of CPython's allocator (Include/internal/pycore_obmalloc.h)
EXPORTS = ("collapsed", "speedscope", "pprof", "callgrind")


class Heap:
    """Memory profile of a program: every allocation, with its stack. Each free is recorded too, with thread and time.
    The program's output and exit status are unchanged; the profile goes to standard error and into the run. Given a
    run instead of a program, it shows that one; given two after "compare", what has changed between them."""

    name = "heap"
    examples = [
        Example("assay heap -o before -- python3 -c pass", "record a program"),
        Example("assay heap before", "show it again"),
        Example("assay heap before --export collapsed --metric leaked", "for flamegraph.pl"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.usage = (
            "%(prog)s [options] -- PROGRAM [ARGUMENT ...]  |  %(prog)s --attach PID [options]\n"
            "       %(prog)s RUN [options]  |  %(prog)s compare RUN RUN [options]  |  %(prog)s import FILE"
        )
        parser.add_argument(
            "program", nargs="*", metavar="PROGRAM", help="the program to run, after --; or a run to show"
        )
        add(parser, "-o --output")
        running = parser.add_argument_group("a running process")
        running.add_argument(
            "--attach", type=int, metavar="PID", help="record it until its end or Ctrl-C; it goes on"
        )
        add(running, "--budget", "with --attach; default: to its end")
        shown = parser.add_argument_group("what to show")
        shown.add_argument("--all", action="store_true", help="show every process, not only the largest")
        shown.add_argument(
            "--export",
            choices=EXPORTS,
            metavar="FORMAT",
            help=f"the largest process on standard output: {', '.join(EXPORTS)}",
        )
        shown.add_argument(
            "--metric",
            choices=list(METRICS),
            default="bytes",
            metavar="NAME",
            help="metric for compare and the collapsed export, such as bytes, count, leaked",
        )
        add(shown, "--json", "of a run")
        shown.add_argument(
            "--sources",
            action="store_true",
            help="with import or a run: put this machine's source files into the report",
        )
        self._add_advanced(parser)

    def _add_advanced(self, parser: Parser) -> None:
        recording = parser.advanced
        recording.add_argument(
            "--at-least", type=size, default=0, metavar="SIZE", help="record blocks of this size and more"
        )
        recording.add_argument(
            "--sample",
            type=size,
            default=0,
            metavar="SIZE",
            help="record about one block for each so many bytes; figures are then estimates",
        )
        recording.add_argument(
            "--only-ranks",
            type=reader(_ranks),
            default=[],
            metavar="LIST",
            help="only these ranks of an MPI program, such as 0,3",
        )
        recording.add_argument(
            "--no-python",
            action="store_true",
            help="C stacks alone, without the Python functions that run in them (some 12 ns a call)",
        )
        recording.add_argument(
            "--no-faults",
            action="store_true",
            help="do not watch page faults: who touches memory first (some 0.5 us a fault)",
        )
        recording.add_argument(
            "--dump-at",
            type=size,
            default=0,
            metavar="SIZE",
            help="write a profile when a process has so much in memory; also on SIGUSR1",
        )

    def run(self, args: argparse.Namespace) -> int:
        if args.attach is not None:
            return _attach(args)
        if args.budget:
            raise UserError("--budget needs --attach", "a program that Assay starts is recorded to its end")
        if not args.program:
            raise UserError("no program given", "write it after --: assay heap -- ./program")
        if args.program[0] == "import" and len(args.program) == 2:
            return _import(Path(args.program[1]), args)
        runs = _runs_to_show(args.program)
        if len(runs) == 2:
            return _compare(runs[0], runs[1], args)
        if runs:
            return _show_again(runs[0], args)
        return _record_program(args)


def _ranks(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UserError(
            f"'{text}' is not a list of ranks", "expected comma-separated ranks, e.g. 0,3"
        ) from None


def _runs_to_show(arguments: list[str]) -> list[Run]:
    """The runs of "RUN" or "compare RUN RUN"; empty if the arguments are a program."""
    names = arguments[1:] if len(arguments) == 3 and arguments[0] == "compare" else arguments
    if len(names) != (2 if names is not arguments else 1) or not all(
        (Path(name) / "run.json").is_file() for name in names
    ):
        if arguments[0] == "compare" and shutil.which("compare") is None:
            raise UserError(
                "compare takes two runs of 'assay heap': " + " ".join(arguments), "assay heap compare RUN RUN"
            )
        return []
    runs = [Run.load(Path(name)) for name in names]
    for run in runs:
        if not traces(run.path / "heap") and not load_profiles(run.path):
            raise UserError(f"{run.path} holds no heap trace", "record one: assay heap -- PROGRAM")
    return runs


def _record_program(args: argparse.Namespace) -> int:
    if args.export or args.json:
        raise UserError(
            "--export and --json need a finished run, not a program",
            "record it with -o RUN first, then: assay heap RUN --export ...",
        )
    check_program(args.program[0])
    run = _open(args, {"program": [as_text(argument) for argument in args.program]})
    status = record_program(run.path / "heap", args.program, _recording(args))
    if not traces(run.path / "heap"):
        run.finish("partial", "nothing was recorded")
        raise UserError(
            f"nothing was recorded of {args.program[0]}",
            "is it statically linked, or does it run as another user?",
        )
    profiles = _conclude(run, args, to_stdout=False)
    if "PYTHONMALLOC" not in os.environ:
        _print_arena_notice(args.program[0], profiles)
    return status


def _recording(args: argparse.Namespace) -> Recording:
    return Recording(
        at_least=args.at_least,
        sample=args.sample,
        ranks=args.only_ranks,
        python=not args.no_python,
        faults=not args.no_faults,
        dump_at=args.dump_at,
    )


def _open(args: argparse.Namespace, options: dict[str, Scalar | list[str] | None]) -> Run:
    run = open_run("heap", args)
    run.info.hosts = [socket.gethostname()]
    run.info.options = options
    run.save()
    return run


def _attach(args: argparse.Namespace) -> int:
    pid: int = args.attach
    if args.program or args.only_ranks or args.export or args.json:
        raise UserError(
            "--attach cannot be combined with a program, --only-ranks, --export or --json",
            "see 'assay heap --help'",
        )
    run = _open(args, {"attach": pid})
    out = console(stderr=True)
    until = f"for {format_quantity(args.budget, 's')}, or until Ctrl-C" if args.budget else "until Ctrl-C"
    try:
        recording = record_running(
            run.path / "heap",
            pid,
            args.budget or 0.0,
            _recording(args),
            lambda: out.print(f"attached to {pid} {until}"),
        )
    except UserError:
        run.discard()
        raise
    if recording.problem:
        out.print(recording.problem, soft_wrap=True)
    out.print(
        f"left {pid}: it goes on" if recording.goes_on else f"{pid} has ended, or runs another program now"
    )
    if not traces(run.path / "heap"):
        run.finish("partial", "nothing was recorded")
        raise UserError(f"nothing was recorded of process {pid}")
    _conclude(run, args, to_stdout=True)
    return EXIT_PASS


def _print_arena_notice(program: str, profiles: list[HeapProfile]) -> None:
    """Notes that CPython's arenas hide small objects."""
    python_profiles = [profile for profile in profiles if profile.has_python]
    if not python_profiles and not PYTHON.match(Path(program).name):
        return
    mapped = max((profile.totals.mapped_bytes for profile in python_profiles), default=0)
    size = f", {format_quantity(mapped, 'B')}" if mapped >= PYTHON_ARENA_BYTES else ""
    notice = f"Python allocates small objects from its own arenas{size}; set PYTHONMALLOC=malloc to see each of them"
    console(stderr=True).print(notice, soft_wrap=True)


def _import(file: Path, args: argparse.Namespace) -> int:
    if not file.is_file():
        raise UserError(f"cannot read {file}: no such file")
    run = _open(args, {"import": str(file)})
    try:
        import_file(run.path / "heap", file)
    except UserError:
        run.finish("failed", f"{file} could not be read")
        raise
    _conclude(run, args, to_stdout=True, sources=args.sources)
    return EXIT_PASS


def _conclude(run: Run, args: argparse.Namespace, to_stdout: bool, sources: bool = True) -> list[HeapProfile]:
    """Analyses the run; writes its records, advice and report; returns the profiles. ``sources``: the source files of
    this machine are those of the program."""
    profiles = _profiles(run)
    for trace in traces(run.path / "heap"):
        pack_trace(trace)
    for profile in profiles:
        _record(run, profile)
    for finding in heap_advice(_merged_or_largest(profiles), run.info.hosts[0]):
        run.append(finding)
    run.info.completed = [HEAP.name]
    run.finish("complete", "")
    if sources:
        _keep_sources(run, profiles)
    build_report(run.path)
    _show(run, profiles, args.all, to_stdout=to_stdout)
    return profiles


def _show_again(run: Run, args: argparse.Namespace) -> int:
    profiles = _profiles(run)
    if args.export:
        _export(_merged_or_largest(profiles), args.export, args.metric)
    elif args.json:
        print(json.dumps([_summary_json(profile) for profile in profiles], indent=1))
    else:
        if args.sources:
            _keep_sources(run, profiles)
        _show(run, profiles, args.all, to_stdout=True)
        build_report(run.path)
    return EXIT_PASS


def _keep_sources(run: Run, profiles: list[HeapProfile]) -> None:
    """Keeps the program's source files in the run, and says which were left out."""
    sources = collect_sources(profiles, datetime.fromisoformat(run.info.started).timestamp())
    save_sources(run.path, sources)
    if notice := sources.notice():
        print(notice, file=sys.stderr)


def _compare(before: Run, after: Run, args: argparse.Namespace) -> int:
    merged_before, merged_after = _merged_or_largest(_profiles(before)), _merged_or_largest(_profiles(after))
    changed = changes(merged_before, merged_after, args.metric)
    if args.json:
        rows = [
            {
                "function": change.location.function,
                "file": change.location.file,
                "before": change.before,
                "after": change.after,
            }
            for change in changed
        ]
        totals = [asdict(merged_before.totals), asdict(merged_after.totals)]
        print(json.dumps({"metric": args.metric, "totals": totals, "functions": rows}, indent=1))
    else:
        show_comparison(console(stderr=False), merged_before, merged_after, args.metric, changed)
    return EXIT_PASS


def _profiles(run: Run) -> list[HeapProfile]:
    """The analyses of all processes, the one that allocated most first."""
    for trace in traces(run.path / "heap"):
        analyse_trace(trace)
    return load_profiles(run.path)


def _merged_or_largest(profiles: list[HeapProfile]) -> HeapProfile:
    """The merged ranks of an MPI program, or else the largest process."""
    ranks = mpi_ranks(profiles)
    return merge_ranks(ranks) if ranks else profiles[0]


def _summary_json(profile: HeapProfile) -> dict[str, object]:
    """Totals and functions; the whole analysis is in the run's heap folder."""
    return {
        "process": asdict(profile.process),
        "totals": asdict(profile.totals),
        "functions": {
            metric: [
                {
                    "function": figures.location.function,
                    "source": figures.location.source,
                    "exclusive": figures.exclusive,
                    "inclusive": figures.inclusive,
                }
                for figures in profile.by(metric, by_function)
            ]
            for metric in METRICS
        },
    }


def _record(run: Run, profile: HeapProfile) -> None:
    totals = profile.totals
    params: dict[str, Scalar] = {"pid": profile.process.pid, "program": profile.process.program}
    rank = int(profile.process.rank) if profile.process.rank.isdigit() else None
    values = {
        "peak": totals.peak,
        "allocated": totals.bytes,
        "allocations": totals.count,
        "leaked": totals.leaked,
    }
    for metric in HEAP.metrics:
        if metric.name == "leaked" and profile.process.detached:
            continue  # not known while the process goes on
        value = values[metric.name]
        run.append(
            Measurement(
                name=HEAP.name,
                metric=metric.name,
                unit=metric.unit,
                better=metric.better,
                subject=Subject(host=run.info.hosts[0], rank=rank),
                params=params,
                summary=Summary(n=1, median=value, min=value, max=value),
            )
        )


def _show(run: Run, profiles: list[HeapProfile], show_all: bool, to_stdout: bool) -> None:
    """Prints to standard error where standard output belongs to the recorded program."""
    out = console(stderr=not to_stdout)
    ranks = mpi_ranks(profiles)
    if ranks:
        show_profile(out, merge_ranks(ranks))
        show_ranks(out, ranks)
    for profile in profiles if show_all else profiles[: 0 if ranks else 1]:
        show_profile(out, profile)
    show_findings(out, heap_advice(_merged_or_largest(profiles), run.info.hosts[0]))
    others = 0 if show_all else len(profiles) - (len(ranks) or 1)
    more = f"; {others} more processes: assay heap {run.path} --all" if others > 0 else ""
    out.print(f"profile: {run.path / REPORT_NAME}{more}", soft_wrap=True)


def _export(profile: HeapProfile, kind: str, metric: str) -> None:
    if kind == "pprof":
        sys.stdout.buffer.write(pprof(profile))
    elif kind == "callgrind":
        sys.stdout.write(callgrind(profile))
    else:
        sys.stdout.write(collapsed(profile, metric) if kind == "collapsed" else speedscope(profile, METRICS))
