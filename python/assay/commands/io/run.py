"""``assay io run``: a user's MPI program with its MPI-IO in node-local memory."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import UserError
from assay.launch.accelerator import environment
from assay.launch.engines import flavours
from assay.launch.preload import mpi_of, with_environment
from assay.launch.stores import DEFAULT_STORE, found, held, rescue
from assay.records.units import format_quantity

if TYPE_CHECKING:
    from assay.commands.io import Verbs

EXAMPLES = [
    Example("assay io run -- mpirun -n 64 ./app", needs="a program"),
    Example("assay io run --store /local/nvme --store-size 64GiB -- srun ./app", needs="a program"),
    Example(
        "assay io run --detach -- mpirun -n 64 ./app",
        "close does not wait; 'assay io drain' later",
        "a program",
    ),
]
NOTES = """\
what ranks see of each other's writes (--consistency):
  immediate    at once, as on a local file system
  collective   at collective calls, sync, close and open
  commit       at sync, close and open alone: what MPI promises, and no more
"""


class RunProgram:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "run",
            help="an unmodified MPI program with its parallel I/O in node-local memory",
            description="Runs an unmodified MPI program. What it writes through MPI-IO goes into memory of its node, "
            "is read from there by all ranks, and is complete in the file system when the file is closed. Its "
            "output and exit status stay as they are.",
            usage="%(prog)s [options] -- mpirun ... PROGRAM [ARGUMENT ...]",
            notes=NOTES,
            examples=EXAMPLES,
        )
        parser.add_argument("program", nargs="*", metavar="PROGRAM", help="the command line, after --")
        add(parser, "--store", f"default: {DEFAULT_STORE}")
        add(parser, "--store-size", "default: a share of the memory")
        parser.add_argument(
            "--files", action="append", default=[], metavar="GLOB",
            help="only these files; with ! in front: not these; again for more (default: all)",
        )  # fmt: skip
        add(parser, "--consistency")
        parser.add_argument(
            "--detach", action="store_true", help="neither close nor sync waits for the file system"
        )
        parser.add_argument(
            "--sync",
            choices=("stored", "visible"),
            help="what MPI_File_sync means: in the file system (default), or seen by other ranks",
        )
        parser.add_argument("--transport", choices=("auto", "service", "rma"), help="to other nodes' data")
        parser.add_argument("--require", action="store_true", help="without acceleration do not run at all")
        add(parser, "--mpi", "the program's; default: the launcher's")
        parser.set_defaults(io_verb=run_program)


def run_program(args: argparse.Namespace) -> int:
    if not args.program:
        raise UserError("no program given", "write it after --: assay io run -- mpirun -n 4 ./app")
    mpi = args.mpi or mpi_of(args.program)
    if mpi is None:
        built = ", ".join(sorted(name for name in flavours() if name))
        raise UserError(f"cannot tell the MPI of {args.program[0]}", f"name it: --mpi ({built})")
    job = secrets.token_hex(6)
    env = environment(mpi, args.files, args.store, args.store_size, args.consistency)
    env["ASSAY_IO_JOB"] = job
    chosen = {
        "ASSAY_IO_DETACH": "1" if args.detach else None,
        "ASSAY_IO_REQUIRE": "1" if args.require else None,
        "ASSAY_IO_SYNC": args.sync,
        "ASSAY_IO_TRANSPORT": args.transport,
    }
    env |= {name: value for name, value in chosen.items() if value}
    words, added = with_environment(args.program, env)
    status = _to_its_end(words, added)
    _look_after(job, args)
    return status


def _to_its_end(words: list[str], added: dict[str, str]) -> int:
    """Ctrl-C reaches the program itself, and SIGTERM is passed on; its output and exit status are its own."""
    try:
        process = subprocess.Popen(words, env={**os.environ, **added})
    except OSError as error:
        raise UserError(
            f"cannot run {words[0]}: {error.strerror}", "is it on PATH, and executable?"
        ) from None
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number)),
    }
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status


def _look_after(job: str, args: argparse.Namespace) -> None:
    """What a job that died has left on this machine goes where it belongs."""
    for store in found([args.store or DEFAULT_STORE]):
        try:
            left = held(store)
        except UserError:
            continue
        if left.job != job or left.in_use:
            continue
        if args.detach:
            print(
                f"assay io: {store} holds {format_quantity(left.bytes, 'B')}: assay io drain {store}",
                file=sys.stderr,
            )
            continue
        done = rescue(store)
        torn = f"; {done.torn} records were torn and are left out" if done.torn else ""
        print(
            f"assay io: the program ended early; {format_quantity(done.bytes, 'B')} of "
            f"{len(done.files)} files were brought from {store} to the file system{torn}",
            file=sys.stderr,
        )
