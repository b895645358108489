"""``assay heap``: the memory of a program, every allocation of it."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import sys
from pathlib import Path

from msgspec.structs import asdict

from assay.commands.options import open_run, quantity
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
from assay.profile.heap import METRICS, HeapProfile, by_function, load_profiles
from assay.profile.ranks import added_up, ranks_of
from assay.records.run import Run, as_text
from assay.records.schema import Measurement, Scalar, Subject, Summary
from assay.records.units import format_quantity
from assay.report.heap import show_comparison, show_profile, show_ranks
from assay.report.html import REPORT_NAME, build_report
from assay.report.terminal import console, show_findings

PYTHON = re.compile(r"python[0-9.]*$")
ARENA = 1 << 20  # bytes, of Python's (Include/internal/pycore_obmalloc.h)
EXPORTS = ("collapsed", "speedscope", "pprof", "callgrind")


class Heap:
    """Memory profile of a program: every allocation and every free with its stack, its thread and its time. The
    program's own output and exit status are unchanged; the profile goes to standard error and into the run. Given
    a run instead of a program, it shows that one; given two after "compare", what has changed between them."""

    name = "heap"
    examples = """
  assay heap -- ./solver --steps 10
  assay heap -o before -- python3 job.py
  assay heap -- mpirun -n 4 ./solver            every rank, and those that are not like the others
  assay heap --at-least 4KiB -- ./server        blocks from this size on
  assay heap --attach 4711 --for 30s            a process that runs already; it goes on
  assay heap before                             shows it again
  assay heap compare before after --metric count
  assay heap import heaptrack.solver.4711.zst   a file of heaptrack's, shown in the same way
  assay heap before --export speedscope > before.speedscope.json
  assay heap before --export pprof > before.pb.gz && go tool pprof -top before.pb.gz
  assay heap before --export collapsed --metric leaked | flamegraph.pl > leaks.svg
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = (
            "%(prog)s [options] -- PROGRAM [ARGUMENT ...]  |  %(prog)s [options] --attach PID  |  "
            "%(prog)s RUN [options]  |  "
            "%(prog)s compare RUN RUN [options]  |  %(prog)s import FILE"
        )
        parser.add_argument(
            "program", nargs="*", metavar="PROGRAM", help="what to run, after --; or a run to show"
        )
        parser.add_argument(
            "--output", "-o", metavar="DIR", help="the run's directory (default: runs/DATE-...)"
        )
        parser.add_argument("--all", action="store_true", help="every process, not the largest alone")
        running = parser.add_argument_group("a process that runs already")
        running.add_argument(
            "--attach",
            type=int,
            metavar="PID",
            help="record it until its end, or Ctrl-C: then it goes on unharmed",
        )
        running.add_argument(
            "--for",
            type=quantity("s"),
            default=0.0,
            metavar="TIME",
            dest="duration",
            help="no longer than that",
        )
        recording = parser.add_argument_group("what to record")
        recording.add_argument(
            "--at-least", type=quantity("B"), default=0, metavar="SIZE", help="blocks of this size and more"
        )
        recording.add_argument(
            "--sample",
            type=quantity("B"),
            default=0,
            metavar="SIZE",
            help="about one block for each so many bytes; figures are then estimates",
        )
        recording.add_argument(
            "--ranks", type=_ranks, default=[], metavar="0,3", help="only these of an MPI program"
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
            type=quantity("B"),
            default=0,
            metavar="SIZE",
            help="write a profile when a process has so much in memory; also on SIGUSR1",
        )
        shown = parser.add_argument_group("what to show")
        shown.add_argument("--json", action="store_true", help="the profile as JSON, on standard output")
        shown.add_argument(
            "--export", choices=EXPORTS, help="the largest process, for other tools, on standard output"
        )
        shown.add_argument(
            "--metric", choices=list(METRICS), default="bytes", help="of compare, and of --export collapsed"
        )

    def run(self, args: argparse.Namespace) -> int:
        if min(args.at_least, args.sample, args.dump_at, args.duration) < 0:
            raise UserError("a size or a time is never negative", "see 'assay heap --help'")
        if args.attach is not None:
            return _attach(args)
        if args.duration:
            raise UserError("--for goes with --attach", "a program that Assay starts is recorded to its end")
        if not args.program:
            raise UserError("no program given", "write it after --: assay heap -- ./program")
        if args.program[0] == "import" and len(args.program) == 2:
            return _import(Path(args.program[1]), args)
        runs = _runs_named(args.program)
        if len(runs) == 2:
            return _compare(runs[0], runs[1], args)
        if runs:
            return _show_again(runs[0], args)
        return _record_program(args)


def _ranks(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of ranks: 0,3") from None


def _runs_named(words: list[str]) -> list[Run]:
    """RUN, or compare RUN RUN; nothing where it is a program."""
    names = words[1:] if len(words) == 3 and words[0] == "compare" else words
    if len(names) != (2 if names is not words else 1) or not all(
        (Path(name) / "run.json").is_file() for name in names
    ):
        if words[0] == "compare" and shutil.which("compare") is None:
            raise UserError(
                "two runs of 'assay heap' are compared: " + " ".join(words), "assay heap compare RUN RUN"
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
            "--export and --json are of a run, not of a program's own run",
            "record it with -o RUN first, then: assay heap RUN --export ...",
        )
    check_program(args.program[0])
    run = _open(args, {"program": [as_text(word) for word in args.program]})
    status = record_program(run.path / "heap", args.program, _wanted(args))
    if not traces(run.path / "heap"):
        run.finish("partial", "nothing was recorded")
        raise UserError(
            f"nothing was recorded of {args.program[0]}",
            "is it statically linked, or does it run as another user?",
        )
    profiles = _conclude(run, args, out=False)
    if "PYTHONMALLOC" not in os.environ:
        _show_arenas(args.program[0], profiles)
    return status


def _wanted(args: argparse.Namespace) -> Recording:
    return Recording(
        at_least=int(args.at_least),
        sample=int(args.sample),
        ranks=args.ranks,
        python=not args.no_python,
        faults=not args.no_faults,
        dump_at=int(args.dump_at),
    )


def _open(args: argparse.Namespace, options: dict[str, Scalar | list[str] | None]) -> Run:
    run = open_run("heap", args)
    run.info.hosts = [socket.gethostname()]
    run.info.options = options
    run.save()
    return run


def _attach(args: argparse.Namespace) -> int:
    pid: int = args.attach
    if args.program or args.ranks or args.export or args.json:
        raise UserError("--attach takes no program, --ranks, --export or --json", "see 'assay heap --help'")
    run = _open(args, {"attach": pid})
    said = console(stderr=True)
    until = f"for {format_quantity(args.duration, 's')}, or until Ctrl-C" if args.duration else "until Ctrl-C"
    try:
        left = record_running(
            run.path / "heap",
            pid,
            args.duration,
            _wanted(args),
            lambda: said.print(f"attached to {pid} {until}"),
        )
    except UserError:
        run.discard()
        raise
    if left.problem:
        said.print(left.problem, soft_wrap=True)
    said.print(f"left {pid}: it goes on" if left.goes_on else f"{pid} has ended, or runs another program now")
    if not traces(run.path / "heap"):
        run.finish("partial", "nothing was recorded")
        raise UserError(f"nothing was recorded of process {pid}")
    _conclude(run, args, out=True)
    return EXIT_PASS


def _show_arenas(program: str, profiles: list[HeapProfile]) -> None:
    """What Python keeps from the profile."""
    found = [one for one in profiles if one.has_python]
    if not found and not PYTHON.match(Path(program).name):
        return
    mapped = max((one.totals.mapped_bytes for one in found), default=0)
    size = f", {format_quantity(mapped, 'B')}" if mapped >= ARENA else ""
    note = f"small objects of Python's lie in arenas of its own{size}: PYTHONMALLOC=malloc shows each of them"
    console(stderr=True).print(note, soft_wrap=True)


def _import(file: Path, args: argparse.Namespace) -> int:
    if not file.is_file():
        raise UserError(f"cannot read {file}: there is no such file")
    run = _open(args, {"import": str(file)})
    try:
        import_file(run.path / "heap", file)
    except UserError:
        run.finish("failed", f"{file} could not be read")
        raise
    _conclude(run, args, out=True)
    return EXIT_PASS


def _conclude(run: Run, args: argparse.Namespace, out: bool) -> list[HeapProfile]:
    """Records, advice and report of what has been analysed; returns the profiles that they are of."""
    profiles = _profiles(run)
    for trace in traces(run.path / "heap"):
        pack_trace(trace)
    for profile in profiles:
        _record(run, profile)
    for finding in heap_advice(_whole(profiles), run.info.hosts[0]):
        run.append(finding)
    run.info.completed = [HEAP.name]
    run.finish("complete", "")
    build_report(run.path)
    _show(run, profiles, args.all, out=out)
    return profiles


def _show_again(run: Run, args: argparse.Namespace) -> int:
    profiles = _profiles(run)
    if args.export:
        _export(_whole(profiles), args.export, args.metric)
    elif args.json:
        print(json.dumps([_in_short(one) for one in profiles], indent=1))
    else:
        _show(run, profiles, args.all, out=True)
        build_report(run.path)
    return EXIT_PASS


def _compare(before: Run, after: Run, args: argparse.Namespace) -> int:
    old, new = _whole(_profiles(before)), _whole(_profiles(after))
    found = changes(old, new, args.metric)
    if args.json:
        rows = [
            {
                "function": one.place.function,
                "file": one.place.file,
                "before": one.before,
                "after": one.after,
            }
            for one in found
        ]
        print(json.dumps({"metric": args.metric, "totals": [asdict(old.totals), asdict(new.totals)], "functions": rows},
                         indent=1))  # fmt: skip
    else:
        show_comparison(console(stderr=False), old, new, args.metric, found)
    return EXIT_PASS


def _profiles(run: Run) -> list[HeapProfile]:
    """Of every process, the one that allocated most first."""
    for trace in traces(run.path / "heap"):
        analyse_trace(trace)
    return load_profiles(run.path)


def _whole(profiles: list[HeapProfile]) -> HeapProfile:
    """All ranks of an MPI program added up; else the largest process."""
    ranks = ranks_of(profiles)
    return added_up(ranks) if ranks else profiles[0]


def _in_short(profile: HeapProfile) -> dict[str, object]:
    """Totals and functions; all there is stands in the run's heap folder."""
    return {
        "process": asdict(profile.process),
        "totals": asdict(profile.totals),
        "functions": {
            metric: [
                {"function": one.place.function, "at": one.place.source, "own": one.own, "total": one.total}
                for one in profile.by(metric, by_function)
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
        if metric.name == "leaked" and profile.process.left:
            continue  # that is not known yet
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


def _show(run: Run, profiles: list[HeapProfile], every: bool, out: bool) -> None:
    """On standard output when the profile was asked for; beside a program's own output, on standard error."""
    shown = console(stderr=not out)
    ranks = ranks_of(profiles)
    if ranks:
        show_profile(shown, added_up(ranks))
        show_ranks(shown, ranks)
    for profile in profiles if every else profiles[: 0 if ranks else 1]:
        show_profile(shown, profile)
    show_findings(shown, heap_advice(_whole(profiles), run.info.hosts[0]))
    others = 0 if every else len(profiles) - (len(ranks) or 1)
    more = f"; {others} more processes: assay heap {run.path} --all" if others > 0 else ""
    shown.print(f"profile: {run.path / REPORT_NAME}{more}", soft_wrap=True)


def _export(profile: HeapProfile, kind: str, metric: str) -> None:
    if kind == "pprof":
        sys.stdout.buffer.write(pprof(profile))
    elif kind == "callgrind":
        sys.stdout.write(callgrind(profile))
    else:
        sys.stdout.write(collapsed(profile, metric) if kind == "collapsed" else speedscope(profile, METRICS))
