"""Orders ranks for a fabric, and writes the order for launchers (Open MPI, MPICH, Slurm).

On a fat tree that routes by destination, a shift exchange has no conflicts if the n-th host of each leaf switch is
reached by the same up port. ``by_slots`` orders the hosts so, leaf by leaf. Positions of a leaf without a host become
empty slots, which are idle partners in the shift (OpenSM writes them as DUMMY into opensm-ftree-ca-order.dump).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from assay.fabric.names import natural_key
from assay.fabric.routes import Routes
from assay.fabric.schedules import IDLE, Schedule, of_array, shift
from assay.fabric.topology import Ints

EMPTY_SLOT = -1


def by_slots(routes: Routes, members: NDArray[np.integer]) -> Ints:
    """[slots] hosts of ``members``, or EMPTY_SLOT; each leaf has as many slots as the leaf with most hosts."""
    members = np.asarray(members, np.int32)
    fabric = routes.fabric
    leaves = [members[fabric.edge_of[members] == leaf] for leaf in np.unique(fabric.edge_of[members])]
    slots = max(len(hosts) for hosts in leaves)
    slot_of_host = _up_port_slots(routes, members)
    table = np.full((len(leaves), slots), EMPTY_SLOT, np.int32)
    for row, hosts in enumerate(leaves):
        ordered = sorted(hosts, key=lambda host: natural_key(fabric.host_names[host]))
        unplaced = []
        for host in ordered:
            slot = slot_of_host.get(int(host), slots)
            if slot < slots and table[row, slot] == EMPTY_SLOT:
                table[row, slot] = host
            else:
                unplaced.append(host)
        table[row, np.flatnonzero(table[row] == EMPTY_SLOT)[: len(unplaced)]] = unplaced
    return table.ravel()


def _up_port_slots(routes: Routes, members: NDArray[np.integer]) -> dict[int, int]:
    """The slot of each host: the up port by which most leaf switches reach it, counted from the lowest port in use."""
    fabric, ports = routes.fabric, routes.tables.ports
    leaf_switches = np.unique(fabric.host_switch[members])
    remote = fabric.host_switch[members][None, :] != leaf_switches[:, None]
    entries = np.where(remote, ports[leaf_switches][:, members].astype(np.int64), -1)
    used = np.unique(entries[entries >= 0])
    slot_of_host = {}
    for column, host in enumerate(members):
        ports_to_host = entries[:, column]
        if len(ports_to_host[ports_to_host >= 0]):
            slot_of_host[int(host)] = int(
                np.searchsorted(used, np.bincount(ports_to_host[ports_to_host >= 0]).argmax())
            )
    return slot_of_host


def padded_shift(order: NDArray[np.integer]) -> Schedule:
    """The shift exchange of all slots of ``order``. Ranks count the hosts without the empty slots; a rank whose partner
    is an empty slot is idle."""
    order = np.asarray(order, np.int32)
    rank_of = np.where(order >= 0, np.cumsum(order >= 0) - 1, IDLE).astype(np.int32)
    table = np.stack([rank_of[step] for step in shift(len(order))])[:, order >= 0]
    return of_array("padded shift", table)


def schedule_text(schedule: Schedule, comment: str) -> str:
    """The schedule as a file: one step a line, the destination of each rank, -1 for none."""
    lines = [f"# {comment}"]
    lines += [" ".join(map(str, step)) for step in schedule]
    return "\n".join(lines) + "\n"


def rankfile(hosts: list[str]) -> str:
    """Open MPI: ``mpirun --rankfile FILE``. Ranks of the same host take its slots in turn."""
    next_slot: dict[str, int] = {}
    lines = []
    for rank, host in enumerate(hosts):
        slot = next_slot.get(host, 0)
        next_slot[host] = slot + 1
        lines.append(f"rank {rank}={host} slot={slot}")
    return "\n".join(lines) + "\n"


def mpich_hosts(hosts: list[str]) -> str:
    """MPICH: ``mpiexec -f FILE``."""
    return "".join(f"{host}:1\n" for host in hosts)


def slurm_hosts(hosts: list[str]) -> str:
    """Slurm: ``SLURM_HOSTFILE=FILE srun --distribution=arbitrary``."""
    return "".join(f"{host}\n" for host in hosts)


LAUNCHERS = {"openmpi": rankfile, "mpich": mpich_hosts, "slurm": slurm_hosts}
