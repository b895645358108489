"""Counts what a remedy gives, by code that shares nothing with the code that made it: from the routes alone. A command
counts before it writes a file, and writes nothing that is worse than what was there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.errors import UserError
from assay.fabric.faults import credit_loops, unreachable_pairs
from assay.fabric.routes import Routes
from assay.fabric.schedules import Schedule
from assay.fabric.topology import Ints


def fullest_link(routes: Sequence[Routes], path_of: Ints) -> int:
    """Flows of the fullest link between switches, all hosts to all hosts. ``routes``: one for each LID of a host;
    ``path_of`` [H]: which of them a host uses."""
    fabric = routes[0].fabric
    load = np.zeros(fabric.links, np.int64)
    for number, of_path in enumerate(routes):
        senders = fabric.is_host & (fabric.host_switch >= 0) & (path_of == number)
        flows = np.bincount(fabric.edge_of[senders], minlength=len(fabric.edge_switches))
        links = of_path.all_between_switches()[:, fabric.is_host]  # [edge switch, host, hop], padded with -1
        weights = np.broadcast_to(flows[:, None, None], links.shape)[links >= 0]
        load += np.bincount(links[links >= 0], weights, fabric.links).astype(np.int64)
    return int(load.max(initial=0))


def is_sound(routes: Sequence[Routes]) -> bool:
    """Whether all hosts reach each other, and no links can wait for each other in a circle."""
    return not any(map(unreachable_pairs, routes)) and not credit_loops(*routes)


def require_sound(routes: Sequence[Routes]) -> None:
    """Raises UserError for tables that lose pairs or have a credit loop."""
    if lost := sum(map(unreachable_pairs, routes)):
        raise UserError(f"{lost} pairs of hosts would not reach each other", "avoid fewer cables")
    if credit_loops(*routes):
        raise UserError("the tables would have a credit loop", "avoid fewer cables")


def meets_each_pair_once(schedule: Schedule) -> bool:
    """Whether each rank sends to each other rank in one step, to one rank a step, and receives from one a step."""
    ranks = schedule.ranks
    met = np.zeros((ranks, ranks), np.int32)
    for step in schedule:
        senders = np.flatnonzero(step >= 0)
        if np.bincount(step[senders], minlength=ranks).max(initial=0) > 1:
            return False
        met[senders, step[senders]] += 1
    return bool((met[~np.eye(ranks, dtype=np.bool_)] == 1).all())
