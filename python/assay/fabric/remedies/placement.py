"""The order of ranks that suits a fabric, and the files that launchers read it from.

A shift exchange is without conflicts on a fat tree that routes by destination where the n-th host of each leaf switch
is reached by the same up port. ``by_slots`` orders the hosts so, leaf by leaf; places of a leaf without a host become
empty slots, which the shift keeps as idle partners (OpenSM writes the same as DUMMY into opensm-ftree-ca-order.dump).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from assay.fabric.routes import Routes
from assay.fabric.schedules import IDLE, Schedule, of_array, shift
from assay.fabric.topology import Ints, natural_key

EMPTY = -1


def by_slots(routes: Routes, members: NDArray[np.integer]) -> Ints:
    """[slots] hosts of ``members``, EMPTY for a place without one; each leaf has as many slots as the fullest."""
    members = np.asarray(members, np.int32)
    fabric = routes.fabric
    leaves = [members[fabric.leaf_of[members] == leaf] for leaf in np.unique(fabric.leaf_of[members])]
    slots = max(len(hosts) for hosts in leaves)
    classes = _classes(routes, members)
    table = np.full((len(leaves), slots), EMPTY, np.int32)
    for row, hosts in enumerate(leaves):
        ordered = sorted(hosts, key=lambda host: natural_key(fabric.host_names[host]))
        late = []
        for host in ordered:
            slot = classes.get(int(host), slots)
            if slot < slots and table[row, slot] == EMPTY:
                table[row, slot] = host
            else:
                late.append(host)
        table[row, np.flatnonzero(table[row] == EMPTY)[: len(late)]] = late
    return table.ravel()


def _classes(routes: Routes, members: NDArray[np.integer]) -> dict[int, int]:
    """Of each host the number of the up port by which most switches reach it, counted from the lowest port in use."""
    fabric, ports = routes.fabric, routes.tables.ports
    leaf_switches = np.unique(fabric.host_switch[members])
    remote = fabric.host_switch[members][None, :] != leaf_switches[:, None]
    entries = np.where(remote, ports[leaf_switches][:, members].astype(np.int64), -1)
    used = np.unique(entries[entries >= 0])
    classes = {}
    for column, host in enumerate(members):
        seen = entries[:, column]
        if len(seen[seen >= 0]):
            classes[int(host)] = int(np.searchsorted(used, np.bincount(seen[seen >= 0]).argmax()))
    return classes


def padded_shift(order: NDArray[np.integer]) -> Schedule:
    """The shift exchange of all slots, as destinations of the ranks that are there: ranks count the hosts of
    ``order`` without its empty slots."""
    order = np.asarray(order, np.int32)
    rank_of = np.where(order >= 0, np.cumsum(order >= 0) - 1, IDLE).astype(np.int32)
    table = np.stack([rank_of[step] for step in shift(len(order))])[:, order >= 0]
    return of_array("padded shift", table)


def schedule_text(schedule: Schedule, comment: str) -> str:
    """A step a line: the destination of each rank, -1 for none."""
    lines = [f"# {comment}"]
    lines += [" ".join(map(str, step)) for step in schedule]
    return "\n".join(lines) + "\n"


def rankfile(hosts: list[str]) -> str:
    """Open MPI: ``mpirun --rankfile FILE``. Ranks of the same host take its slots in turn."""
    seen: dict[str, int] = {}
    lines = []
    for rank, host in enumerate(hosts):
        slot = seen.get(host, 0)
        seen[host] = slot + 1
        lines.append(f"rank {rank}={host} slot={slot}")
    return "\n".join(lines) + "\n"


def mpich_hosts(hosts: list[str]) -> str:
    """MPICH: ``mpiexec -f FILE``."""
    return "".join(f"{host}:1\n" for host in hosts)


def slurm_hosts(hosts: list[str]) -> str:
    """Slurm: ``SLURM_HOSTFILE=FILE srun --distribution=arbitrary``."""
    return "".join(f"{host}\n" for host in hosts)


LAUNCHERS = {"openmpi": rankfile, "mpich": mpich_hosts, "slurm": slurm_hosts}
