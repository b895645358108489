"""``assay io``: storage, measured and accelerated. One file a sub-verb."""

from __future__ import annotations

import argparse
from typing import Protocol, TypeAlias

from assay.commands.io.bench import Bench
from assay.commands.io.device import Device
from assay.commands.io.doctor import Doctor
from assay.commands.io.playground import Playground
from assay.commands.io.recover import Rescue
from assay.commands.io.run import RunProgram

# argparse has no public name for it.
Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class SubVerb(Protocol):
    """As ``assay.cli.Command``, one level down."""

    def prepare(self, verbs: Verbs) -> None: ...


SUB_VERBS: list[SubVerb] = [
    RunProgram(),
    Bench(),
    Device(),
    Playground(),
    Doctor(),
    Rescue("recover"),
    Rescue("drain"),
]


class Io:
    """Storage of a cluster: what parallel I/O through MPI-IO reaches, stock and accelerated, by the benchmarks that
    are known (IOR, reaction-diffusion, HDF5), and what a node's own device gives."""

    name = "io"
    examples = """
  assay io run -- mpirun -n 64 ./app                     its parallel I/O at the speed of memory
  assay io doctor                                        what this node has for that
  assay io recover                                       what a job that died has left
  assay io bench ior                                     transfer sizes, local and remote read, with and without
  assay io bench ior -n 2 -t 32k -b 192m -C -e           as IOR is asked
  assay io bench reaction-diffusion --mpi mpich -n 4
  assay io bench hdf5 --lab
  assay io device /dev/shm                               what this node's own storage gives
  assay io playground                                    all of it on a virtual cluster

'assay io bench --help' and so on tell more.
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(title="what to do", dest="what", metavar="VERB", required=True)
        for one in SUB_VERBS:
            one.prepare(verbs)

    def run(self, args: argparse.Namespace) -> int:
        status: int = args.io_verb(args)
        return status


__all__ = ["Io"]
