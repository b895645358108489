"""``assay numa -- PROGRAM``: runs a program and shows where its memory lies."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.commands.numa.runs import NUMA
from assay.commands.options import add_option, count, size
from assay.commands.parser import Parser
from assay.errors import UserError, after_program
from assay.measure.numa import (
    FOLDER,
    NumaRecording,
    check_samples,
    conclude,
    emulator,
    load_profiles,
    record_program,
)
from assay.measure.startable import require_program
from assay.numa.advice import advise, applicable, plan
from assay.numa.applied import save_applied
from assay.numa.profile import Profile
from assay.records.run import as_text

PLAN = "plan"  # file in the run: the placement of each object, for the recorder of --apply
MAX_NODES = 64


def prepare_record(parser: Parser) -> None:
    add_option(parser, "-o --output")
    parser.add_argument(
        "--emulate",
        type=count,
        default=0,
        metavar="NODES",
        help="divide this machine's processors among this many emulated nodes; placement is then simulated",
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
    parser.add_argument(
        "--samples",
        action="store_true",
        help="sample loads and stores with the processor's PMU (Intel PEBS, AMD IBS), where it has one",
    )
    parser.advanced.add_argument(
        "--period", type=count, metavar="N", help="accesses per sample (of AMD: instructions)"
    )
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
    executable = require_program(program[0])
    if args.period and not args.samples:
        raise UserError("--period is of samples", "give --samples too")
    if args.samples:
        _check_samples_options(args)
    if args.every_access:
        _check_every_access_options(Path(executable), args)
        program = [executable, *program[1:]]
    if args.emulate > MAX_NODES:
        raise UserError(f"--emulate {args.emulate}: too many nodes", f"give at most {MAX_NODES}")
    before = _profile_to_apply(args)
    advice = applicable(advise(before)) if before else []
    text = plan(before, advice) if before else ""
    if before and not text:
        raise UserError(f"{args.apply} has no advice that can be applied", "see: assay numa show RUN")
    session = NUMA.new_session(args, {"program": [as_text(argument) for argument in program]})
    session.out = session.err  # standard output is the program's
    folder = session.run.path / FOLDER
    folder.mkdir(mode=0o700)  # a profile holds paths and names of the user's work
    plan_file = None
    if before:
        plan_file = folder / PLAN
        plan_file.write_text(text, errors="surrogateescape")
        save_applied(folder, before, advice)
    recording = NumaRecording(
        args.emulate,
        args.at_least,
        not args.pages_only,
        plan_file,
        args.every_access,
        args.samples,
        args.period or 0,
    )
    status = record_program(folder, program, recording)
    with after_program(status):
        if any(folder.glob("*.numa")):
            conclude(session)
        else:
            session.run.finish("partial", "nothing was recorded")
            reason = f"assay: nothing was recorded of {program[0]}; it ended with status {status}"
            session.err.print(reason, soft_wrap=True, markup=False, highlight=False)
    return status


def _profile_to_apply(args: argparse.Namespace) -> Profile | None:
    """The profile of --apply, whose advice is applied; None without --apply. Raises UserError."""
    if not args.apply:
        return None
    recordings = load_profiles(Path(args.apply) / FOLDER)
    if not recordings:
        raise UserError(f"{args.apply} holds no NUMA profile", "record one: assay numa -o RUN -- PROGRAM")
    emulated = recordings[0].recording.process.emulated
    if emulated != args.emulate:
        fix = f"give --emulate {emulated}" if emulated else "leave out --emulate"
        raise UserError(f"{args.apply} has {emulated or 'no'} emulated nodes", fix)
    return recordings[0]


def _check_samples_options(args: argparse.Namespace) -> None:
    """Checks --samples. Raises UserError if this machine cannot sample accesses."""
    for option, is_given in (("--every-access", args.every_access), ("--pages-only", args.pages_only)):
        if is_given:
            raise UserError(f"--samples with {option}", "give one of them")
    check_samples(args.period or 0)


def _check_every_access_options(program: Path, args: argparse.Namespace) -> None:
    """Checks --every-access. Raises UserError if QEMU's user mode cannot run the program."""
    if args.apply:
        raise UserError("--apply needs the preloaded part", "record without --every-access")
    emulator()
    with program.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            raise UserError(
                f"{program} is a script", "name its interpreter: --every-access -- python3 script.py"
            )
