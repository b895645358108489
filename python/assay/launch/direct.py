"""Starts ranks without MPI: an ``assay-probe`` for each rank, which connect to each other directly.

``Direct`` is a launcher like those of MPI. Its command is this module as a program, which starts the ranks, sends each
the addresses of all, merges their output lines on its standard output, and ends them (``assay.launch.ranks``).

    Direct("tcp")                                    every rank must finish
    Direct("tcp", survive=True)                      the job goes on without a rank that dies (never without rank 0)
    Direct("tcp", survive=True, restart_s=2.0)       ... and starts it again 2 s later, as often as it takes, with a
                                                     higher incarnation number

On its standard input the program reads one JSON object per line: {"restart": 3} restarts rank 3 once it has ended.
Other lines are for rank 0, which gets one each time that it reports ``ready``; at the end of the input an empty line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from assay.errors import EXIT_UNUSABLE, UserError
from assay.lab import Lab
from assay.launch.engines import check_transport_here
from assay.launch.own_python import run_module
from assay.launch.placement import HERE, REMOTE, Segment, Site, lab_site
from assay.launch.without_mpi import WithoutMpi
from assay.records.text import one_line

OFI = "ofi"  # libfabric with the provider that it chooses; "ofi:shm" names a provider
TRANSPORTS = ("tcp", "udp", OFI)
MODULE = "assay.launch.direct"


class RankPlacement(Struct):
    """The host of a rank, and its environment variables."""

    host: str
    env: dict[str, str] = {}


class Job(Struct):
    """The program's input. ``site``: "here", "ssh" or "lab". ``survive``: whether the job goes on when a rank dies.
    ``restart_s``: seconds after which a dead rank is first started again; None: never."""

    transport: str
    site: str
    places: list[RankPlacement]  # of the ranks, in their order
    argv: list[str]
    lab: str = ""
    interface: str = ""
    survive: bool = False
    restart_s: float | None = None
    heartbeat_ms: int = 0  # a peer that is silent for three of these is lost; 0: the engine's default, 50
    start_s: int = 0  # for a rank that is late at the start; 0: the engine's default, 60
    planner: list[str] = []  # a program that answers each line of members with a plan, see ``ranks``

    def site_of_job(self) -> Site:
        if self.site == "lab":
            return lab_site(Lab.load(self.lab))
        return HERE if self.site == HERE.name else REMOTE


class Direct(WithoutMpi):
    """A launcher of ranks without MPI on hosts of a lab, on hosts reached by ssh, or here."""

    def __init__(
        self,
        transport: str,
        survive: bool = False,
        restart_s: float | None = None,
        interface: str = "",
        heartbeat_ms: int = 0,
        start_s: int = 0,
        planner: Sequence[str] = (),
    ) -> None:
        check_transport(transport)
        self.name = transport
        self.survive = survive
        self.restart_s = restart_s
        self.interface = interface
        self.heartbeat_ms = heartbeat_ms
        self.start_s = start_s
        self.planner = planner

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        job = Job(
            transport=self.name,
            site=site.name,
            places=[RankPlacement(host, dict(segment.env)) for segment in segments for host in segment.hosts],
            argv=list(argv),
            lab=site.lab.name if site.lab else "",
            interface=self.interface or site.interface or ("lo" if site.name == HERE.name else ""),
            survive=self.survive,
            restart_s=self.restart_s,
            heartbeat_ms=self.heartbeat_ms,
            start_s=self.start_s,
            planner=list(self.planner),
        )
        return run_module(MODULE, msgspec.json.encode(job).decode())

    def environment(self, site: Site) -> dict[str, str]:
        return {}


def check_transport(name: str) -> None:
    """Raises UserError for an unknown transport. The engine checks the providers of libfabric."""
    if name == OFI or name.startswith(f"{OFI}:"):
        check_transport_here(name)
    elif name not in TRANSPORTS:
        raise UserError(f"no transport is called '{name}'", "choose one of mpi, " + ", ".join(TRANSPORTS))


def main() -> int:
    from assay.launch.ranks import Ranks

    try:
        job = msgspec.json.decode(sys.argv[1], type=Job)
        return Ranks(job).run()
    except (IndexError, msgspec.MsgspecError):
        print(f"assay: {MODULE} takes one job as JSON; fix: use 'assay net --transport tcp'", file=sys.stderr)
    except UserError as error:
        print(f"assay: {one_line(str(error))}", file=sys.stderr)
    return EXIT_UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
