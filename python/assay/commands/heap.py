"""``assay heap``: the memory of a program, every allocation of it."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

from assay.commands.options import open_run
from assay.errors import EXIT_PASS, UserError
from assay.explain.heap import heap_advice
from assay.measure.heap import analyse_trace, check_program, pack_trace, record_program, traces
from assay.profile.export import collapsed, speedscope
from assay.profile.heap import METRICS, HeapProfile, load_profiles
from assay.records.run import Run
from assay.records.schema import Measurement, Scalar, Subject, Summary
from assay.report.heap import show_profile
from assay.report.html import REPORT_NAME, build_report
from assay.report.terminal import console, show_findings

NAME = "profile.heap"
EXPORTS = ("collapsed", "speedscope")


class Heap:
    """Memory profile of a program: every allocation and every free with its stack, its thread and its time. The
    program's own output and exit status are unchanged; the profile goes to standard error and into the run. Given
    a run instead of a program, it shows that one."""

    name = "heap"
    examples = """
  assay heap -- ./solver --steps 10
  assay heap -o before -- python3 job.py
  assay heap before                             shows it again
  assay heap before --export speedscope > before.speedscope.json
  assay heap before --export collapsed --metric leaked | flamegraph.pl > leaks.svg
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "%(prog)s [options] -- PROGRAM [ARGUMENT ...]  |  %(prog)s RUN [options]"
        parser.add_argument(
            "program", nargs="*", metavar="PROGRAM", help="what to run, after --; or a run to show"
        )
        parser.add_argument(
            "--output", "-o", metavar="DIR", help="the run's directory (default: runs/DATE-...)"
        )
        parser.add_argument("--all", action="store_true", help="every process, not the largest alone")
        parser.add_argument(
            "--export", choices=EXPORTS, help="the largest process, for other tools, on standard output"
        )
        parser.add_argument("--metric", choices=list(METRICS), default="bytes", help="of --export collapsed")

    def run(self, args: argparse.Namespace) -> int:
        if not args.program:
            raise UserError("no program given", "write it after --: assay heap -- ./program")
        shown = _run_named(args.program)
        if shown is not None:
            profiles = _profiles(shown)
            if args.export:
                _export(profiles[0], args.export, args.metric)
            else:
                _show(shown, profiles if args.all else profiles[:1], out=True)
            return EXIT_PASS
        check_program(args.program[0])
        run = open_run("heap", args)
        run.info.hosts = [socket.gethostname()]
        run.info.options = {"program": args.program}
        run.save()
        status = record_program(run.path / "heap", args.program)
        if not traces(run.path / "heap"):
            run.finish("partial", "nothing was recorded")
            raise UserError(
                f"nothing was recorded of {args.program[0]}",
                "is it statically linked, or does it run as another user?",
            )
        profiles = _profiles(run)
        for trace in traces(run.path / "heap"):
            pack_trace(trace)
        for profile in profiles:
            _record(run, profile)
        for finding in heap_advice(profiles[0], run.info.hosts[0]):
            run.append(finding)
        run.info.completed = [NAME]
        run.finish("complete", "")
        build_report(run.path)
        _show(run, profiles if args.all else profiles[:1], out=False)
        return status


def _run_named(words: list[str]) -> Run | None:
    if len(words) != 1 or not (Path(words[0]) / "run.json").is_file():
        return None
    run = Run.load(Path(words[0]))
    if not traces(run.path / "heap"):
        raise UserError(f"{words[0]} holds no heap trace", "record one: assay heap -- PROGRAM")
    return run


def _profiles(run: Run) -> list[HeapProfile]:
    """Of every process, the one that allocated most first."""
    for trace in traces(run.path / "heap"):
        analyse_trace(trace)
    return load_profiles(run.path)


def _record(run: Run, profile: HeapProfile) -> None:
    totals = profile.totals
    params: dict[str, Scalar] = {"pid": profile.process.pid, "program": profile.process.program}
    for metric, value, unit in (
        ("peak", totals.peak, "B"),
        ("allocated", totals.bytes, "B"),
        ("allocations", totals.count, "1"),
        ("leaked", totals.leaked, "B"),
    ):
        run.append(
            Measurement(
                name=NAME,
                metric=metric,
                unit=unit,
                better="lower",
                subject=Subject(host=run.info.hosts[0]),
                params=params,
                summary=Summary(n=1, median=value, min=value, max=value),
            )
        )


def _show(run: Run, profiles: list[HeapProfile], out: bool) -> None:
    """On standard output when the profile was asked for; beside a program's own output, on standard error."""
    shown = console(stderr=not out)
    for profile in profiles:
        show_profile(shown, profile)
    show_findings(shown, heap_advice(profiles[0], run.info.hosts[0]))
    others = len(traces(run.path / "heap")) - len(profiles)
    more = f"; {others} more processes: assay heap {run.path} --all" if others > 0 else ""
    shown.print(f"profile: {run.path / REPORT_NAME}{more}", soft_wrap=True)


def _export(profile: HeapProfile, kind: str, metric: str) -> None:
    text = collapsed(profile, metric) if kind == "collapsed" else speedscope(profile, METRICS)
    sys.stdout.write(text)
