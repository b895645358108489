"""A network on paper: hosts in cabinets, whose flows share links by max-min fairness. It gives the rates that a run
of ``assay net`` would measure, before noise.

A host sends and receives at rate 1, up to 1 % by its own; both directions together may have a limit. Cabinets are
switches with as many cables to the top as hosts, divided by ``oversubscription``; the cable that a flow takes is that
of its destination (d-mod-k).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flows = NDArray[np.int64]  # [flow, 2]: source, destination
HUGE = 1e9


@dataclass
class Fabric:
    """``up``, ``down``: of each host; ``pair``: limits of single paths; ``trunk``: share of a cabinet's cables that
    is left, by cabinet and direction (0 up, 1 down); ``cable``: limit of one cable, by cabinet, cable and direction."""

    count: int
    cabinets: int
    up: Floats
    down: Floats
    both: float = HUGE
    oversubscription: float = 1.0
    pair: dict[tuple[int, int], float] = field(default_factory=dict)
    trunk: dict[tuple[int, int], float] = field(default_factory=dict)
    cable: dict[tuple[int, int, int], float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Hosts of a cabinet."""
        return self.count // self.cabinets

    def members(self, cabinet: int) -> range:
        return range(cabinet * self.size, (cabinet + 1) * self.size)

    def crosses(self, flows: Flows, cabinet: int, direction: int) -> NDArray[np.bool_]:
        inside = flows // self.size == cabinet
        mask: NDArray[np.bool_] = inside[:, direction] & ~inside[:, 1 - direction]
        return mask

    def takes(self, flows: Flows, cabinet: int, cable: int, direction: int) -> NDArray[np.bool_]:
        """Which flows take a cable of a cabinet."""
        mask: NDArray[np.bool_] = self.crosses(flows, cabinet, direction) & (flows[:, 1] % self.size == cable)
        return mask

    def rates(self, flows: Flows, alone: bool = False) -> Floats:
        """The rate of each flow when all run at the same time; or each alone, one after the other."""
        own = np.full(len(flows), HUGE)
        for (source, target), limit in self.pair.items():
            own[(flows[:, 0] == source) & (flows[:, 1] == target)] = limit
        for (cabinet, cable, direction), limit in self.cable.items():
            own[self.takes(flows, cabinet, cable, direction)] = limit
        users, capacities = self._resources(flows)
        if alone:
            least: Floats = np.minimum(capacities[users].min(axis=1), own)
            return least
        return max_min(users, capacities, own)

    def _resources(self, flows: Flows) -> tuple[NDArray[np.int64], Floats]:
        """Returns [flow, 6], the resources that each flow uses, and their capacities; the last one has no limit."""
        n, parts = self.count, self.cabinets
        capacities = np.concatenate([self.up, self.down, np.full(n, self.both), np.empty(2 * parts), [HUGE]])
        for cabinet in range(parts):
            for direction in (0, 1):
                left = self.trunk.get((cabinet, direction), 1.0)
                capacities[3 * n + 2 * cabinet + direction] = self.size / self.oversubscription * left
        source, target = flows[:, 0], flows[:, 1]
        cabinet = flows // self.size
        across = cabinet[:, 0] != cabinet[:, 1]
        none = len(capacities) - 1
        users = np.stack(
            [
                source,
                n + target,
                2 * n + source,
                2 * n + target,
                np.where(across, 3 * n + 2 * cabinet[:, 0], none),
                np.where(across, 3 * n + 2 * cabinet[:, 1] + 1, none),
            ],
            axis=1,
        )
        return users, capacities


def max_min(users: NDArray[np.int64], capacities: Floats, own: Floats) -> Floats:
    """Max-min fair rates: a flow is settled when a limit of its own, or a resource that is the tightest of all its
    flows, holds it."""
    rate = np.zeros(len(users))
    left = capacities.copy()
    open_flows = np.ones(len(users), bool)
    while open_flows.any():
        used = users[open_flows]
        load = np.bincount(used.ravel(), minlength=len(left))
        share = np.where(load > 0, left / np.maximum(load, 1), HUGE)
        tightest = np.minimum(share[used].min(axis=1), own[open_flows])
        least = np.full(len(left), HUGE)
        np.minimum.at(least, used, tightest[:, None])
        is_full = least >= share * (1 - 1e-9)
        settled = (is_full[used] & (share[used] <= tightest[:, None] * (1 + 1e-9))).any(axis=1)
        settled |= tightest >= own[open_flows] * (1 - 1e-9)
        index = np.flatnonzero(open_flows)[settled]
        rate[index] = tightest[settled]
        np.subtract.at(left, users[index], rate[index, None])
        left = np.maximum(left, 0.0)
        open_flows[index] = False
    return rate
