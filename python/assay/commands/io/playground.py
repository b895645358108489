"""``assay io playground``: all storage benchmarks on a virtual cluster, by one command."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator

from assay.commands.io.bench import measure
from assay.commands.io.originals import ORIGINALS
from assay.commands.options import add_option, add_output
from assay.commands.parser import Example
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.commands.sub_verbs import Verbs
from assay.errors import UserError
from assay.lab import Lab, take_down
from assay.launch.accelerator import library
from assay.launch.engines import describe, storage_bench
from assay.launch.launchers import Launcher, find_launcher
from assay.launch.placement import lab_site
from assay.measure.session import Session
from assay.measure.storage import StorageRequest, compare, waive, waived_reason
from assay.records.schema import Scalar
from assay.records.storage import ACCELERATED, HDF5, IOR, SOLVER, STOCK

MPIS = ("openmpi", "mpich-wheel")  # MPIs that use the network between lab hosts
IOR_PARAMS: dict[str, Scalar] = {
    "transfer": "32768,1048576",
    "block": 8 << 20,
    **dict.fromkeys(("write", "read", "reorder", "read_own", "check_write", "fsync"), True),
}
DESCRIPTION = """Makes a virtual cluster (see 'assay lab --help'; needs root), runs the three benchmarks across its
hosts, stock and accelerated, and removes it again. Its parallel file system is a folder of this machine that all hosts
share, so stock figures are those of its page cache."""
EXAMPLES = [
    Example("assay io playground", "four hosts, both MPIs, three benchmarks: five minutes", "root"),
    Example("assay io playground --mpi openmpi --nodes 8", needs="root"),
    Example("assay io playground --repeats 1 -o out", needs="root"),
]


def prepare_playground(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "playground",
        help="run the three benchmarks on a virtual cluster",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_option(parser, "--nodes", "default: 4", default=4)
    add_option(parser, "--mpi", "default: openmpi and mpich-wheel")
    add_option(parser, "--repeats", "turns of each variant; default: 2", default=2)
    add_output(parser)
    parser.set_defaults(sub_verb=run_playground)


def run_playground(args: argparse.Namespace) -> int:
    if args.mpi not in (None, *MPIS):
        raise UserError(
            f"--mpi {args.mpi}: it does not use the network between lab hosts",
            f"choose one of {', '.join(MPIS)}",
        )
    launchers = _launchers([args.mpi] if args.mpi else MPIS)
    specs = specifications(args, "io")
    session = open_session("io-playground", args)
    with session.interruptible(), _lab(args.nodes) as lab:
        _run_all(session, launchers, lab, args.repeats)
    for measurement in (IOR, SOLVER, HDF5):
        compare(session, measurement)
    return session.conclude(specs)


def _run_all(session: Session, launchers: list[Launcher], lab: Lab, rounds: int) -> None:
    run = session.run
    run.info.hosts = list(lab.hosts)
    run.info.options = {"mpi": [launcher.name for launcher in launchers], "rounds": rounds}
    run.save()
    session.err.print(f"{len(lab.hosts)} hosts are up; {' and '.join(x.name for x in launchers)}")
    for launcher in launchers:
        for measurement, params in (
            (IOR, IOR_PARAMS),
            (SOLVER, ORIGINALS["reaction-diffusion"][0](["-L", "512", "-s", "40", "-i", "4"]).params),
            (HDF5, ORIGINALS["hdf5"][0](["DIM_1=64K", "TIMESTEPS=3"]).params),
        ):
            _run_benchmark(session, launcher, lab, measurement, dict(params), rounds)


def _run_benchmark(
    session: Session, launcher: Launcher, lab: Lab, measurement: str, params: dict[str, Scalar], rounds: int
) -> None:
    if session.interrupted:
        return
    if reason := waived_reason(launcher.flavour, measurement):
        waive(session, launcher, describe(storage_bench(launcher.flavour)).find(measurement), reason)
        return
    hosts = list(lab.hosts)
    request = StorageRequest(
        measurement=measurement,
        launcher=launcher,
        site=lab_site(lab),
        hosts=hosts,
        params=params,
        variants=_variants(launcher),
        nodes=[n for n in (1, 2, 4, 8, 16) if n < len(hosts)] + [len(hosts)] if measurement == IOR else (),
        rounds=rounds,
        timeout=60.0,
    )
    session.err.print(f"{measurement} under {launcher.name}")
    measure(session, request, session.run.path)
    session.continue_after_failure()


def _launchers(names: list[str] | tuple[str, ...]) -> list[Launcher]:
    """The launchers that work here. Raises UserError if none does."""
    launchers, reasons = [], []
    for name in names:
        try:
            launchers.append(find_launcher(name))
        except UserError as error:
            reasons.append(error.what)
    if not launchers:
        raise UserError("; ".join(reasons), "see 'assay doctor'")
    return launchers


def _variants(launcher: Launcher) -> list[str]:
    try:
        library(launcher.flavour)
    except UserError:
        return [STOCK]
    return [STOCK, ACCELERATED]


@contextlib.contextmanager
def _lab(hosts: int) -> Iterator[Lab]:
    """A lab whose name holds this process's id, so that it differs from the user's labs. It is always removed."""
    name = f"playground-{os.getpid()}"
    try:
        yield Lab.up(hosts, name=name)
    finally:
        take_down(name)
