"""Corrects fitted capacities by what other rounds have carried.

A link's capacity is fitted to one experiment. If any other round has carried more through the link, the limit of that
experiment was something else: parallel paths of which its flows used some, or a link that the model does not have. The
link is then known to carry at least that much.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from assay.model.estimate import estimate, summed
from assay.model.network import Link, Network
from assay.records.schema import Capacity, Flows

MARGIN = 0.01  # the share by which another round carries more, beyond the intervals of both


def correct(
    network: Network, capacities: Sequence[Capacity], rounds: Sequence[Flows], levels: Collection[str]
) -> list[Capacity]:
    """Corrects, in place, the capacities of these levels that limit flows of the model. Returns those that changed."""
    limits: dict[Link, Capacity] = {
        (c.level, c.resource, c.direction): c
        for c in capacities
        if c.level in levels and (c.level, c.resource, c.direction) in network.capacity and c.value
    }
    changed: dict[Link, Capacity] = {}
    if not limits:
        return []
    for record in rounds:
        for link, chosen, carried in _loads(network, record, levels):
            limit = limits.get(link)
            if limit is None or limit.value is None or carried <= limit.value * (1 + MARGIN):
                continue
            seen = estimate(summed([record.slices[i] for i in chosen]))
            high = limit.high if limit.high is not None else limit.value
            if seen.low <= high * (1 + MARGIN):
                continue
            limit.value, limit.low, limit.high, limit.n = seen.value, seen.low, seen.high, seen.n
            limit.evidence = [record.id]
            limit.state = "at_least"
            limit.reason = (
                f"another round carried more ({record.params.get('experiment')}) than the one that was to fill this "
                "link: parallel paths, or a limit elsewhere"
            )
            limit.explanations = ["parallel paths", "a limit elsewhere"]
            network.capacity[link] = seen.value
            changed[link] = limit
    return list(changed.values())


def _loads(
    network: Network, record: Flows, levels: Collection[str]
) -> Iterator[tuple[Link, list[int], float]]:
    """Each link of these levels that a round's flows pass, the numbers of the flows, and their rate in B/s."""
    rates = np.array(record.values)
    home = network.cabinet_of
    known = [
        i
        for i, (a, b) in enumerate(zip(record.sources, record.targets, strict=True))
        if a in home and b in home
    ]
    if not record.slices:
        return
    if "host" in levels:
        for direction, ends in (
            ("up", [record.sources]),
            ("down", [record.targets]),
            ("limiter", [record.sources, record.targets]),
        ):
            for host, chosen in _grouped(known, ends):
                yield ("host", host, direction), chosen, _sum(rates, chosen)
    leaving, arriving = ([home.get(host, "") for host in side] for side in (record.sources, record.targets))
    crossing = [i for i in known if leaving[i] != arriving[i]]
    if "inside" in levels:
        for name, chosen in _grouped(known, [leaving, arriving]):
            yield ("inside", name, "through"), chosen, _sum(rates, chosen)
    if "cabinet" in levels:
        for direction, ends in (("up", [leaving]), ("down", [arriving]), ("limiter", [leaving, arriving])):
            for name, chosen in _grouped(crossing, ends):
                yield ("cabinet", name, direction), chosen, _sum(rates, chosen)
    if "backbone" in levels and crossing:
        yield ("backbone", "", "through"), crossing, _sum(rates, crossing)


def _grouped(flows: Sequence[int], ends: Sequence[Sequence[str]]) -> Iterator[tuple[str, list[int]]]:
    """The flows by what is at one of these ends of them; a flow counts once for each."""
    groups: dict[str, list[int]] = {}
    for i in flows:
        for name in {side[i] for side in ends}:
            groups.setdefault(name, []).append(i)
    return iter(groups.items())


def _sum(rates: NDArray[np.float64], chosen: Sequence[int]) -> float:
    return float(rates[chosen].sum())
