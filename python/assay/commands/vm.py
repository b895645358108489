"""``assay lab vm``: runs a command in a QEMU guest that has hardware which this machine lacks (NUMA nodes, RDMA
devices, persistent memory)."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from assay.commands.options import add_option, count, size
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, UserError
from assay.lab.guest import Guest, Hardware, prepare_kernel, run_guest
from assay.lab.traffic import parse_rate

# The shell command of a guest that is given none: prints its hardware.
SUMMARY = """\
for node in /sys/devices/system/node/node*; do
    echo "NUMA ${node##*/}: processors $(cat $node/cpulist), distances $(cat $node/distance)"
done
for device in /sys/class/infiniband/*; do
    [ -e "$device" ] && echo "RDMA ${device##*/}: $(cat $device/ports/1/state)"
done
for device in /dev/dax* /mnt/pmem; do
    [ -e "$device" ] && echo "persistent memory: $device"
done
true
"""


def prepare_vm(verbs: Verbs) -> None:
    """Adds ``vm`` to the verbs of ``assay lab``."""
    parser = verbs.add_parser(
        "vm",
        help="boot a guest with hardware that this machine lacks, and run a command in it",
        description="Boots a guest (QEMU, emulated: timings are not meaningful) whose root is this machine's, "
        "read-only; makes its hardware ready, runs the command in the current folder, and ends. The command gets "
        "PATH, HOME, LANG, PYTHONPATH and all ASSAY_ variables; its output and exit code are passed on.",
        usage="%(prog)s [options] [-- COMMAND [ARGUMENT ...]]",
        examples=[
            Example("assay lab vm --numa 2 -- assay mem --peak", "the matrix of two nodes", "QEMU"),
            Example("assay lab vm --rdma 2 --rdma-rate 200mbit -- assay rdma", needs="QEMU"),
            Example("assay lab vm --pmem 128MiB --share out -- sh -c 'dmesg > out/dmesg'", needs="QEMU"),
        ],
    )
    parser.add_argument("--numa", type=count, default=1, metavar="N", help="NUMA nodes (default: 1)")
    parser.add_argument(
        "--memory-nodes", type=count, default=0, metavar="N", help="more nodes, of memory alone (default: 0)"
    )
    parser.add_argument("--rdma", type=count, default=0, metavar="N", help="SoftRoCE devices rxe0, rxe1 ...")
    parser.add_argument("--rdma-rate", metavar="RATE", help="rate limit of each RDMA device, such as 200mbit")
    parser.add_argument(
        "--pmem", type=size, default=0, metavar="SIZE",
        help="size of each of two persistent memories: /dev/dax0.0, and a file system on /mnt/pmem",
    )  # fmt: skip
    parser.add_argument(
        "--pmem-file",
        metavar="FILE",
        help="file that keeps the content of persistent memory for the next guest",
    )
    parser.add_argument(
        "--cpus", type=count, metavar="N", help="processors (default: 2, and at least one per NUMA node)"
    )
    parser.add_argument("--memory", type=size, default=1 << 30, metavar="SIZE", help="default: 1GiB")
    parser.add_argument(
        "--share", metavar="DIR", help="a folder shared with the guest: the files that it writes there remain"
    )
    add_option(parser, "--timeout", "the whole guest; default: 300s", default=300.0)
    parser.add_argument("--prepare", action="store_true", help="only fetch and unpack the kernel")
    parser.add_argument("argv", metavar="-- CMD ...", nargs=argparse.REMAINDER, help="the command")
    parser.set_defaults(sub_verb=_run_vm)


def _run_vm(args: argparse.Namespace) -> int:
    if args.prepare:
        print(f"kernel {prepare_kernel().version} is ready")
        return EXIT_PASS
    if args.rdma_rate:
        parse_rate(args.rdma_rate)  # an invalid rate fails before the guest boots
        if not args.rdma:
            raise UserError("--rdma-rate without --rdma", "say how many devices: --rdma 2")
    if args.pmem_file and not args.pmem:
        raise UserError("--pmem-file without --pmem", "say how much: --pmem 128MiB")
    if args.memory < 256 << 20:
        raise UserError("--memory: a guest needs 256 MiB at least", "give more")
    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    hardware = Hardware(
        cpus=args.cpus or max(2, args.numa),
        memory=args.memory,
        numa=args.numa,
        memory_nodes=args.memory_nodes,
        rdma=args.rdma,
        rdma_rate=args.rdma_rate or "",
        pmem=args.pmem,
        pmem_file=Path(args.pmem_file) if args.pmem_file else None,
    )
    if os.geteuid() != 0:
        print("not root: the guest lacks files that only root can read", file=sys.stderr)
    output = Path(args.share) if args.share else None
    return run_guest(Guest(hardware, argv or ["bash", "-c", SUMMARY], output, args.timeout))
