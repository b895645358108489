"""``assay io run``: runs an MPI program with its MPI-IO in node-local memory."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from assay.commands.io.recover import kept_line
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.errors import EXIT_UNUSABLE, UserError
from assay.launch.accelerator import environment
from assay.launch.engines import flavours
from assay.launch.preload import mpi_of, with_environment
from assay.launch.stores import DEFAULT_STORE, StoreContents, find_stores, read_store, recover_store
from assay.records.units import format_quantity

if TYPE_CHECKING:
    from assay.commands.io import Verbs

EXAMPLES = [
    Example("assay io run -- mpirun -n 64 ./app", needs="a program"),
    Example("assay io run --store /local/nvme --store-size 64GiB -- srun ./app", needs="a program"),
    Example(
        "assay io run --until memory -- mpirun -n 64 ./app",
        "close does not wait for the file system",
        "a program",
    ),
]
NOTES = """\
when ranks see each other's writes (--consistency):
  immediate    at once, as on a local file system
  collective   at collective calls, sync, close and open
  commit       only at sync, close and open: what MPI guarantees
"""


class RunProgram:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "run",
            help="run an MPI program with its parallel I/O in node-local memory",
            description="Runs an unmodified MPI program. What it writes through MPI-IO goes into its node's memory, "
            "is read from there by all ranks, and is in the file system when the file is closed. The "
            "program's output and exit status are unchanged.",
            usage="%(prog)s [options] -- mpirun ... PROGRAM [ARGUMENT ...]",
            notes=NOTES,
            examples=EXAMPLES,
        )
        parser.add_argument("program", nargs="*", metavar="PROGRAM", help="the command line, after --")
        add_option(parser, "--store", f"default: {DEFAULT_STORE}")
        add_option(parser, "--store-size", "default: a share of the memory")
        parser.add_argument(
            "--files", action="append", default=[], metavar="GLOB",
            help="accelerate only these files; !GLOB excludes; may be repeated (default: all)",
        )  # fmt: skip
        add_option(parser, "--consistency")
        add_option(parser, "--until")
        parser.add_argument(
            "--keep",
            metavar="NAME",
            help="keep the stores under this name: the next job with --keep NAME reads from them what this one wrote",
        )
        parser.add_argument("--require", action="store_true", help="fail if acceleration is not possible")
        add_option(parser, "--mpi", "the program's; default: the launcher's")
        parser.set_defaults(io_verb=run_program)


def run_program(args: argparse.Namespace) -> int:
    if not args.program:
        raise UserError("no program given", "write it after --: assay io run -- mpirun -n 4 ./app")
    mpi = args.mpi or mpi_of(args.program)
    if mpi is None:
        built = ", ".join(sorted(name for name in flavours() if name))
        raise UserError(f"cannot tell which MPI {args.program[0]} uses", f"give --mpi: {built}")
    job = secrets.token_hex(6)
    env = environment(mpi, args.files, args.store, args.store_size, args.consistency, until=args.until)
    env["ASSAY_IO_JOB"] = job
    if args.keep:
        env["ASSAY_IO_KEEP"] = args.keep
    if args.require:
        env["ASSAY_IO_REQUIRE"] = "1"
    command, extra_env = with_environment(args.program, env)
    status = _run_command(command, extra_env)
    complete = _recover_job(job, args, has_failed=status != 0)
    return status if complete or status else EXIT_UNUSABLE


def _run_command(command: list[str], extra_env: dict[str, str]) -> int:
    """Runs a command and returns its exit status. Ctrl-C reaches the command directly; SIGTERM is passed on."""
    try:
        process = subprocess.Popen(command, env={**os.environ, **extra_env})
    except OSError as error:
        raise UserError(
            f"cannot run {command[0]}: {error.strerror}", "check that it is on PATH and executable"
        ) from None
    handlers = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number)),
    }
    try:
        status = process.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status


def _recover_job(job: str, args: argparse.Namespace, has_failed: bool) -> bool:
    """Writes data that the job has left in stores of this machine into the file system. If a background drain goes on,
    it is reported where the program has failed; otherwise the program has reported it. Returns False if data could not
    be written."""
    complete = True
    for store in find_stores([args.store or DEFAULT_STORE]):
        try:
            contents = read_store(store)
        except UserError:
            continue
        if contents.job != job or contents.state == "kept":
            continue
        if contents.state == "left":
            complete &= _recover_left_store(store)
        elif has_failed:
            _report_pending_drain(contents)
    return complete


def _report_pending_drain(contents: StoreContents) -> None:
    """Prints how many bytes a background drain has still to write."""
    failed = f"; {contents.files[0].path}: {contents.files[0].error}" if contents.files else ""
    print(
        f"assay io: {contents.store}: {format_quantity(contents.bytes, 'B')} go to the file system in the "
        f"background{failed}; 'assay io drain {contents.store}' waits for them",
        file=sys.stderr,
    )


def _recover_left_store(store: str) -> bool:
    recovered = recover_store(store)
    print(
        f"assay io: the program left data in {store}: {format_quantity(recovered.written, 'B')} of "
        f"{len(recovered.files)} files were written to the file system",
        file=sys.stderr,
    )
    if not recovered.is_complete:
        print(f"assay io: {kept_line(recovered)}", file=sys.stderr)
    return recovered.is_complete
