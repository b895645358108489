"""Conflicts of a schedule: flows of one step that share a directed link between switches.

A link that carries n flows of a step has n - 1 conflicts; a step has the sum over its links, a schedule the sum over
its steps. Flows of a rank to itself and within a leaf switch cross no such link. If all ranks start each step together,
a step lasts as many rounds as the load (number of flows) of its fullest link, at least one; one round for each step is
the lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.errors import UserError
from assay.fabric.routes import Routes
from assay.fabric.schedules import Schedule
from assay.fabric.topology import Ints


@dataclass(frozen=True)
class SharedLink:
    """A link that several flows of a step share: ``src[k]`` sends to ``dst[k]`` (hosts)."""

    link: int
    src: Ints
    dst: Ints


@dataclass(frozen=True)
class Conflicts:
    """The conflicts of each step of a schedule.

    The fullest link is a link between switches, or the link to a host that several ranks send to in one step (a
    schedule in a file can do that). Its load is 0 in a step that uses no such link.
    """

    schedule: str
    ranks: int
    conflicts: NDArray[np.int64]  # [steps]
    max_load: NDArray[np.int64]  # [steps] flows on the fullest link
    flows: NDArray[np.int64]  # [steps]

    @property
    def total(self) -> int:
        return int(self.conflicts.sum())

    @property
    def share(self) -> float:
        """Conflicts per ordered pair of ranks; pairs of a rank with itself count too."""
        return self.total / self.ranks**2

    @property
    def rounds(self) -> int:
        """Rounds of the whole schedule when all ranks start each step together."""
        return int(np.maximum(self.max_load, 1).sum())

    @property
    def bound(self) -> int:
        """Rounds of a schedule that has no conflict: one for each step."""
        return len(self.conflicts)


class Loads:
    """The loads of links by the flows of one step. ``members[r]`` is the host of rank r, -1 for an empty slot."""

    def __init__(self, routes: Routes, members: NDArray[np.integer]) -> None:
        self.routes = routes
        self.members = np.asarray(members, np.int32)
        hosts = self.members[self.members >= 0]
        if len(hosts) == 0:
            raise UserError(f"{routes.fabric.source}: no host takes part")
        duplicate = np.flatnonzero(np.bincount(hosts) > 1)
        if len(duplicate):
            raise UserError(f"host {routes.fabric.host_names[duplicate[0]]} takes part twice")

    def flows(self, destinations: Ints) -> tuple[Ints, Ints]:
        """Hosts (src, dst) of a step, without idle ranks, empty slots and flows of a rank to itself."""
        active = np.flatnonzero(destinations >= 0)
        src, dst = self.members[active], self.members[destinations[active]]
        keep = (src >= 0) & (dst >= 0) & (src != dst)
        return src[keep], dst[keep]

    def shared_links(self, destinations: Ints) -> list[SharedLink]:
        """The links with more than one flow, and the flows."""
        src, dst = self.flows(destinations)
        crossed = self.routes.between_switches(src, dst)
        load = np.bincount(crossed[crossed >= 0], minlength=self.routes.fabric.links)
        flow, hop = np.nonzero((crossed >= 0) & (load[crossed] > 1))
        link = crossed[flow, hop]
        order = np.lexsort((flow, link))
        starts = np.flatnonzero(np.diff(link[order], prepend=-1))
        groups = np.split(order, starts[1:]) if len(order) else []
        return [SharedLink(int(link[group[0]]), src[flow[group]], dst[flow[group]]) for group in groups]


def analyse(routes: Routes, schedule: Schedule, members: NDArray[np.integer]) -> Conflicts:
    """Counts the conflicts of every step. Raises UserError for a route that does not arrive."""
    loads = Loads(routes, members)
    if schedule.ranks != len(loads.members):
        raise UserError(f"the schedule is for {schedule.ranks} ranks, and {len(loads.members)} take part")
    require_all(routes, loads.members)
    figures = np.array([_step_figures(loads, step) for step in schedule], np.int64).reshape(-1, 3)
    return Conflicts(schedule.name, schedule.ranks, figures[:, 0], figures[:, 1], figures[:, 2])


def _step_figures(loads: Loads, destinations: Ints) -> tuple[int, int, int]:
    src, dst = loads.flows(destinations)
    crossed = loads.routes.between_switches(src, dst).ravel()
    load = np.bincount(crossed[crossed >= 0])
    received = int(np.bincount(dst).max(initial=0))
    fullest = max(int(load.max(initial=0)), received if received > 1 else 0)
    return int(np.maximum(load - 1, 0).sum()), fullest, len(src)


def require_all(routes: Routes, members: NDArray[np.integer]) -> None:
    """Raises UserError unless all members reach each other."""
    hosts = members[members >= 0]
    leaf = routes.fabric.edge_of[hosts]
    first = hosts[np.unique(leaf, return_index=True)[1]]
    last = hosts[::-1][np.unique(leaf[::-1], return_index=True)[1]]
    # Hosts of a leaf switch share their routes. Two sources for each leaf switch, so that each is a target too.
    for source in np.unique([first, last]):
        routes.require(np.full(len(hosts), source, np.int32), hosts)


def bisection(
    routes: Routes, members: NDArray[np.integer], samples: int, seed: int = 1
) -> NDArray[np.float64]:
    """[samples] effective bisection bandwidth, as a share of the hosts' own rate (Hoefler, Schneider and Lumsdaine,
    Cluster 2008): a random half sends to the other half, each rank to one rank; the rate of a flow is 1 / the load of
    the fullest link on its route."""
    loads = Loads(routes, members)
    hosts = loads.members[loads.members >= 0]
    require_all(routes, hosts)
    return np.array([_sample_bisection(routes, hosts, seed, k) for k in range(samples)], np.float64)


def _sample_bisection(routes: Routes, hosts: Ints, seed: int, sample: int) -> float:
    shuffled = np.random.default_rng([seed, sample]).permutation(hosts)
    half = len(shuffled) // 2
    if half == 0:
        return 1.0
    crossed = routes.between_switches(shuffled[:half], shuffled[half : 2 * half])
    load = np.bincount(crossed[crossed >= 0], minlength=routes.fabric.links)
    fullest = np.where(crossed >= 0, load[crossed], 1).max(axis=1)
    return float((1 / fullest).mean())


def worst_steps(conflicts: Conflicts, limit: int) -> Iterator[int]:
    """The ``limit`` steps with the most conflicts, the worst first."""
    order = np.argsort(-conflicts.conflicts, kind="stable")[:limit]
    return (int(step) for step in order if conflicts.conflicts[step] > 0)
