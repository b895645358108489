"""Finds pairs of hosts whose two directions take turns although the links would carry both at once.

A host that sends to one host and receives from another shows what its links carry in both directions. If two hosts
that exchange messages reach less, neither link nor limiter is the cause: the MPI makes the directions wait for each
other, as Open MPI's put protocol does on one TCP socket.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from assay.explain.evidence import Evidence
from assay.records.schema import Finding, Flows, Subject
from assay.records.units import format_quantity

# Of the rate that the hosts reach with other partners. The uneven sharing of TCP alone does not lower it this far.
MAX_SHARE = 0.85


def taking_turns(evidence: Evidence) -> list[Finding]:
    """Reports the pair of a saturation study that loses most, as one finding for all such pairs."""
    flows = [r for r in evidence.records if isinstance(r, Flows) and r.values]
    capacities = _both_ways(flows)
    pairs: dict[tuple[str, str], list[Flows]] = defaultdict(list)
    for record in flows:
        if (record.params.get("shape"), record.params.get("count")) == ("sendrecv", 1):
            for source, target in zip(record.sources[::2], record.targets[::2], strict=True):
                pairs[source, target].append(record)
    losses = []
    for (a, b), records in pairs.items():
        if a in capacities and b in capacities:
            joint_rate = median(sum(_rates(record, a, b)) for record in records)
            losses.append(
                (
                    joint_rate / min(capacities[a], capacities[b]),
                    joint_rate,
                    a,
                    b,
                    [record.id for record in records],
                )
            )
    worst = min(losses, default=None)
    if worst is None or worst[0] >= MAX_SHARE:
        return []
    share, joint_rate, a, b, ids = worst
    separate_rate = format_quantity(min(capacities[a], capacities[b]), "B/s")
    return [
        Finding(
            rule="taking_turns",
            cause=f"the two directions between {a} and {b} take turns: {format_quantity(joint_rate, 'B/s')} together, "
            f"where each of the two carries {separate_rate} with other partners",
            subject=Subject(host=a, peer=b),
            side="pair",
            severity="advice",
            effect=share - 1.0,
            confidence=0.9,
            evidence=ids,
            details=[
                f"{len([loss for loss in losses if loss[0] < MAX_SHARE])} of {len(losses)} pairs lose as much"
            ],
            fix="over TCP with Open MPI: --mca btl_tcp_flags 1 (send, not put); a simulator does not show it",
        )
    ]


def _rates(record: Flows, a: str, b: str) -> list[float]:
    ends = zip(record.sources, record.targets, record.values, strict=True)
    return [rate for source, target, rate in ends if {source, target} == {a, b}]


def _both_ways(flows: list[Flows]) -> dict[str, float]:
    """Returns the rate (B/s) of each host in both directions at once, with two different partners."""
    sums: dict[str, list[float]] = defaultdict(list)
    for record in flows:
        if (record.params.get("experiment"), record.params.get("direction")) != ("host", "both"):
            continue
        for centre in str(record.params.get("centres", "")).split(","):
            ends = zip(record.sources, record.targets, record.values, strict=True)
            sums[centre].append(sum(rate for source, target, rate in ends if centre in (source, target)))
    return {host: median(totals) for host, totals in sums.items()}
