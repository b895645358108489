"""Launchers: each turns segments into one command line, and reads its own tool's last words.

One small class a launcher, in one visible list. They differ in options only; supervision, limits and the
reading of records are the same for all (``supervise``).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from assay.errors import UserError
from assay.launch.engines import flavours
from assay.launch.placement import Segment, Site

SSH_LIMIT_S = 15  # until a host has answered


class Launcher(Protocol):
    """``name`` is what --launcher takes; ``flavour`` the engine that it starts ("" needs no MPI)."""

    name: str
    flavour: str

    def unavailable(self) -> str | None:
        """Why it cannot be used on this machine, and what would fix that; None when it can."""

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        """The command that starts ``argv`` as the ranks of ``segments``."""

    def environment(self, site: Site) -> dict[str, str]:
        """What is added to the environment of that command."""

    def diagnose(self, words: str) -> str | None:
        """The tool's own last words (standard error) as one sentence naming rank and host, if it can."""


def _is_here(host: str) -> bool:
    return host in ("localhost", socket.gethostname(), socket.gethostname().split(".")[0])


def _with_env(segment: Segment, argv: Sequence[str]) -> list[str]:
    """The words that start a rank with its segment's environment, under any launcher."""
    return ["env", *(f"{k}={v}" for k, v in segment.env.items()), *argv] if segment.env else list(argv)


class Local:
    """No MPI: one process on one host, through ssh where that is another one."""

    name = "local"
    flavour = ""

    def unavailable(self) -> str | None:
        return None

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        (segment,) = segments
        (host,) = segment.hosts
        words = _with_env(segment, argv)
        if site.lab:
            return site.lab.enter(host, words)
        if site.name == "here" or _is_here(host):
            return words
        return ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={SSH_LIMIT_S}", host, shlex.join(words)]

    def environment(self, site: Site) -> dict[str, str]:
        return {}

    def diagnose(self, words: str) -> str | None:
        return None


class OpenMpi:
    """Open MPI's mpirun, 4.x: its rsh start-up tree flat, so that no host is needed to reach another."""

    name = "openmpi"
    flavour = "openmpi"

    def _mpirun(self) -> str | None:
        return shutil.which("mpirun.openmpi") or shutil.which("mpirun")

    def unavailable(self) -> str | None:
        if self.flavour not in flavours():
            return "no engine is built for Open MPI (Debian: apt-get install libopenmpi-dev, then make setup)"
        if self._mpirun() is None:
            return "no mpirun of Open MPI on PATH (Debian: apt-get install openmpi-bin)"
        return None

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        words = [self._mpirun() or "mpirun", "--oversubscribe"]
        words += ["--mca", "orte_abort_on_non_zero_status", "1"]
        if site.agent:
            words += ["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", site.agent]
        if site.name != "here":
            words += ["--mca", "plm_rsh_no_tree_spawn", "1"]
        if site.interface:
            words += ["--mca", "oob_tcp_if_include", site.interface, "--mca", "pml", "ob1"]
            words += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", site.interface]
            words += ["--mca", "osc", "pt2pt"]  # one-sided over that path; the others look for RDMA
            words += ["--mca", "mpi_yield_when_idle", "1"]
            # Messages are sent, not put: a put asks for each of its pieces, the asking waits behind what goes the
            # other way on the same socket, and the two directions between two hosts then take turns.
            words += ["--mca", "btl_tcp_flags", "1"]
        ranks = sum(len(s.hosts) for s in segments)
        crowded = site.lab is not None or (site.name == "here" and ranks > (os.cpu_count() or 1))
        if crowded:
            words += ["--bind-to", "none"]
        for index, segment in enumerate(segments):
            words += [":"] if index else []
            words += ["-np", str(len(segment.hosts))]
            if site.name != "here":
                words += ["-H", ",".join(segment.hosts)]
            words += _with_env(segment, argv)
        return site.wrap(words)

    def environment(self, site: Site) -> dict[str, str]:
        # Root runs it in labs, containers and on new machines; Open MPI wants that said twice.
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def diagnose(self, words: str) -> str | None:
        died = re.search(r"process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+)", words)
        if died:
            return f"rank {died[1]} on {died[2]} was ended by signal {died[3]}"
        lost = re.search(r"Remote host:\s+(\S+)|daemon (?:is )?no longer running on(?: node)? (\S+)", words)
        if lost:
            return f"{lost[1] or lost[2]} was lost"
        return None


class Hydra:
    """MPICH's mpiexec (Hydra): the system's, or that of PyPI's wheel beside this Python."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        self.name = name
        self.flavour = name
        self._candidates = candidates

    def _mpiexec(self) -> str | None:
        return next((found for c in self._candidates if (found := shutil.which(c))), None)

    def unavailable(self) -> str | None:
        if self.flavour not in flavours():
            return (
                f"no engine is built for {self.name} (Debian: apt-get install libmpich-dev, then make setup)"
            )
        if self._mpiexec() is None:
            return "no mpiexec of MPICH (Debian: apt-get install mpich)"
        return None

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        words = [self._mpiexec() or "mpiexec"]
        if site.agent:
            words += ["-launcher", "ssh", "-launcher-exec", site.agent]
        if site.interface:
            words += ["-iface", site.interface]
        hosts = Counter(host for segment in segments for host in segment.hosts)
        if site.name == "here":
            words += ["-launcher", "fork"]
        else:  # one list for all segments; a host that is named twice has its ranks one after the other
            words += ["-hosts", ",".join(f"{host}:{ranks}" for host, ranks in hosts.items())]
        for index, segment in enumerate(segments):
            words += [":"] if index else []
            words += ["-n", str(len(segment.hosts)), *_with_env(segment, argv)]
        return site.wrap(words)

    def environment(self, site: Site) -> dict[str, str]:
        if site.interface:
            return {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": site.interface}
        return {}

    def diagnose(self, words: str) -> str | None:
        died = re.search(r"PID \d+ RUNNING AT (\S+)\s*\n=\s+EXIT CODE: (\d+)", words)
        return f"a rank on {died[1]} ended with status {died[2]}" if died else None


class Srun:
    """Slurm's srun, inside an allocation or making one; ranks start through PMIx with Open MPI."""

    name = "srun"
    flavour = "openmpi"

    def unavailable(self) -> str | None:
        if shutil.which("srun") is None:
            return "no srun on PATH (Debian: apt-get install slurm-client)"
        if self.flavour not in flavours():
            return "no engine is built for Open MPI (Debian: apt-get install libopenmpi-dev, then make setup)"
        return None

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        hosts = [host for segment in segments for host in segment.hosts]
        words = ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--distribution=arbitrary"]
        words += [f"--ntasks={len(hosts)}", f"--nodes={len(set(hosts))}", f"--nodelist={','.join(hosts)}"]
        words += ["--unbuffered", "--overcommit"]
        if len({tuple(s.env.items()) for s in segments}) > 1:
            raise UserError(
                "srun starts all ranks with one environment", "bind adapters with --launcher openmpi or mpich"
            )
        return site.wrap(words + _with_env(segments[0], argv))

    def environment(self, site: Site) -> dict[str, str]:
        extra = {"OMPI_MCA_plm_rsh_agent": site.agent} if site.agent else {}
        if site.interface:
            extra |= {
                "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl": "tcp,self",
                "OMPI_MCA_btl_tcp_if_include": site.interface,
                "OMPI_MCA_osc": "pt2pt",
                "OMPI_MCA_mpi_yield_when_idle": "1",
            }
        return extra

    def diagnose(self, words: str) -> str | None:
        died = re.search(r"srun: error: (\S+): task (\d+): (.+)", words)
        return f"rank {died[2]} on {died[1]}: {died[3].strip()}" if died else None


WHEEL_MPIEXEC = str(Path(sys.executable).parent / "mpiexec.hydra")

LAUNCHERS: list[Launcher] = [
    OpenMpi(),
    Hydra("mpich", ["mpiexec.mpich", "mpiexec.hydra"]),
    Hydra("mpich-wheel", [WHEEL_MPIEXEC]),
    Srun(),
    Local(),
]


def find_launcher(name: str) -> Launcher:
    for launcher in LAUNCHERS:
        if launcher.name == name:
            reason = launcher.unavailable()
            if reason:
                raise UserError(f"the launcher {name} cannot be used: {reason}")
            return launcher
    raise UserError(f"no launcher is called '{name}'", "there are: " + ", ".join(x.name for x in LAUNCHERS))


def default_launcher() -> Launcher:
    """Slurm's inside an allocation; else the first MPI that works here."""
    order = [x for x in LAUNCHERS if x.flavour]
    if "SLURM_JOB_ID" in os.environ:
        order.sort(key=lambda x: x.name != "srun")
    else:
        order = [x for x in order if x.name != "srun"]
    for launcher in order:
        if launcher.unavailable() is None:
            return launcher
    reasons = "; ".join(f"{x.name}: {x.unavailable()}" for x in order)
    raise UserError(f"no MPI can be used here ({reasons})", "see 'assay doctor'")


def launcher_on(name: str | None, site: Site) -> Launcher:
    """The named one or the first that works here; none that the site cannot do with."""
    launcher = find_launcher(name) if name else default_launcher()
    if site.lab and launcher.name == "srun" and not site.lab.slurm:
        raise UserError("this lab has no Slurm", "make it with 'assay lab up --slurm'")
    if site.lab and launcher.name == "mpich":
        raise UserError(
            "MPICH 4.0 hangs at its end across lab hosts", "use --launcher mpich-wheel or --launcher openmpi"
        )
    return launcher
