"""``assay numa -- PROGRAM``: runs a program and shows where its memory lies."""

from __future__ import annotations

import argparse
import shutil
import socket
from pathlib import Path

from assay.commands.options import add, count, open_run, size
from assay.commands.parser import Parser
from assay.errors import UserError
from assay.measure.numa import (
    FOLDER,
    NUMA,
    NumaRecording,
    conclude_recordings,
    emulator,
    load_profiles,
    record_program,
    record_totals,
)
from assay.numa.advice import advise, findings, plan
from assay.numa.profile import Profile
from assay.records.run import Run, as_text
from assay.report.numa import show_numa, show_numa_comparison
from assay.report.terminal import console, show_findings

PLAN = "plan"


def prepare_record(parser: Parser) -> None:
    add(parser, "-o --output")
    parser.add_argument(
        "--emulate",
        type=count,
        default=0,
        metavar="NODES",
        help="make up so many nodes of this machine's processors; placement is then simulated",
    )
    parser.add_argument(
        "--apply",
        metavar="RUN",
        help="place the program's memory as that run's advice says, and compare",
    )
    parser.add_argument(
        "--every-access",
        action="store_true",
        help="count each load and store of the unmodified program, in QEMU's user mode (some 20 times slower)",
    )
    parser.add_argument("--all", action="store_true", help="show every process, not only the largest")
    parser.advanced.add_argument(
        "--blocks-from",
        type=size,
        default=4096,
        dest="at_least",
        metavar="SIZE",
        help="blocks of this size and more are objects (default: 4KiB)",
    )
    parser.advanced.add_argument(
        "--pages-only", action="store_true", help="do not watch page faults: look up pages only"
    )


def record(args: argparse.Namespace) -> int:
    program: list[str] = getattr(args, "program", None) or []
    if not program:
        raise UserError("no program given", "write it after --: assay numa -- ./program")
    found = shutil.which(program[0])
    if found is None:
        raise UserError(f"cannot run {program[0]}", "check that it is on PATH and executable")
    if args.every_access:
        _check_emulated(Path(found), args)
        program = [found, *program[1:]]
    if args.emulate > 64:
        raise UserError(f"--emulate {args.emulate}: too many nodes", "give at most 64")
    before = load_profiles(Path(args.apply) / FOLDER) if args.apply else []
    if args.apply and not before:
        raise UserError(f"{args.apply} holds no NUMA profile", "record one: assay numa -o RUN -- PROGRAM")
    if before and before[0].recording.process.emulated != args.emulate:
        raise UserError(
            f"{args.apply} has {before[0].recording.process.emulated or 'no'} emulated nodes",
            "give the same --emulate",
        )
    run = open_run("numa", args)
    run.info.hosts = [socket.gethostname()]
    run.info.options = {"program": [as_text(argument) for argument in program]}
    run.save()
    folder = run.path / FOLDER
    folder.mkdir(mode=0o700)
    chosen = None
    if before:
        chosen = folder / PLAN
        text = plan(before[0], advise(before[0]))
        if not text:
            run.discard()
            raise UserError(f"{args.apply} has no advice that can be applied", "see: assay numa show RUN")
        chosen.write_text(text, errors="surrogateescape")
    recording = NumaRecording(args.emulate, args.at_least, not args.pages_only, chosen, args.every_access)
    status = record_program(folder, program, recording)
    _conclude(run, args, before, status)
    return status


def _check_emulated(program: Path, args: argparse.Namespace) -> None:
    """Raises UserError where QEMU's user mode cannot count."""
    if args.apply:
        raise UserError("--apply needs the preloaded part", "record without --every-access")
    emulator()
    with program.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            raise UserError(
                f"{program} is a script", "name its interpreter: --every-access -- python3 script.py"
            )


def _conclude(run: Run, args: argparse.Namespace, before: list[Profile], status: int) -> None:
    """Reads the recordings, appends records and advice, and prints to standard error."""
    profiles = conclude_recordings(run.path / FOLDER)
    if not profiles:
        run.finish("partial", "nothing was recorded")
        raise UserError(f"nothing was recorded; the program ended with status {status}")
    for profile in profiles:
        record_totals(run, profile)
    advice = findings(profiles[0], run.info.hosts[0])
    for finding in advice:
        run.append(finding)
    run.info.completed = [NUMA.name]
    run.finish("complete", "")
    out = console(stderr=True)
    for profile in profiles if args.all else profiles[:1]:
        show_numa(out, profile)
    show_findings(out, advice)
    if before:
        show_numa_comparison(out, before[0], profiles[0])
    others = f"; {len(profiles) - 1} more processes: --all" if len(profiles) > 1 and not args.all else ""
    out.print(f"profile: {run.path}; show it again: assay numa show {run.path}{others}", soft_wrap=True)
