"""``assay io run``: runs an MPI program with its MPI-IO in node-local memory."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import sys
import time
from pathlib import Path

from assay.commands.io.recover import kept_line
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_UNUSABLE, UserError, after_program
from assay.launch.accelerator import environment
from assay.launch.engines import flavours
from assay.launch.preload import PRELOAD, Obstacle, join_libraries, mpi_of, obstacle_in, with_environment
from assay.launch.stores import (
    DEFAULT_STORE,
    DRAIN_POLL_S,
    StoreContents,
    UnreadableStore,
    drop_store,
    find_stores,
    list_store,
    recover_store,
)
from assay.measure.recorded_program import run_to_end
from assay.measure.startable import require_program
from assay.records.text import name_text
from assay.records.units import format_quantity

EXAMPLES = [
    Example("assay io run -- mpirun -n 64 ./app", needs="a program"),
    Example("assay io run --store /local/nvme --store-size 64GiB -- srun ./app", needs="a program"),
    Example(
        "assay io run --until memory -- mpirun -n 64 ./app",
        "close does not wait for the file system",
        "a program",
    ),
]
END_LIMIT_S = 10.0  # how long the processes of a job that has failed may take to end
NOTES = """\
when ranks see each other's writes (--consistency):
  immediate    at once, as on a local file system
  collective   at collective calls, sync, close and open
  commit       only at sync, close and open: what MPI guarantees
"""


def prepare_run(verbs: Verbs) -> None:
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
    parser.set_defaults(sub_verb=run_program)


def run_program(args: argparse.Namespace) -> int:
    if not args.program:
        raise UserError("no program given", "write it after --: assay io run -- mpirun -n 4 ./app")
    require_program(args.program[0])
    if obstacle := obstacle_in(args.program):
        return _run_without_accelerator(args, obstacle)
    mpi = args.mpi or mpi_of(args.program)
    if mpi is None:
        built = ", ".join(sorted(name for name in flavours() if name))
        raise UserError(f"cannot tell which MPI {args.program[0]} uses", f"give --mpi: {built}")
    job = secrets.token_hex(6)
    env = environment(mpi, args.files, args.store, args.store_size, args.consistency, until=args.until)
    env[PRELOAD] = join_libraries(env[PRELOAD], os.environ.get(PRELOAD, ""))
    env["ASSAY_IO_JOB"] = job
    if args.keep:
        env["ASSAY_IO_KEEP"] = args.keep
    if args.require:
        env["ASSAY_IO_REQUIRE"] = "1"
    command, extra_env = with_environment(args.program, env)
    status = _run_command(command, extra_env)
    with after_program(status):
        complete = _conclude_job(job, args, has_failed=status != 0)
    return status if complete or status else EXIT_UNUSABLE


def _run_without_accelerator(args: argparse.Namespace, obstacle: Obstacle) -> int:
    problem = f"{name_text(obstacle.program)} {obstacle.reason}"
    if args.require:
        raise UserError(problem, "leave out --require: it runs with the MPI's own I/O")
    print(f"assay io: {problem}; it runs without the accelerator", file=sys.stderr)
    return _run_command(args.program, {})


def _run_command(command: list[str], extra_env: dict[str, str]) -> int:
    """Runs a command and returns its exit status."""
    try:
        return run_to_end(command, {**os.environ, **extra_env})
    except OSError as error:
        raise UserError(
            f"cannot run {command[0]}: {error.strerror}", "check that it is on PATH and executable"
        ) from None


def _conclude_job(job: str, args: argparse.Namespace, has_failed: bool) -> bool:
    """Leaves no store of the job on this machine that the file system does not need: writes what they hold, removes
    those that hold nothing, and reports the rest. What background drains go on with is reported where the program has
    failed; otherwise the program has reported it. Returns False if data could not be written."""
    complete = True
    folder = args.store or os.environ.get("ASSAY_IO_STORE") or DEFAULT_STORE
    for store in find_stores([folder]):
        listed = _wait_for_end(store, job) if has_failed else _listed(store)
        if isinstance(listed, UnreadableStore):
            _drop_incomplete(store, job)
        elif listed is None or listed.job != job or listed.state == "kept":
            continue
        elif listed.in_use:
            if has_failed:
                _report_in_use(listed)
        elif listed.is_empty:
            with contextlib.suppress(UserError):  # it was removed, or recovered by another command
                drop_store(store)
        else:
            complete &= _recover_left_store(store)
    return complete


def _listed(store: str) -> StoreContents | UnreadableStore | None:
    try:
        return list_store(store)
    except UserError:  # it is damaged, or was removed
        return None


def _wait_for_end(store: str, job: str) -> StoreContents | UnreadableStore | None:
    """The contents of a store once no process of the job has it open. The launcher may end before the ranks that it
    has killed, and a drain that has written everything removes the store."""
    deadline = time.monotonic() + END_LIMIT_S
    while True:
        listed = _listed(store)
        ends = isinstance(listed, StoreContents) and listed.job == job and (
            listed.state == "running" or (listed.state == "draining" and listed.is_empty)
        )  # fmt: skip
        if not ends or time.monotonic() > deadline:
            return listed
        time.sleep(DRAIN_POLL_S)


def _drop_incomplete(store: str, job: str) -> None:
    """Removes a store that the job was creating when it ended. It has no data."""
    if not Path(store).name.startswith(f"assay-io-{job}-"):
        return
    deadline = time.monotonic() + END_LIMIT_S
    while os.path.lexists(store):
        try:
            drop_store(store)
        except UserError as error:
            if time.monotonic() > deadline:
                print(f"assay io: {name_text(error.what)}", file=sys.stderr)
                return
            time.sleep(DRAIN_POLL_S)  # the process that creates it is about to end


def _report_in_use(contents: StoreContents) -> None:
    """Prints which store the job has left, how much of it the file system lacks, and what completes it."""
    store = name_text(contents.store)
    size = format_quantity(contents.bytes, "B")
    failed = f"; {name_text(contents.files[0].path)}: {contents.files[0].error}" if contents.files else ""
    if contents.state == "draining":
        rest = f"{size} go to the file system" if contents.bytes else "the last fsync is done"
        text = f"{rest} in the background{failed}; 'assay io drain {store}' waits for that"
    else:
        text = (
            f"a process of the program still uses it; {size} are not in the file system yet{failed}; "
            f"fix: 'assay io recover {store}' when it has ended"
        )
    print(f"assay io: {store}: {text}", file=sys.stderr)


def _recover_left_store(store: str) -> bool:
    recovered = recover_store(store)
    print(
        f"assay io: the program left data in {name_text(store)}: {format_quantity(recovered.written, 'B')} of "
        f"{len(recovered.files)} files were written to the file system",
        file=sys.stderr,
    )
    if not recovered.is_complete:
        print(f"assay io: {kept_line(recovered)}", file=sys.stderr)
    return recovered.is_complete
