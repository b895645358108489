"""``assay io bench``: parallel I/O by the benchmarks that are known, with and without the accelerator."""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from assay.commands.io.originals import READERS, h5bench_file, ior_size
from assay.commands.options import add_lab, add_output, count, open_run, quantity, specifications
from assay.errors import UserError
from assay.lab import Lab
from assay.launch.accelerator import library
from assay.launch.engines import describe, storage_bench
from assay.launch.hosts import fold, host_list
from assay.launch.launchers import LAUNCHERS, Launcher, default_launcher, find_launcher
from assay.launch.placement import HERE, REMOTE, Site, lab_site
from assay.launch.reach import check_hosts
from assay.measure.session import Session
from assay.measure.storage import (
    SPEEDUP_DESCRIBED,
    Accelerator,
    StorageRequest,
    compare,
    measure_storage,
    scratch,
    waive,
    waived_here,
)
from assay.records.run import Run
from assay.records.schema import Scalar
from assay.records.storage import ACCELERATED, HDF5, IOR, SOLVER, STOCK
from assay.records.units import parse_size
from assay.report.h5bench import write_h5bench_csv
from assay.report.ior import write_ior_json
from assay.report.rdbench import write_rdbench_json

if TYPE_CHECKING:
    from assay.commands.io import Verbs

MEASUREMENTS = {"ior": IOR, "reaction-diffusion": SOLVER, "hdf5": HDF5}
SUMMARIES = {
    "ior": "Bandwidth of write, local and remote read, over transfer sizes and nodes, as IOR measures it",
    "reaction-diffusion": "A solver that computes, exchanges halos and writes snapshots, as RDBench does",
    "hdf5": "Datasets of time steps written and read through HDF5, in h5bench's patterns",
}
EXAMPLES = {
    "ior": """\
  assay io bench ior                                    4 KiB to 1 MiB; write, own and another rank's data
  assay io bench ior -n 2 -t 32k -b 192m -C -e          as IOR is asked
  assay io bench ior -n 4 -- -w -r -R -t 47008 -b 47008 -s 1000       ior-hard, every byte compared
  assay io bench ior --sizes 4k,32k,1m --nodes 1,2,4 -w "n[1-4]" --folder /scratch/me
""",
    "reaction-diffusion": """\
  assay io bench reaction-diffusion -n 4 -L 1024 -s 200 -i 20 --iotype view
  assay io bench reaction-diffusion --lab --mpi mpich-wheel
""",
    "hdf5": """\
  assay io bench hdf5 -n 2 DIM_1=1M TIMESTEPS=5 MEM_PATTERN=INTERLEAVED
  assay io bench hdf5 --config sample_write_cc1d_small.cfg
""",
}


class Bench:
    """The sub-verb, with one of its own for each benchmark."""

    def prepare(self, verbs: Verbs) -> None:
        parser: argparse.ArgumentParser = verbs.add_parser(
            "bench", help="benchmarks of parallel I/O, with and without the accelerator", allow_abbrev=False,
            description="Benchmarks of parallel I/O, stock and accelerated side by side in one run.",
        )  # fmt: skip
        benchmarks = parser.add_subparsers(
            title="benchmarks", dest="benchmark", metavar="BENCHMARK", required=True
        )
        for name, summary in SUMMARIES.items():
            one = benchmarks.add_parser(
                name,
                help=summary[0].lower() + summary[1:],
                description=f"{summary}.",
                epilog=f"{READERS[name][1]}\n\nexamples:\n{EXAMPLES[name].rstrip()}",
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            )
            _add_options(one, name)
            one.set_defaults(io_verb=run_bench, takes_others=True)


def _add_options(parser: argparse.ArgumentParser, name: str) -> None:
    who = parser.add_argument_group("who takes part")
    who.add_argument(
        "--mpi", metavar="MPI", help="openmpi, mpich or mpich-wheel (default: the first that works)"
    )
    who.add_argument("-n", "--ranks", type=count, metavar="N", help="ranks, shared out over the hosts")
    who.add_argument("-w", "--hosts", metavar="LIST", help="hosts, as ClusterShell reads them: n[1-4]")
    add_lab(who)
    who.add_argument(
        "--nodes", type=_counts, metavar="LIST", help="of so many hosts, one after the other: 1,2,4"
    )
    how = parser.add_argument_group("how it is measured")
    which = how.add_mutually_exclusive_group()
    which.add_argument(
        "--both", action="store_true", help="stock and accelerated in turns (default where built)"
    )
    which.add_argument("--stock", action="store_true", help="the MPI's own I/O alone")
    which.add_argument("--accelerated", action="store_true", help="the accelerator alone")
    how.add_argument("--rounds", type=count, metavar="N", help="turns of each (default: 3)")
    how.add_argument("--folder", type=Path, metavar="DIR", help="where the files are written: of a file system that "
                     "every host sees (default: the run's directory)")  # fmt: skip
    how.add_argument(
        "--timeout", type=quantity("s"), default=120.0, metavar="TIME", help="longest call (120s)"
    )
    if name == "ior":
        how.add_argument("--sizes", metavar="LIST", help="transfer sizes, one after the other: 4k,32k,1m")
        how.add_argument("--ior-json", type=Path, metavar="FILE", help="the results in IOR's own JSON too")
    if name == "reaction-diffusion":
        how.add_argument(
            "--rdbench-json", type=Path, metavar="FILE", help="the results in RDBench's JSON, a line a run"
        )
    if name == "hdf5":
        how.add_argument("--h5bench-csv", type=Path, metavar="FILE", help="the results in h5bench's CSV too")
        how.add_argument("--config", type=Path, metavar="FILE", help="settings of h5bench, KEY=VALUE a line")
    fast = parser.add_argument_group("the accelerator")
    fast.add_argument("--store", metavar="PATH", help="node-local memory: a folder, a file or /dev/dax*")
    fast.add_argument("--store-size", type=_size, metavar="SIZE", help="of it, on each node")
    fast.add_argument("--consistency", choices=["immediate", "collective", "commit"])
    add_output(parser)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _counts(text: str) -> list[int]:
    return sorted({count(part) for part in text.split(",")})


def run_bench(args: argparse.Namespace) -> int:
    request = build_request(args)
    wanted = specifications(args, "io")
    check_hosts(request.site, request.hosts)
    run = open_run(f"io-{args.benchmark}", args)
    run.info.hosts = request.hosts
    run.info.options = {"mpi": request.launcher.name, "variants": list(request.variants), **request.params}
    run.save()
    session = Session(run, verbose=args.verbose, quiet=args.json)
    session.err.print(_introduce(request))
    if request.variants == [STOCK] and not args.stock:
        waive(session, request.launcher, SPEEDUP_DESCRIBED, _missing(request.launcher.flavour))
    try:
        measure(session, request, args.folder or run.path)
    except KeyboardInterrupt:  # between two starts of the engine
        session.interrupt()
    compare(session, request.measurement)
    status = session.conclude(wanted)
    _write_originals(args, run)
    if args.json:
        session.print_json()
    return status


def _write_originals(args: argparse.Namespace, run: Run) -> None:
    """What the benchmark's original would have written, where it was asked for."""
    if getattr(args, "ior_json", None):
        write_ior_json(run, args.ior_json)
    if getattr(args, "rdbench_json", None):
        write_rdbench_json(run.records, args.rdbench_json)
    if getattr(args, "h5bench_csv", None):
        write_h5bench_csv(run.records, args.h5bench_csv)


def measure(session: Session, request: StorageRequest, folder: Path) -> None:
    """In a folder of its own, unless the benchmark's own options have named the file."""
    if "file" in request.params:
        request.files = f"{request.params['file']}*"
        measure_storage(session, request)
        return
    with scratch(folder.resolve()) as place:
        request.params["file"] = str(place / "file")
        request.files = f"{place}/*"
        measure_storage(session, request)


def _introduce(request: StorageRequest) -> str:
    ranks, hosts = len(request.hosts), list(dict.fromkeys(request.hosts))
    where = "on this machine" if request.site.name == "here" else f"on {fold(hosts)}"
    variants = " and ".join(request.variants)
    return f"{request.measurement}: {ranks} ranks {where} under {request.launcher.name}, {variants}"


def build_request(args: argparse.Namespace) -> StorageRequest:
    """Checks the options against each other; every refusal happens here, before anything is started."""
    measurement = MEASUREMENTS[args.benchmark]
    site, hosts = _place(args)
    launcher = _launcher(args, site)
    if reason := waived_here(launcher.flavour, measurement):
        raise UserError(
            f"{args.benchmark} cannot be measured with {launcher.name}: {reason}", "take another --mpi"
        )
    params = _params(args)
    describe(storage_bench(launcher.flavour)).find(measurement).check_bounds(params)
    distinct = len(dict.fromkeys(hosts))
    if args.nodes and args.nodes[-1] > distinct:
        raise UserError(
            f"--nodes {args.nodes[-1]}: there are {distinct} hosts", "name more hosts, or fewer nodes"
        )
    return StorageRequest(
        measurement=measurement,
        launcher=launcher,
        site=site,
        hosts=hosts,
        params=params,
        variants=_variants(args, launcher.flavour),
        nodes=args.nodes or (),
        rounds=args.rounds or 3,
        timeout=args.timeout,
        accelerator=Accelerator(args.store, args.store_size, args.consistency),
    )


def _params(args: argparse.Namespace) -> dict[str, Scalar]:
    words = [word for word in args.others if word != "--"]
    if getattr(args, "config", None):
        words = [*h5bench_file(args.config), *words]
    params = READERS[args.benchmark][0](words)
    if getattr(args, "sizes", None):
        if "-t" in words:
            raise UserError("--sizes and -t are both given", "give one of them")
        params["transfer"] = ",".join(str(ior_size(part)) for part in args.sizes.split(","))
    return params


def _place(args: argparse.Namespace) -> tuple[Site, list[str]]:
    """A host for each rank: as many on each host as share out evenly, node by node."""
    named = host_list(args.hosts, None, "--hosts")
    if args.lab is not None:
        lab = Lab.load(args.lab or None)
        site, hosts = lab_site(lab), named or list(lab.hosts)
    elif named:
        site, hosts = REMOTE, named
    else:
        ranks = args.ranks or max(2, len(os.sched_getaffinity(0)))
        return HERE, [socket.gethostname()] * ranks
    ranks = args.ranks or len(hosts)
    if ranks % len(hosts):
        raise UserError(
            f"{ranks} ranks do not share out over {len(hosts)} hosts", "give a multiple of the hosts with -n"
        )
    return site, [host for host in hosts for _ in range(ranks // len(hosts))]


def _launcher(args: argparse.Namespace, site: Site) -> Launcher:
    names = [x.name for x in LAUNCHERS if x.flavour]
    if args.mpi and args.mpi not in names:
        raise UserError(f"--mpi {args.mpi}: no MPI of that name", f"there are: {', '.join(names)}")
    launcher = find_launcher(args.mpi) if args.mpi else default_launcher()
    if site.lab and launcher.name == "mpich":
        raise UserError(
            "MPICH 4.0 hangs at its end across lab hosts", "use --mpi mpich-wheel or --mpi openmpi"
        )
    return launcher


def _variants(args: argparse.Namespace, flavour: str) -> list[str]:
    if args.stock:
        return [STOCK]
    if args.accelerated or args.both:
        library(flavour)
        return [ACCELERATED] if args.accelerated else [STOCK, ACCELERATED]
    return [STOCK] if _missing(flavour) else [STOCK, ACCELERATED]


def _missing(flavour: str) -> str:
    """Why there is no accelerator; empty where there is one."""
    try:
        library(flavour)
    except UserError as error:
        return error.what
    return ""
