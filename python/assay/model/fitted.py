"""The model that is being fitted, and what its parts have in common: sums of flows, capacities, limiters.

A limiter is a limit that both directions share. Where two explanations give the same rates (a limiter as narrow as the
up link), the record says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from assay.model.calls import Overheads
from assay.model.estimate import Estimate, estimate, summed
from assay.model.network import Link, Network
from assay.model.rounds import Flow
from assay.model.segments import Segment
from assay.model.study import PLATEAU
from assay.records.schema import Capacity, Flows
from assay.records.units import format_share

# The acknowledgements of one direction pass the links of the other. TCP acknowledges each segment or each second one
# (RFC 5681, 4.2): 90 B on the wire (40 B of IP and TCP, 12 of timestamps, 38 of Ethernet) for the 1538 B of a segment
# at an MTU of 1500, 2.9 to 5.9 %. SimGrid's cross traffic is 5 %. With this share, both directions at once carry
# 1 / (1 + share) of what each carries alone.
ACKNOWLEDGEMENTS = 90 / 1538
# A host that sends to one and receives from another waits between two messages, which two flows in one direction fill.
# Measured in SimGrid 3.32 with cross traffic and no limiter, messages of 256 KiB, 48 us between the hosts: 103.7 to
# 112.0 MB/s, another rate for each host, where acknowledgements alone leave 112.0.
PAUSES = 1 - 103.7 / 112.0
NEVER_BINDS = "never seen to be the limit"


@dataclass
class Model:
    """The fitted model. ``network`` holds only links that were seen to be a limit."""

    network: Network
    capacities: list[Capacity] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)  # factors of a pair's latency and s/B
    calls: Overheads = field(default_factory=Overheads)
    inside: float = 0.0  # s: time of a small message inside a cabinet, without the MPI calls
    between: float = 0.0  # s: to another cabinet
    size: int = 0  # B: message size of the rounds with concurrent flows
    library: str = ""  # the MPI, as it calls itself
    more_levels: list[str] = field(default_factory=list)  # signs of more than two levels (assay.model.levels)
    undecided: set[str] = field(default_factory=set)  # hosts whose limiter no round could show

    def find(self, level: str, resource: str, direction: str) -> Capacity | None:
        return next(
            (
                c
                for c in self.capacities
                if (c.level, c.resource, c.direction) == (level, resource, direction)
            ),
            None,
        )


def flows_of(record: Flows) -> list[Flow]:
    return list(zip(record.sources, record.targets, strict=True))


@dataclass
class FlowSum:
    """The sum of chosen flows over several repetitions of a round."""

    flows: list[Flow] = field(default_factory=list)  # of the whole round
    samples: list[float] = field(default_factory=list)
    evidence: list[int] = field(default_factory=list)

    def add(self, record: Flows, chosen: Iterable[int]) -> None:
        self.flows = flows_of(record)
        self.samples += summed([record.slices[i] for i in chosen])
        self.evidence.append(record.id)

    @property
    def estimate(self) -> Estimate:
        return estimate(self.samples)


def add_capacity(
    model: Model,
    link: Link,
    carried_sum: FlowSum | None,
    reason: str,
    binds: bool = True,
    unit: str = "B/s",
    is_shared: bool = False,
    explanations: Sequence[str] = (),
) -> None:
    """``is_shared``: the limit is real, but another link explains it as well, so this one carries that at least.

    ``explanations``: the limits that each explain the figure, where there are several.
    """
    level, resource, direction = link
    cabinet = model.network.cabinet_of.get(resource, "") if level == "host" else ""
    record = Capacity(
        level=level,  # type: ignore[arg-type]
        resource=resource,
        direction=direction,  # type: ignore[arg-type]
        unit=unit,
        state="unknown",
        cabinet=cabinet,
        reason=reason,
        explanations=list(explanations),
    )
    if carried_sum is not None and carried_sum.samples:
        e = carried_sum.estimate
        record.state = "measured" if binds and not is_shared else "at_least"
        record.value, record.low, record.high, record.n = e.value, e.low, e.high, e.n
        record.evidence = carried_sum.evidence
        if binds:
            model.network.capacity[link] = e.value
    model.capacities.append(record)


def add_limiter(model: Model, link: Link, both: FlowSum, reason: str) -> None:
    """Adds a limit that both directions share; "at_least" where acknowledgements explain it as well."""
    level, name, _ = link
    each = sum(model.network.capacity.get((level, name, direction), math.inf) for direction in ("up", "down"))
    least = PLATEAU * each * (1 - PAUSES) / (1 + ACKNOWLEDGEMENTS)  # 15.2 % less than each alone
    if both.estimate.value < least or math.isinf(each):
        add_capacity(model, link, both, reason)
        _mark_hidden_by_limiter(model, level, name, both.estimate)
        return
    reason = (
        f"limiter, or acknowledgements: both directions at once carry {format_share(1 - both.estimate.value / each)} "
        "less than each alone"
    )
    add_capacity(model, link, both, reason, is_shared=True, explanations=["limiter", "acknowledgements"])


def _mark_hidden_by_limiter(model: Model, level: str, name: str, both: Estimate) -> None:
    """Marks links that a limiter as narrow as they are hides: they are only known to carry at least their rate."""
    for direction in ("up", "down"):
        capacity = model.find(level, name, direction)
        if capacity is not None and capacity.value is not None and both.value < capacity.value / PLATEAU:
            capacity.state = "at_least"
            capacity.explanations = ["limiter", f"{direction} link"]
            capacity.reason = (
                f"limiter or {direction} link: both directions together carry no more than this one alone, so the "
                f"limiter hides it; no traffic of this {level} can tell, its port's settings would"
            )
