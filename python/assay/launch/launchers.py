"""Launchers (mpirun, mpiexec, srun ...): each turns segments of ranks into one command line, and reads the errors of
its tool.

``LAUNCHERS`` lists them, a class each; vendors' launchers are in ``vendors``. ``supervise`` starts the command, keeps
time limits and reads records.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from assay.errors import SOURCE, UserError, rebuild
from assay.launch.engines import flavours
from assay.launch.identity import short_name
from assay.launch.mpis import (
    chosen_program,
    describe_mpi,
    first_of_kind,
    flavour_for,
    is_for_abi,
    kind_of,
    major_version,
    missing_library,
)
from assay.launch.placement import Segment, Site, with_env
from assay.launch.slurm_nodes import check_controller, node_names
from assay.launch.vendors import Aprun, IntelMpi, Pals
from assay.launch.without_mpi import WithoutMpi
from assay.records.notes import tell

SSH_LIMIT_S = 15  # for the connection
SSH_SILENCE_S = 120  # of a host that is gone, until its ssh ends


class Launcher(Protocol):
    """``name``: its name for --launcher. ``flavour``: the MPI of the engine that it starts, such as "openmpi"; "" is
    without MPI."""

    @property
    def name(self) -> str: ...

    @property
    def flavour(self) -> str: ...

    def unavailable(self) -> str | None:
        """Returns why the launcher cannot be used on this machine, with the fix; None if it can be used."""

    def program(self) -> str | None:
        """Returns the program that starts ranks, if it belongs to an MPI; None if there is none."""

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        """Returns the command that starts ``argv`` as the ranks of ``segments``."""

    def environment(self, site: Site) -> dict[str, str]:
        """Returns the variables to add to that command's environment."""

    def diagnose(self, stderr: str) -> str | None:
        """Returns one sentence that names rank and host from the tool's standard error; None if it has none."""


def _is_here(host: str) -> bool:
    return host in ("localhost", socket.gethostname(), socket.gethostname().split(".")[0])


class Local(WithoutMpi):
    """Without MPI: one process on one host, through ssh if it is remote."""

    name = "local"

    def unavailable(self) -> str | None:
        return None

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        (segment,) = segments
        (host,) = segment.hosts
        command = with_env(segment, argv)
        if site.lab:
            return site.lab.enter(host, command)
        if site.name == "here" or _is_here(host):
            return command
        return [
            "ssh",
            "-o",
            "BatchMode=yes",
            "-o",
            f"ConnectTimeout={SSH_LIMIT_S}",
            "-o",
            f"ServerAliveInterval={SSH_SILENCE_S // 4}",
            "-o",
            "ServerAliveCountMax=4",
            "--",  # ends the options: a host's name may begin with a hyphen
            host,
            shlex.join(command),
        ]


SALLOC_STEP = "4294967290"  # SLURM_INTERACTIVE_STEP (slurm.h)
ALLOCATORS = "^slurm,tm,pbs,lsf,loadleveler,gridengine,alps,flux"  # Open MPI's readers of a batch job's hosts


class OpenMpi:
    """Open MPI's mpirun, 4 and 5, without its start-up tree, so that no host is started through another."""

    name = "openmpi"
    flavour = "openmpi"

    def program(self) -> str | None:
        if is_for_abi():
            found = first_of_kind(["mpirun", "mpiexec", "mpirun.openmpi"], "openmpi")
        else:
            found = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
        # It takes the folder above as its prefix: "/" where PATH has /bin, a link to /usr/bin, first.
        is_usr = found and os.path.dirname(found) == "/bin" and os.path.realpath("/bin") == "/usr/bin"
        return f"/usr{found}" if is_usr else found

    def unavailable(self) -> str | None:
        if self.flavour not in flavours():
            return f"no engine is built for Open MPI ({rebuild('libopenmpi-dev')})"
        program = self.program()
        if program is None:
            return "no mpirun of Open MPI on PATH (Debian: apt-get install openmpi-bin)"
        return missing_library(self.flavour, program)

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        program = self.program() or "mpirun"
        command = [program, "--oversubscribe", *self._starting(program, site, segments)]
        if site.interface:
            command += ["--mca", "pml", "ob1"]
            command += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", site.interface]
            command += ["--mca", "mpi_yield_when_idle", "1"]
            # Send, not put: a put requests each fragment, the request waits behind the data of the other
            # direction on the same socket, and the two directions between two hosts then take turns.
            command += ["--mca", "btl_tcp_flags", "1"]
        ranks = sum(len(s.hosts) for s in segments)
        is_crowded = site.lab is not None or (site.name == "here" and ranks > (os.cpu_count() or 1))
        if is_crowded:
            command += ["--bind-to", "none"]
        for index, segment in enumerate(segments):
            command += [":"] if index else []
            command += ["-np", str(len(segment.hosts))]
            if site.name != "here":
                command += ["-H", ",".join(segment.hosts)]
            command += with_env(segment, argv)
        return site.wrap(command)

    def _starting(self, program: str, site: Site, segments: Sequence[Segment]) -> list[str]:
        """The options by which daemons start on the hosts. Open MPI 5 has PRRTE's, under other names."""
        if is_for_abi() and major_version(program) >= 5:
            agent = (
                ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", site.agent] if site.agent else []
            )
            tree = ["--prtemca", "plm_ssh_no_tree_spawn", "1"] if site.name != "here" else []
            interface = ["--prtemca", "prte_if_include", site.interface] if site.interface else []
            alone = [] if site.name != "here" else ["--prtemca", "ras", ALLOCATORS]
            return [*agent, *tree, *interface, *alone]
        command = ["--mca", "orte_abort_on_non_zero_status", "1"]
        if site.agent:
            command += ["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", site.agent]
        if site.name != "here":
            command += ["--mca", "plm_rsh_no_tree_spawn", "1"]
        else:  # the hosts of a batch job, or a site's default list, would start the ranks elsewhere
            command += ["--mca", "orte_default_hostfile", "none", "--mca", "ras", ALLOCATORS]
        names = {host for segment in segments for host in segment.hosts}
        # Open MPI cuts names at the first dot, and then takes two hosts for one.
        if len(set(map(short_name, names))) < len(names):
            command += ["--mca", "orte_keep_fqdn_hostnames", "1"]
        if site.interface:  # one-sided over that interface; other components need RDMA
            command += ["--mca", "oob_tcp_if_include", site.interface, "--mca", "osc", "pt2pt"]
        return command

    def environment(self, site: Site) -> dict[str, str]:
        # Root runs it in labs, containers and on new machines; Open MPI requires both variables. The lines of ranks are
        # Assay's messages: no label before them, whatever the user's or the site's settings are.
        unlabelled = {f"OMPI_MCA_orte_{kind}_output": "0" for kind in ("tag", "timestamp", "xml")}
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **unlabelled}

    def diagnose(self, stderr: str) -> str | None:
        match = re.search(r"process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+)", stderr)
        if match:
            return f"rank {match[1]} on {match[2]} was ended by signal {match[3]}"
        match = re.search(r"Remote host:\s+(\S+)|daemon (?:is )?no longer running on(?: node)? (\S+)", stderr)
        if match:
            return f"{match[1] or match[2]} was lost"
        return None


# MPICH's error stack: "internal_Init_thread(71)....: MPI_Init_thread(argc=...) failed", and what it called below.
_STACK = re.compile(r"error stack:\n((?:\w+\(\d+\)\.*: .*\n){2,})")


class Hydra:
    """MPICH's mpiexec (Hydra): the system's, or that of PyPI's wheel next to this Python. ``candidates``: programs of
    the MPI that the engine is linked with; ``of_abi``: those of any MPI of its ABI, the user's choice first."""

    def __init__(self, name: str, candidates: Sequence[str], of_abi: Sequence[str] = ()) -> None:
        self.name = name
        self._candidates = candidates
        self._of_abi = of_abi

    @property
    def flavour(self) -> str:
        return flavour_for(self.name)

    def program(self) -> str | None:
        if is_for_abi():
            return first_of_kind(self._of_abi, "mpich")
        return next((path for c in self._candidates if (path := shutil.which(c))), None)

    def unavailable(self) -> str | None:
        if self.flavour not in flavours():
            return f"no engine is built for {self.name} ({rebuild('libmpich-dev')})"
        program = self.program()
        if program is None:
            return "no mpiexec of MPICH (Debian: apt-get install mpich)"
        return missing_library(self.flavour, program)

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        command = [self.program() or "mpiexec"]
        if site.agent:
            command += ["-launcher", "ssh", "-launcher-exec", site.agent]
        if site.interface:
            command += ["-iface", site.interface]
        hosts = Counter(host for segment in segments for host in segment.hosts)
        if site.name == "here":
            command += ["-launcher", "fork", "-hosts", "localhost"]  # not the hosts of a batch job
        else:  # one list for all segments; a host in several segments has consecutive ranks
            command += ["-hosts", ",".join(f"{host}:{ranks}" for host, ranks in hosts.items())]
        for index, segment in enumerate(segments):
            command += [":"] if index else []
            command += ["-n", str(len(segment.hosts)), *with_env(segment, argv)]
        return site.wrap(command)

    def environment(self, site: Site) -> dict[str, str]:
        if site.interface:
            return {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": site.interface}
        return {}

    def diagnose(self, stderr: str) -> str | None:
        if stack := _STACK.search(stderr):  # its last line is the cause
            called, *_, cause = [line.partition(":")[2].strip() for line in stack[1].splitlines()]
            return f"{called.partition('(')[0]} failed: {cause}"
        match = re.search(r"PID \d+ RUNNING AT (\S+)\s*\n=\s+EXIT CODE: (\d+)", stderr)
        return f"a rank on {match[1]} ended with status {match[2]}" if match else None


class Srun:
    """Slurm's srun, in an allocation or a new one. Ranks start through PMIx with Open MPI. If this Slurm has no PMIx,
    or no engine is built for Open MPI, they start through PMI-2 with MPICH or an MPI of its ABI."""

    name = "srun"

    @property
    def flavour(self) -> str:
        return self._start()[1]

    def program(self) -> str | None:
        """The mpirun or mpiexec of the engine's MPI, which says where the library is."""
        names = ["mpirun", "mpiexec", "mpiexec.hydra"]
        kinds = ["openmpi"] if self.flavour == "openmpi" else ["mpich", "intelmpi"]
        return next((path for kind in kinds if (path := first_of_kind(names, kind))), None)

    def _start(self) -> tuple[str, str]:
        """Returns the kind of PMI and the engine's flavour; PMIx and Open MPI if srun does not say what it has."""
        types, built = _pmi_types(), flavours()
        for kind, engines in (("pmix", ["openmpi"]), ("pmi2", ["mpich", "mpich-wheel"])):
            for flavour in engines:
                if flavour in built and (kind in types or not types):
                    return kind, flavour
        return "pmix", "openmpi"

    def unavailable(self) -> str | None:
        if shutil.which("srun") is None:
            return "no srun on PATH (Debian: apt-get install slurm-client)"
        types, (kind, flavour) = _pmi_types(), self._start()
        if flavour not in flavours():
            return f"no engine is built for Open MPI ({rebuild('libopenmpi-dev')})"
        if types and kind not in types:
            types_text = ", ".join(sorted(types))
            needs = "Open MPI needs pmix, MPICH pmi2, and an engine built for it"
            return f"this Slurm starts ranks by {types_text}; {needs}"
        return missing_library(flavour, self.program())

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        hosts = [host for segment in segments for host in segment.hosts]
        if not site.lab:  # in a lab, Slurm's nodes have the names of the hosts
            nodes = node_names(tuple(dict.fromkeys(hosts)))
            hosts = [nodes[host] for host in hosts]
        command = ["srun", f"--mpi={self._start()[0]}", "--kill-on-bad-exit=1", "--distribution=arbitrary"]
        command += [f"--ntasks={len(hosts)}", f"--nodes={len(set(hosts))}", f"--nodelist={','.join(hosts)}"]
        command += ["--unbuffered", "--overcommit"]
        if len({tuple(s.env.items()) for s in segments}) > 1:
            return site.wrap([*command, "--multi-prog", _multi_prog(site, segments, argv)])
        return site.wrap(command + with_env(segments[0], argv))

    def environment(self, site: Site) -> dict[str, str]:
        extra = {"OMPI_MCA_plm_rsh_agent": site.agent} if site.agent else {}
        # A step (srun --pty bash) has all processors, and the new one shares them; salloc's own shell has none.
        if os.environ.get("SLURM_STEP_ID", SALLOC_STEP) != SALLOC_STEP:
            extra["SLURM_OVERLAP"] = "1"
        if "SLURM_PMIX_FENCE" not in os.environ:
            # At the end of MPI_Init, Slurm 22.05 runs a barrier over a tree, which waits for the ranks of the same host
            # only. A rank then sends to a rank that is still in MPI_Init, and Open MPI 4.1 crashes. The ring waits for
            # all ranks.
            extra["SLURM_PMIX_FENCE"] = "ring"
        if self._start()[0] == "pmi2":
            library = os.environ.get("I_MPI_PMI_LIBRARY") or _pmi2_library()
            extra |= {"I_MPI_PMI_LIBRARY": library} if library and "I_MPI_ROOT" in os.environ else {}
            return extra | ({"FI_PROVIDER": "tcp", "FI_TCP_IFACE": site.interface} if site.interface else {})
        if site.interface:
            extra |= {
                "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl": "tcp,self",
                "OMPI_MCA_btl_tcp_if_include": site.interface,
                "OMPI_MCA_osc": "pt2pt",
                "OMPI_MCA_mpi_yield_when_idle": "1",
            }
        return extra

    def diagnose(self, stderr: str) -> str | None:
        match = re.search(r"srun: error: (\S+): task (\d+): (.+)", stderr)
        return f"rank {match[2]} on {match[1]}: {match[3].strip()}" if match else None


@functools.cache
def _pmi_types() -> frozenset[str]:
    """Returns the PMI types that `srun --mpi=list` names; empty if it does not answer."""
    try:
        result = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    arguments = re.findall(r"^(?:srun: |\s+)?([a-z0-9_]+)$", result.stdout + result.stderr, re.M)
    return frozenset(arguments) - {"none"} if result.returncode == 0 else frozenset()


def _pmi2_library() -> str | None:
    """The path of Slurm's libpmi2.so, which Intel MPI needs in I_MPI_PMI_LIBRARY."""
    folders = ("/usr/lib64", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
    return next((path for f in folders if Path(path := f"{f}/libpmi2.so").is_file()), None)


def _multi_prog(site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> str:
    """Writes srun's list of programs by rank, each segment with its own environment, and returns its path. srun reads
    it on this machine alone, so it may be in a temporary folder (a lab's head has its own /tmp, and sees the lab's
    folder); it is removed when this program ends."""
    folder = Path(site.agent).parent if site.lab and site.agent else None
    lines, first = [], 0
    for segment in segments:
        last = first + len(segment.hosts) - 1
        arguments = with_env(segment, argv)
        unfit = [argument for argument in arguments if re.search(r"['\"\\\\\s%]", argument)]
        if unfit:  # srun replaces %t and %o, and its quoting differs between versions
            raise UserError(
                f"srun cannot start {unfit[0]!r} for some ranks only",
                "install Assay in a folder without spaces and quotes, or use --launcher openmpi",
            )
        lines.append(
            f"{first}-{last} {' '.join(arguments)}" if last > first else f"{first} {' '.join(arguments)}"
        )
        first = last + 1
    with tempfile.NamedTemporaryFile(
        "w", prefix="assay-srun-", suffix=".conf", dir=folder, delete=False
    ) as file:
        file.write("\n".join(lines) + "\n")
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return file.name


BIND_SLURM = "in a container, bind srun and the configuration of Slurm into it"
WHEEL_MPIEXEC = str(Path(sys.executable).parent / "mpiexec.hydra")

LAUNCHERS: list[Launcher] = [
    OpenMpi(),
    IntelMpi(),
    Pals(),
    Aprun(),
    Hydra(
        "mpich", ["mpiexec.mpich", "mpiexec.hydra"], ["mpiexec.hydra", "mpirun", "mpiexec", "mpiexec.mpich"]
    ),
    Hydra("mpich-wheel", [WHEEL_MPIEXEC], [WHEEL_MPIEXEC]),
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
    raise UserError(
        f"no launcher is called '{name}'", "choose one of " + ", ".join(x.name for x in LAUNCHERS)
    )


def _by_path(order: list[Launcher]) -> list[Launcher]:
    """The launchers with those of the mpirun on PATH first: an environment module's, for one. Engines that are linked
    with their MPI stay with it. Raises UserError for an MPI that has no engine."""
    if not is_for_abi() or not (program := chosen_program()):
        return order
    chosen = kind_of(program)
    first = [
        x for x in order if (own := x.program()) and (own == program or chosen == kind_of(own) is not None)
    ]
    if chosen is None and not first:
        raise UserError(
            f"{describe_mpi(program)} is neither of Open MPI (libmpi.so.40) nor of an MPI with MPICH's ABI "
            "(libmpi.so.12), and the wheel has engines for these",
            f"load a module of such an MPI, or put this one's mpicxx on PATH and {SOURCE}",
        )
    return first + [x for x in order if x not in first]


def default_launcher() -> Launcher:
    """Returns srun inside an allocation, else the first MPI that works here. Raises UserError if none does."""
    order = [x for x in LAUNCHERS if x.flavour]
    if "SLURM_JOB_ID" in os.environ:
        order.sort(key=lambda x: x.name != "srun")
    else:
        order = [x for x in order if x.name != "srun"]
        order = _by_path(order)
    for launcher in order:
        if launcher.unavailable() is None:
            if order[0].name == "srun" != launcher.name:
                reason = order[0].unavailable()
                tell(f"in a Slurm job, but {reason}: {launcher.name} starts the ranks; {BIND_SLURM}")
            return launcher
    reasons = "; ".join(f"{x.name}: {x.unavailable()}" for x in order)
    raise UserError(f"no MPI can be used here ({reasons})", "see 'assay doctor'")


def has_mpi() -> bool:
    """Whether a program that starts an MPI's ranks is on PATH, be it one that Assay can use or not."""
    return any(launcher.program() for launcher in LAUNCHERS if launcher.flavour)


def hangs_in_labs(launcher: Launcher) -> bool:
    """Whether it is MPICH 4.0, which hangs at its end across the hosts of a lab."""
    version = (major_version(launcher.program() or "") if is_for_abi() else 0) or 4
    return launcher.name == "mpich" and version < 5


def launcher_on(name: str | None, site: Site, option: str = "--launcher") -> Launcher:
    """Returns the named launcher or the default one. Raises UserError if the site does not support it."""
    launcher = find_launcher(name) if name else default_launcher()
    if site.lab and launcher.name == "srun" and not site.lab.slurm:
        raise UserError("this lab has no Slurm", "make it with 'assay lab up --slurm'")
    if not site.lab and launcher.name == "srun":
        check_controller()
    if site.lab and hangs_in_labs(launcher):
        raise UserError(
            "MPICH 4.0 hangs at its end across lab hosts", f"use {option} mpich-wheel or {option} openmpi"
        )
    return launcher
