"""``assay io device``: the bandwidth of a node's own storage."""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
from pathlib import Path

from assay.commands.options import add_option, add_output, size
from assay.commands.parser import Example
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.commands.sub_verbs import Verbs
from assay.errors import UserError
from assay.lab import Lab
from assay.launch.engines import describe, probe
from assay.launch.hosts import host_list
from assay.launch.placement import HERE, REMOTE, Site, lab_site
from assay.launch.reach import check_hosts
from assay.measure.node import measure_node
from assay.records.schema import Scalar
from assay.records.storage import DEVICE

EXAMPLES = [
    Example("assay io device /dev/shm --budget 20ms --bytes 64MiB", "node-local memory"),
    Example("assay io device /mnt/nvme --method direct --bytes 8GiB", "past the page cache", "an NVMe"),
    Example("assay io device /dev/dax0.0 --overwrite", "what it holds is lost", "persistent memory"),
]


def prepare_device(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "device",
        help="bandwidth of a node's own storage, over threads and transfer sizes",
        description="Bandwidth of a node's own storage over threads and transfer sizes, write and read, sequential "
        "and random: of a folder (with a temporary file), a file, or a /dev/dax device.",
        examples=EXAMPLES,
    )
    parser.add_argument("path", metavar="PATH", help="a folder, a file, or /dev/dax*")
    add_option(parser, "-w --hosts", "one after the other; default: this machine")
    add_option(parser, "--lab")
    add_option(parser, "--threads", "default: 1, 2, 4 ... to all cores")
    add_option(parser, "--sizes", "transfers; default: 4k,32k,256k,1m,4m")
    add_option(parser, "--op", "write, read; default: both")
    parser.add_argument("--pattern", metavar="LIST", help="sequential, random (default: both)")
    parser.add_argument(
        "--method",
        metavar="LIST",
        help="call, direct (O_DIRECT), mmap, stream (non-temporal stores); default: all",
    )
    parser.add_argument(
        "--bytes", type=size, metavar="SIZE", help="size of the file to work on (default: 256MiB)"
    )
    add_option(parser, "--budget", "each point; default: 0.2s")
    add_option(parser, "--repeats", "of each point; default: 3")
    parser.add_argument(
        "--overwrite", action="store_true", help="allow overwriting an existing file or a device"
    )
    add_output(parser)
    parser.set_defaults(sub_verb=run_device)


def run_device(args: argparse.Namespace) -> int:
    site, hosts = _site_and_hosts(args)
    params = _params(args, site)
    describe(probe()).find(DEVICE).check_bounds(params)
    specs = specifications(args, *_judged_by(str(params.get("op", "write,read"))))
    check_hosts(site, hosts)
    session = open_session("io-device", args, hosts, dict(params))
    with session.interruptible():
        measure_node(session, DEVICE, site, hosts, None, params)
    return session.conclude(specs)


def _judged_by(operations: str) -> list[str]:
    """Built-in specifications: what is written alone is compared with nothing, and reading alone has no criteria."""
    if "write" not in operations:
        return []
    return ["io" if "read" in operations else "io-unverified"]


def _site_and_hosts(args: argparse.Namespace) -> tuple[Site, list[str]]:
    hosts_given = host_list(args.hosts, None, "--hosts")
    if args.lab is not None:
        lab = Lab.load(args.lab or None)
        return lab_site(lab), hosts_given or list(lab.hosts)
    return (REMOTE, hosts_given) if hosts_given else (HERE, [socket.gethostname()])


def _params(args: argparse.Namespace, site: Site) -> dict[str, Scalar]:
    if not args.path.strip():
        raise UserError("no path is named", "give a folder, a file or a device, e.g. /dev/shm")
    path = Path(args.path)
    if site.name == "here" and not path.exists() and not path.parent.is_dir():
        raise UserError(f"{path} does not exist", "give a folder, a file or a device, e.g. /dev/shm")
    existing = path if path.exists() else path.parent
    if site.name == "here" and "write" in (args.op or "write") and not _is_writable(existing):
        raise UserError(f"{path}: nothing can be written there", "name another folder, or --op read")
    params: dict[str, Scalar] = {"path": str(path.absolute())}
    for option in ("sizes", "threads"):
        if getattr(args, option):
            params[option] = ",".join(map(str, getattr(args, option)))
    for option in ("bytes", "op", "pattern", "method", "budget", "repeats"):
        if getattr(args, option) is not None:
            params[option] = getattr(args, option)
    if args.overwrite:
        params["overwrite"] = True
    return params


def _is_writable(path: Path) -> bool:
    """Whether files can be made there. The superuser has the right to write everywhere, so a folder is tried."""
    if not path.is_dir():
        return os.access(path, os.W_OK)
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False
