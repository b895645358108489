"""``assay io bench``: benchmarks of parallel I/O, with and without the accelerator."""

from __future__ import annotations

import argparse
import os
import shutil
import socket
from pathlib import Path

from assay.commands.io.h5bench import h5bench_file
from assay.commands.io.originals import ORIGINALS
from assay.commands.options import add_option, add_output, argument_type, check_ranks_here, count
from assay.commands.parser import Example, Parser
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.commands.sub_verbs import Verbs
from assay.errors import UserError
from assay.lab import Lab
from assay.launch.accelerator import library
from assay.launch.engines import describe, storage_bench
from assay.launch.hosts import fold, host_list
from assay.launch.launchers import LAUNCHERS, Launcher, launcher_on
from assay.launch.placement import HERE, REMOTE, Site, lab_site
from assay.launch.reach import check_hosts
from assay.measure.session import Session
from assay.measure.storage import (
    SPEEDUP_DESCRIBED,
    AcceleratorOptions,
    StorageRequest,
    compare,
    measure_storage,
    scratch,
    waive,
    waived_reason,
)
from assay.records.run import Run
from assay.records.schema import Scalar
from assay.records.storage import ACCELERATED, HDF5, IOR, METADATA, SOLVER, STOCK
from assay.records.units import format_quantity
from assay.report.h5bench import write_h5bench_csv
from assay.report.ior import write_ior_json
from assay.report.rdbench import write_rdbench_json

MIB = 1 << 20  # B, a block of IOR that is not told
MEASUREMENTS = {"ior": IOR, "reaction-diffusion": SOLVER, "hdf5": HDF5, "metadata": METADATA}
SUMMARIES = {
    "ior": "Bandwidth of write, local and remote read, over transfer sizes and nodes, as IOR measures it",
    "reaction-diffusion": "A solver that computes, exchanges halos and writes snapshots, like RDBench",
    "hdf5": "Write and read of time steps through HDF5, in h5bench's patterns",
    "metadata": "Rates of creating, looking up, opening, listing, renaming, removing files, as in mdtest",
}
# Of each benchmark: the option that names the file for results in the original's format.
RESULTS = {"ior": "ior_json", "reaction-diffusion": "rdbench_json", "hdf5": "h5bench_csv"}
EXAMPLES = {
    "ior": [
        Example("assay io bench ior", "4 KiB to 1 MiB; write, local and remote read", "minutes"),
        Example("assay io bench ior -n 2 --repeats 1 -t 32k -b 192k -C -e", "with IOR's options", "an MPI"),
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
    "metadata": [
        Example("assay io bench metadata -n 2 --repeats 1 --items 100", needs="an MPI"),
        Example(
            "assay io bench metadata -n 2 --repeats 1 --api posix --unique --stonewall 5", needs="minutes"
        ),
        Example(
            "assay io bench metadata -n 4 -- -n 1000 -u -w 3901 -e 3901 -N 1", "mdtest's options", "minutes"
        ),
    ],
}


@argument_type
def _counts(text: str) -> list[int]:
    return sorted({count(part) for part in text.split(",")})


def prepare_bench(verbs: Verbs) -> None:
    """The sub-verb, with a sub-verb for each benchmark."""
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
            notes=ORIGINALS[name][1],
            examples=EXAMPLES[name],
        )
        _add_options(benchmark, name)
        benchmark.set_defaults(sub_verb=run_bench, takes_unknown=True)


def _add_options(parser: Parser, name: str) -> None:
    add_option(parser, "--mpi", "default: the first that works")
    add_option(parser, "-n --ranks", "distributed over the hosts")
    add_option(parser, "-w --hosts")
    add_option(parser, "--lab")
    add_option(parser, "--repeats", "rounds of each variant; default: 3")
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
        help="numbers of hosts to measure with, such as 1,2,4",
    )
    variant = advanced.add_mutually_exclusive_group()
    variant.add_argument(
        "--both", action="store_true", help="stock and accelerated alternately (default if built)"
    )
    variant.add_argument("--stock", action="store_true", help="only the MPI's own I/O")
    variant.add_argument("--accelerated", action="store_true", help="only the accelerator")
    add_option(advanced, "--timeout", "an I/O call; default: 120s", default=120.0)
    if name == "ior":
        add_option(advanced, "--sizes", "transfers, one after the other")
        advanced.add_argument(
            "--ior-json", type=Path, metavar="FILE", help="also write the results in IOR's JSON"
        )
    if name == "reaction-diffusion":
        advanced.add_argument(
            "--rdbench-json",
            type=Path,
            metavar="FILE",
            help="also write the results in RDBench's JSON, a line per run",
        )
    if name == "hdf5":
        advanced.add_argument(
            "--h5bench-csv", type=Path, metavar="FILE", help="also write the results in h5bench's CSV"
        )
        advanced.add_argument(
            "--config", type=Path, metavar="FILE", help="file of h5bench settings, a KEY=VALUE per line"
        )
    add_option(advanced, "--store")
    add_option(advanced, "--store-size")
    add_option(advanced, "--consistency")
    add_option(advanced, "--until")


def run_bench(args: argparse.Namespace) -> int:
    request = build_request(args)
    specs = specifications(args, "io" if _reads_back(request) else "io-unverified")
    _check_results(args)
    check_hosts(request.site, request.hosts)
    _check_space(request, args.folder)
    options = {"mpi": request.launcher.name, "variants": list(request.variants), **request.params}
    if until := args.until or os.environ.get("ASSAY_IO_UNTIL"):
        options["until"] = until
    session = open_session(f"io-{args.benchmark}", args, request.hosts, options)
    session.err.print(_summary(request))
    if not _reads_back(request):
        session.err.print("nothing is read back: whether the data are right stays open")
    if request.variants == [STOCK] and not args.stock:
        waive(session, request.launcher, SPEEDUP_DESCRIBED, _no_accelerator_reason(request.launcher.flavour))
    with session.interruptible():
        measure(session, request, args.folder or session.run.path)
    compare(session, request.measurement)
    status = session.conclude(specs)
    _write_original_formats(args, session.run)
    return status


def _check_results(args: argparse.Namespace) -> None:
    """Raises UserError if the file for results in the original's format cannot be written. An existing one stays as it
    is until the run has ended. One in the run's folder is made later, with it."""
    for name in RESULTS.values():
        path: Path | None = getattr(args, name, None)
        if path is None or (args.output and path.absolute().parent == Path(args.output).absolute()):
            continue
        try:
            if path.exists() and not path.is_file() and not path.is_dir():
                continue  # a pipe or device: opening it may wait
            is_new = not path.exists()
            path.open("ab").close()
            if is_new:
                path.unlink()
        except OSError as error:
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} {path}: {error.strerror}", "give a path that can be written") from None


def _check_space(request: StorageRequest, folder: Path | None) -> None:
    """Raises UserError if the file of IOR has no room on its file system. Hosts other than this are not asked."""
    params = request.params
    is_ended_early = params.get("stonewall") or params.get("stonewall_transfers")
    if request.measurement != IOR or request.site.name != "here" or is_ended_early:
        return
    if params.get("read") and not params.get("write"):
        return
    needed = len(request.hosts) * int(params.get("block", MIB)) * int(params.get("segments", 1))
    place = Path(str(params["file"])).absolute().parent if "file" in params else folder or Path.cwd()
    place = next(parent for parent in (place.absolute(), *place.absolute().parents) if parent.is_dir())
    total, _, free = shutil.disk_usage(place)
    if needed > free and total:  # where files cannot be, in /proc, there is no size; writing says why
        sizes = f"{len(request.hosts)} ranks write {format_quantity(needed, 'B')}"
        raise UserError(
            f"{place}: {sizes}, and {format_quantity(free, 'B')} are free",
            "give a smaller block (-b), fewer segments (-s), or another file (-o)",
        )


def _reads_back(request: StorageRequest) -> bool:
    """Whether the benchmark reads data back and compares them with the data that it wrote."""
    params = request.params
    if request.measurement == METADATA:
        return True
    if request.measurement == SOLVER:
        return not params.get("novalidate")
    reads = params.get("read") or params.get("check_read") or params.get("check_write")
    return bool(reads) or not params.get("write")


def _write_original_formats(args: argparse.Namespace, run: Run) -> None:
    """Writes the results in the original benchmark's format, if requested."""
    if getattr(args, "ior_json", None):
        write_ior_json(run, args.ior_json)
    if getattr(args, "rdbench_json", None):
        write_rdbench_json(run.records, args.rdbench_json, pretty=args.pretty)
    if getattr(args, "h5bench_csv", None):
        write_h5bench_csv(run.records, args.h5bench_csv)


def measure(session: Session, request: StorageRequest, folder: Path) -> None:
    """Measures in a scratch folder, unless the benchmark's own options name the file."""
    if "file" in request.params:
        request.files = f"{request.params['file']}*"
        measure_storage(session, request)
        return
    with scratch(folder.resolve()) as scratch_folder:
        request.params["file"] = str(scratch_folder / "file")
        request.files = f"{scratch_folder}/*"
        measure_storage(session, request)


def _summary(request: StorageRequest) -> str:
    ranks, hosts = len(request.hosts), list(dict.fromkeys(request.hosts))
    location = "on this machine" if request.site.name == "here" else f"on {fold(hosts)}"
    variants = " and ".join(request.variants)
    return f"{request.measurement}: {ranks} ranks {location} under {request.launcher.name}, {variants}"


def build_request(args: argparse.Namespace) -> StorageRequest:
    """Checks the options against each other, before anything is started."""
    measurement = MEASUREMENTS[args.benchmark]
    site, hosts = _hosts_of_ranks(args)
    launcher = _launcher(args, site)
    if reason := waived_reason(launcher.flavour, measurement):
        raise UserError(
            f"{args.benchmark} cannot be measured with {launcher.name}: {reason}", "choose another --mpi"
        )
    params = _params(args)
    describe(storage_bench(launcher.flavour)).find(measurement).check_bounds(params)
    host_count = len(dict.fromkeys(hosts))
    if args.node_counts and args.node_counts[-1] > host_count:
        raise UserError(
            f"--node-counts {args.node_counts[-1]}: there are only {host_count} hosts",
            "give more hosts or fewer nodes",
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
        accelerator=AcceleratorOptions(args.store, args.store_size, args.consistency, args.until),
    )


def _params(args: argparse.Namespace) -> dict[str, Scalar]:
    arguments = [argument for argument in args.unknown if argument != "--"]
    if getattr(args, "config", None):
        arguments = [*h5bench_file(args.config), *arguments]
    original = ORIGINALS[args.benchmark][0](arguments)
    params = original.params
    args.pretty = original.pretty
    if original.results:
        _set_results(args, original.results)
    if getattr(args, "sizes", None):
        if "-t" in arguments:
            raise UserError("--sizes and -t are both given", "give only one of them")
        params["transfer"] = ",".join(map(str, args.sizes))
    return params


def _set_results(args: argparse.Namespace, path: Path) -> None:
    """Sets the option for the results to the file that the original's own options name."""
    name = RESULTS[args.benchmark]
    if getattr(args, name):
        option = "--" + name.replace("_", "-")
        raise UserError(f"{option} and {path}: two files are given for the results", "give only one of them")
    setattr(args, name, path)


def _hosts_of_ranks(args: argparse.Namespace) -> tuple[Site, list[str]]:
    """The host of each rank: the same number on each host, node by node."""
    hosts_given = host_list(args.hosts, None, "--hosts")
    if args.lab is not None:
        lab = Lab.load(args.lab or None)
        site, hosts = lab_site(lab), hosts_given or list(lab.hosts)
    elif hosts_given:
        site, hosts = REMOTE, hosts_given
    else:
        ranks = args.ranks or max(2, len(os.sched_getaffinity(0)))
        check_ranks_here(ranks)
        return HERE, [socket.gethostname()] * ranks
    ranks = args.ranks or len(hosts)
    if ranks % len(hosts):
        raise UserError(f"-n {ranks} is not a multiple of {len(hosts)} hosts", f"e.g. -n {2 * len(hosts)}")
    return site, [host for host in hosts for _ in range(ranks // len(hosts))]


def _launcher(args: argparse.Namespace, site: Site) -> Launcher:
    names = [x.name for x in LAUNCHERS if x.flavour]
    if args.mpi and args.mpi not in names:
        raise UserError(f"--mpi {args.mpi}: unknown MPI", f"choose one of {', '.join(names)}")
    return launcher_on(args.mpi, site, "--mpi")


def _variants(args: argparse.Namespace, flavour: str) -> list[str]:
    if args.stock:
        return [STOCK]
    if args.accelerated or args.both:
        library(flavour)
        return [ACCELERATED] if args.accelerated else [STOCK, ACCELERATED]
    return [STOCK] if _no_accelerator_reason(flavour) else [STOCK, ACCELERATED]


def _no_accelerator_reason(flavour: str) -> str:
    """Why there is no accelerator; empty if there is one."""
    try:
        library(flavour)
    except UserError as error:
        return error.what
    return ""
