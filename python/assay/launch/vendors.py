"""Launchers of vendors' MPIs: Intel MPI's mpiexec.hydra, and Cray's PALS mpiexec and aprun.

Their compiler wrappers build the engine "mpich", whose ABI they share. The classes are written from the vendors'
manuals, and tested with programs that imitate the launchers.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from assay.errors import ORIGIN, REPAIR, UserError
from assay.launch.engines import flavours
from assay.launch.mpis import first_of_kind, is_for_abi, missing_library
from assay.launch.placement import Segment, Site, with_env

FLAVOUR = "mpich"
_MODULE = "put its mpicxx on PATH (a module), then make setup"
NO_ENGINE = f"no engine is built for it: {_MODULE if ORIGIN == 'checkout' else REPAIR}"


class IntelMpi:
    """Intel MPI's mpiexec.hydra: hosts and their ranks in a machine file. ``$I_MPI_ROOT`` says where it is."""

    name = "intelmpi"
    flavour = FLAVOUR

    def program(self) -> str | None:
        root = os.environ.get("I_MPI_ROOT")
        below = shutil.which("mpiexec.hydra", path=f"{root}/bin:{root}/intel64/bin") if root else None
        return below or (first_of_kind(["mpiexec.hydra"], "intelmpi") if is_for_abi() else None)

    def unavailable(self) -> str | None:
        program = self.program()
        if program is None:
            return "no mpiexec.hydra below $I_MPI_ROOT (load Intel MPI's module, or source its setvars.sh)"
        return missing_library(self.flavour, program) if self.flavour in flavours() else NO_ENGINE

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        command = [self.program() or "mpiexec.hydra"]
        if site.name == "here":
            command += ["-bootstrap", "fork"]
        else:
            command += ["-bootstrap", "ssh", "-machine", _machine_file(site, segments)]
        if site.agent:
            command += ["-bootstrap-exec", site.agent]
        if site.interface:
            command += ["-iface", site.interface]
        return site.wrap(command + _programs(segments, argv, lambda hosts: ["-n", str(len(hosts))]))

    def environment(self, site: Site) -> dict[str, str]:
        if site.interface:
            return {"I_MPI_OFI_PROVIDER": "tcp", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": site.interface}
        return {}

    def diagnose(self, stderr: str) -> str | None:
        match = re.search(r"RANK (\d+) PID \d+ RUNNING AT (\S+)\s*\n=\s+KILLED BY SIGNAL: (\d+)", stderr)
        if match:
            return f"rank {match[1]} on {match[2]} was ended by signal {match[3]}"
        match = re.search(r"unable to run bstrap_proxy on (\S+)", stderr)
        return f"{match[1]} cannot be reached by Intel MPI's launcher" if match else None


class Pals:
    """Cray's mpiexec (PALS), on systems with PBS or Slurm."""

    name = "pals"
    flavour = FLAVOUR
    tool = "mpiexec"

    def program(self) -> str | None:
        return shutil.which(self.tool) if shutil.which("palstat") else None

    def unavailable(self) -> str | None:
        if self.program() is None:
            return f"no {self.tool} of Cray's PALS on PATH (load the module cray-pals)"
        return missing_library(self.flavour, None) if self.flavour in flavours() else NO_ENGINE

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        command = [self.program() or self.tool]
        if site.name == "here":
            return site.wrap(command + _programs(segments, argv, lambda hosts: ["-n", str(len(hosts))]))
        return site.wrap(command + _programs(segments, argv, self._rank_options))

    def _rank_options(self, hosts: Sequence[str]) -> list[str]:
        names = list(dict.fromkeys(hosts))
        return ["-n", str(len(hosts)), "--ppn", str(_ranks_per_host(hosts)), "--hosts", ",".join(names)]

    def environment(self, site: Site) -> dict[str, str]:
        return {}

    def diagnose(self, stderr: str) -> str | None:
        match = re.search(r"(\S+): rank (\d+) (?:died from signal|exited with code) (\d+)", stderr)
        return f"rank {match[2]} on {match[1]} ended with {match[3]}" if match else None


class Aprun(Pals):
    """Cray's aprun, of ALPS or as PALS has it. Hosts are node numbers: nid00012 is 12."""

    name = "aprun"
    tool = "aprun"

    def program(self) -> str | None:
        return shutil.which(self.tool)

    def _rank_options(self, hosts: Sequence[str]) -> list[str]:
        names = [re.sub(r"^nid0*(?=\d)", "", host) for host in dict.fromkeys(hosts)]
        return ["-n", str(len(hosts)), "-N", str(_ranks_per_host(hosts)), "-L", ",".join(names)]


def _programs(segments: Sequence[Segment], argv: Sequence[str], rank_options: object) -> list[str]:
    assert callable(rank_options)
    command: list[str] = []
    for segment in segments:
        command += [":"] if command else []
        command += [*rank_options(segment.hosts), *with_env(segment, argv)]
    return command


def _ranks_per_host(hosts: Sequence[str]) -> int:
    counts = set(Counter(hosts).values())
    if len(counts) > 1:
        raise UserError(
            "Cray's launchers start as many ranks on each host", "list every host equally often, or use srun"
        )
    return counts.pop()


def _machine_file(site: Site, segments: Sequence[Segment]) -> str:
    """Writes a machine file, a line "HOST:RANKS" for each host, and returns its path. It is removed when this program
    ends. A lab's head has its own /tmp, and sees the lab's folder."""
    folder = Path(site.agent).parent if site.lab and site.agent else None
    hosts = Counter(host for segment in segments for host in segment.hosts)
    with tempfile.NamedTemporaryFile("w", prefix="assay-machines-", dir=folder, delete=False) as file:
        file.writelines(f"{host}:{ranks}\n" for host, ranks in hosts.items())
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return file.name
