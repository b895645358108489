"""A model of a network of hosts in cabinets: the rates that a run of ``assay net`` would measure, without noise.

Flows share links by max-min fairness. A host sends and receives at rate 1 with about 1 % of variation;
``duplex_limit`` bounds the sum of both directions. A cabinet is a switch with one uplink cable for each host;
``oversubscription`` divides the rate of all its uplinks. A flow's destination determines the cable that it takes
(d-mod-k).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flows = NDArray[np.int64]  # [flow, 2]: source, destination
NO_LIMIT = 1e9  # a rate that no flow reaches


@dataclass
class Fabric:
    """Rates relative to a healthy host. ``up``, ``down``: of each host; ``pair``: limits by source and destination;
    ``trunk``: the remaining share of a cabinet's uplink rate, by cabinet and direction (0 up, 1 down); ``cable``:
    limits of single cables, by cabinet, cable and direction."""

    count: int  # of hosts
    cabinets: int
    up: Floats
    down: Floats
    duplex_limit: float = NO_LIMIT
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
        """Which flows leave (direction 0) or enter (1) a cabinet."""
        inside = flows // self.size == cabinet
        mask: NDArray[np.bool_] = inside[:, direction] & ~inside[:, 1 - direction]
        return mask

    def uses_cable(self, flows: Flows, cabinet: int, cable: int, direction: int) -> NDArray[np.bool_]:
        """Which flows take a cable of a cabinet."""
        mask: NDArray[np.bool_] = self.crosses(flows, cabinet, direction) & (flows[:, 1] % self.size == cable)
        return mask

    def rates(self, flows: Flows, alone: bool = False) -> Floats:
        """The rate of each flow when all run at the same time; or each alone, one after the other."""
        flow_limits = np.full(len(flows), NO_LIMIT)
        for (source, target), limit in self.pair.items():
            flow_limits[(flows[:, 0] == source) & (flows[:, 1] == target)] = limit
        for (cabinet, cable, direction), limit in self.cable.items():
            flow_limits[self.uses_cable(flows, cabinet, cable, direction)] = limit
        resources, capacities = self._resources(flows)
        if alone:
            least: Floats = np.minimum(capacities[resources].min(axis=1), flow_limits)
            return least
        return max_min(resources, capacities, flow_limits)

    def _resources(self, flows: Flows) -> tuple[NDArray[np.int64], Floats]:
        """Returns [flow, 6], the resources that each flow uses, and their capacities; the last one has no limit."""
        n, cabinets = self.count, self.cabinets
        capacities = np.concatenate(
            [self.up, self.down, np.full(n, self.duplex_limit), np.empty(2 * cabinets), [NO_LIMIT]]
        )
        for cabinet in range(cabinets):
            for direction in (0, 1):
                remaining = self.trunk.get((cabinet, direction), 1.0)
                capacities[3 * n + 2 * cabinet + direction] = self.size / self.oversubscription * remaining
        source, target = flows[:, 0], flows[:, 1]
        cabinet = flows // self.size
        crosses_cabinets = cabinet[:, 0] != cabinet[:, 1]
        none = len(capacities) - 1
        resources = np.stack(
            [
                source,
                n + target,
                2 * n + source,
                2 * n + target,
                np.where(crosses_cabinets, 3 * n + 2 * cabinet[:, 0], none),
                np.where(crosses_cabinets, 3 * n + 2 * cabinet[:, 1] + 1, none),
            ],
            axis=1,
        )
        return resources, capacities


def max_min(resources: NDArray[np.int64], capacities: Floats, flow_limits: Floats) -> Floats:
    """Max-min fair rates by progressive filling. ``resources``: [flow, k], those that each flow uses.

    A flow's rate is fixed when it reaches its limit, or when one of its resources is full and is the bottleneck of all
    flows that use it.
    """
    rate = np.zeros(len(resources))
    remaining = capacities.copy()
    open_flows = np.ones(len(resources), bool)
    while open_flows.any():
        used = resources[open_flows]
        load = np.bincount(used.ravel(), minlength=len(remaining))
        share = np.where(load > 0, remaining / np.maximum(load, 1), NO_LIMIT)
        tightest = np.minimum(share[used].min(axis=1), flow_limits[open_flows])
        least = np.full(len(remaining), NO_LIMIT)
        np.minimum.at(least, used, tightest[:, None])
        is_full = least >= share * (1 - 1e-9)
        fixed = (is_full[used] & (share[used] <= tightest[:, None] * (1 + 1e-9))).any(axis=1)
        fixed |= tightest >= flow_limits[open_flows] * (1 - 1e-9)
        index = np.flatnonzero(open_flows)[fixed]
        rate[index] = tightest[fixed]
        np.subtract.at(remaining, resources[index], rate[index, None])
        remaining = np.maximum(remaining, 0.0)
        open_flows[index] = False
    return rate
