"""Slurm in a lab: a controller on the head node and a daemon on each host, from the machine's packages.

Key, sockets and configuration are in the lab's folder; /etc/slurm and /etc/munge of the machine are neither read
nor written. Features of Slurm that need control groups or a database are switched off. The daemons run inside the
nodes and end with the lab.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from assay.errors import UserError
from assay.lab import tools
from assay.lab.state import Host

_START_LIMIT_S = 120.0
_PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sinfo")

_SLURM_CONF = """\
ClusterName={name}
SlurmctldHost={head}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# The hosts share one machine's cores: take the figures below, not what slurmd counts.
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SchedulerParameters=sched_interval=1,batch_sched_delay=0
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def require_slurm() -> None:
    """Raises UserError that names the packages if Slurm is not installed."""
    missing = [program for program in _PROGRAMS if tools.locate(program) is None]
    if missing:
        raise UserError(f"no Slurm here ({', '.join(missing)} missing)", "apt-get install slurm-wlm munge")


def start(
    name: str,
    folder: Path,
    hosts: Sequence[Host],
    head: str,
    enter: Callable[[str, Sequence[str]], list[str]],
) -> None:
    """Starts Slurm in a complete lab and waits at most 120 s until every host is idle.

    ``folder`` is created and holds all of its files; ``enter`` is ``Lab.enter``. Raises UserError.
    """
    folder.mkdir(mode=0o755)
    (folder / "controller").mkdir()
    (folder / "slurm.conf").write_text(_configuration(name, folder, hosts, head))
    # The default plugin needs a hierarchy of control groups v2.
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = folder / "munge.key"
    tools.run([tools.find("mungekey", "munge"), "--create", f"--keyfile={key}"])
    munged = [tools.find("munged", "munge"), f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munged += [f"--{kind}-file={folder}/munged.{kind}" for kind in ("pid", "log", "seed")]
    _daemon(enter(head, munged))
    _daemon(enter(head, [tools.find("slurmctld", "slurm-wlm")]))
    for host in hosts:
        _daemon(enter(host.name, [tools.find("slurmd", "slurm-wlm")]))
    _await_idle(
        enter(head, [tools.find("sinfo", "slurm-wlm"), "-h", "-N", "-o", "%N %T"]), len(hosts), folder
    )


def _configuration(name: str, folder: Path, hosts: Sequence[Host], head: str) -> str:
    cores = max(2, os.cpu_count() or 1)
    nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs={cores} RealMemory=500" for host in hosts]
    names = ",".join(host.name for host in hosts)
    return _SLURM_CONF.format(name=name, folder=folder, head=head, nodes="\n".join(nodes), names=names)


def _daemon(argv: list[str]) -> None:
    """Starts a program that puts itself into the background."""
    tools.run(argv, activity=f"starting {Path(argv[2]).name}")


def _await_idle(sinfo: list[str], hosts: int, folder: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while True:
        remaining_s = max(0.1, deadline - time.monotonic())
        try:
            output = subprocess.run(sinfo, capture_output=True, text=True, timeout=remaining_s)
            states = output.stdout.split("\n")[:-1]
            problem = output.stderr.strip() or ", ".join(
                line for line in states if not line.endswith(" idle")
            )
            if len(states) == hosts and not problem:
                return
        except subprocess.TimeoutExpired:
            problem = "the controller does not answer"
        if time.monotonic() > deadline:
            raise UserError(
                f"Slurm was not ready within {_START_LIMIT_S:.0f} s ({problem})", f"see the logs in {folder}"
            )
        time.sleep(0.05)
