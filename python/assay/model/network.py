"""A model of a cluster's network, and the flow rates that it predicts.

Each host has an up link, a down link and optionally a limiter that both directions share. Each cabinet has
the same towards the others, and optionally a switch inside that all its flows pass. A backbone may connect
the cabinets. Flows share links by max-min fairness, as in SimGrid's SMPI model, so this solver tells which
link limits a round without a simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.model.rounds import Flow

Topology = dict[str, list[str]]  # cabinets, each with its hosts
Link = tuple[str, str, str]  # level, resource (a host or a cabinet), direction


@dataclass
class Network:
    """Capacities in B/s by link; a link without a capacity limits nothing."""

    cabinets: Topology
    capacity: dict[Link, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cabinet_of = {host: name for name, hosts in self.cabinets.items() for host in hosts}

    def path(self, flow: Flow) -> list[Link]:
        source, target = flow
        leaving, arriving = self.cabinet_of[source], self.cabinet_of[target]
        links: list[Link] = [
            ("host", source, "up"),
            ("host", source, "limiter"),
            ("inside", leaving, "through"),
        ]
        if leaving != arriving:
            links += [
                ("cabinet", leaving, "up"),
                ("cabinet", leaving, "limiter"),
                ("backbone", "", "through"),
            ]
            links += [("cabinet", arriving, "limiter"), ("cabinet", arriving, "down")]
            links += [("inside", arriving, "through")]
        return [*links, ("host", target, "limiter"), ("host", target, "down")]

    def predict(self, flows: Sequence[Flow], without: Iterable[Link] = ()) -> list[float]:
        """The rate of each flow in B/s when all run at once; infinite where no known link limits it."""
        left_out = set(without)
        capacities = {link: c for link, c in self.capacity.items() if link not in left_out}
        return max_min(
            [[link for link in self.path(flow) if link in capacities] for flow in flows], capacities
        )

    def total(self, flows: Sequence[Flow], without: Iterable[Link] = ()) -> float:
        return sum(self.predict(flows, without))

    def gap(self, pair: Flow) -> float:
        """The time per byte (LogGP's G), in s/B, between two hosts in ping-pong, the mean of both directions; 0 where
        no known link limits it."""
        there, back = (self.predict([flow])[0] for flow in (pair, (pair[1], pair[0])))
        return (1 / there + 1 / back) / 2


def max_min(paths: Sequence[Sequence[Link]], capacity: Mapping[Link, float]) -> list[float]:
    """Max-min fair rates by progressive filling: all rates grow until a link is full; the flows of that link stop
    growing."""
    links = sorted({link for path in paths for link in path})
    number = {link: i for i, link in enumerate(links)}
    uses = np.zeros((len(links), len(paths)))
    for column, path in enumerate(paths):
        for link in path:
            uses[number[link], column] = 1
    remaining = np.array([capacity[link] for link in links], dtype=float)
    rates = np.full(len(paths), np.inf)
    growing = np.array([len(path) > 0 for path in paths])
    while growing.any():
        share = uses @ growing
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(share > 0, remaining / share, np.inf)
        level = each.min()
        full = each <= level * (1 + 1e-12)
        stopped = growing & (uses[full].sum(axis=0) > 0)
        rates[stopped] = level
        remaining = np.maximum(remaining - uses @ (stopped * level), 0.0)
        growing &= ~stopped
    return [float(rate) for rate in rates]
