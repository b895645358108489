"""``assay io bench``: parallel I/O by the benchmarks that are known, with and without the accelerator."""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from assay.commands.io.originals import READERS, h5bench_file
from assay.commands.options import add, add_output, count, open_run, reader, specifications
from assay.commands.parser import Example, Parser
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
    "ior": [
        Example("assay io bench ior", "4 KiB to 1 MiB; write, local and remote read", "minutes"),
        Example("assay io bench ior -n 2 --repeats 1 -t 32k -b 192k -C -e", "as IOR is asked", "an MPI"),
        Example('assay io bench ior -w "n[1-4]" --sizes 4k,1m --folder /scratch/me', needs="a cluster"),
    ],
    "reaction-diffusion": [
        Example("assay io bench reaction-diffusion -n 2 --repeats 1 -L 64 -s 20 -i 10", needs="an MPI"),
        Example("assay io bench reaction-diffusion -n 4 -L 1024 -s 200 -i 20 --iotype view", needs="minutes"),
        Example("assay io bench reaction-diffusion --lab --mpi mpich-wheel", needs="a lab"),
    ],
    "hdf5": [
        Example("assay io bench hdf5 -n 2 --repeats 1 DIM_1=4K TIMESTEPS=2", needs="an MPI"),
        Example("assay io bench hdf5 -n 2 DIM_1=1M TIMESTEPS=5 MEM_PATTERN=INTERLEAVED", needs="minutes"),
        Example("assay io bench hdf5 --config sample_write_cc1d_small.cfg", needs="h5bench's file"),
    ],
}


@reader
def _counts(text: str) -> list[int]:
    return sorted({count(part) for part in text.split(",")})


class Bench:
    """The sub-verb, with one of its own for each benchmark."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "bench",
            help="benchmarks of parallel I/O, with and without the accelerator",
            description="Benchmarks of parallel I/O, stock and accelerated side by side in one run.",
            examples=[example for examples in EXAMPLES.values() for example in examples[:1]],
        )
        benchmarks = parser.add_subparsers(
            title="benchmarks", dest="benchmark", metavar="BENCHMARK", required=True
        )
        for name, summary in SUMMARIES.items():
            benchmark = benchmarks.add_parser(
                name,
                help=summary[0].lower() + summary[1:],
                description=f"{summary}.",
                notes=READERS[name][1],
                examples=EXAMPLES[name],
            )
            _add_options(benchmark, name)
            benchmark.set_defaults(io_verb=run_bench, takes_others=True)


def _add_options(parser: Parser, name: str) -> None:
    add(parser, "--mpi", "default: the first that works")
    add(parser, "-n --ranks", "shared out over the hosts")
    add(parser, "-w --hosts")
    add(parser, "--lab")
    add(parser, "--repeats", "turns of each variant; default: 3")
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="a folder that every host sees (default: the run directory)",
    )
    add_output(parser)
    advanced = parser.advanced
    advanced.add_argument(
        "--node-counts",
        type=_counts,
        metavar="LIST",
        help="measure with so many hosts, such as 1,2,4",
    )
    which = advanced.add_mutually_exclusive_group()
    which.add_argument(
        "--both", action="store_true", help="stock and accelerated in turns (default where built)"
    )
    which.add_argument("--stock", action="store_true", help="the MPI's own I/O alone")
    which.add_argument("--accelerated", action="store_true", help="the accelerator alone")
    add(advanced, "--timeout", "an I/O call; default: 120s", default=120.0)
    if name == "ior":
        add(advanced, "--sizes", "transfers, one after the other")
        advanced.add_argument(
            "--ior-json", type=Path, metavar="FILE", help="the results in IOR's own JSON too"
        )
    if name == "reaction-diffusion":
        advanced.add_argument(
            "--rdbench-json",
            type=Path,
            metavar="FILE",
            help="the results in RDBench's JSON, one line per run",
        )
    if name == "hdf5":
        advanced.add_argument(
            "--h5bench-csv", type=Path, metavar="FILE", help="the results in h5bench's CSV too"
        )
        advanced.add_argument(
            "--config", type=Path, metavar="FILE", help="settings of h5bench, one KEY=VALUE per line"
        )
    add(advanced, "--store")
    add(advanced, "--store-size")
    add(advanced, "--consistency")


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
    with session.interruptible():
        measure(session, request, args.folder or run.path)
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
    if args.node_counts and args.node_counts[-1] > distinct:
        raise UserError(
            f"--node-counts {args.node_counts[-1]}: there are {distinct} hosts",
            "name more hosts, or fewer nodes",
        )
    return StorageRequest(
        measurement=measurement,
        launcher=launcher,
        site=site,
        hosts=hosts,
        params=params,
        variants=_variants(args, launcher.flavour),
        nodes=args.node_counts or (),
        rounds=args.repeats or 3,
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
        params["transfer"] = ",".join(map(str, args.sizes))
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
