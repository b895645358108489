"""Tests whether two levels (hosts and cabinets) describe a network, or whether cabinets form rows or similar groups.

There are two signs of more levels. Latencies to other cabinets fall into two groups with a clear gap. Or rounds to
which nothing is fitted (all cabinets to the second next, the first cabinet to each other) run at other rates than the
model says, since some pairs of cabinets share a link that the model does not have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from assay.model.discover import Gap, PivotView, VisitTimes, find_gap, halves
from assay.model.estimate import estimate, summed, typical
from assay.model.fitted import Model, flows_of
from assay.model.network import Topology
from assay.model.rounds import NAME, flows_that_count
from assay.model.study import EVERY_SECOND, OTHER_PARTNERS
from assay.records.schema import AnyRecord, Flows, Measurement
from assay.records.units import format_quantity, format_share

UNFITTED = ("strides", "two_cabinets", OTHER_PARTNERS, EVERY_SECOND)
MIN_HOSTS = 4  # hosts in which a gap is looked for
MIN_ERROR = 0.1  # of the model; more than a plateau's share (assay.model.study) and the noise of a round


def more_levels(records: Sequence[AnyRecord], model: Model) -> list[str]:
    """Returns the signs that there are more than two levels; empty where two describe all that was measured."""
    signs = [_by_latency(records, model.network.cabinets), *_by_rates(records, model)]
    return [sign for sign in signs if sign]


def _by_latency(records: Sequence[AnyRecord], cabinets: Topology) -> str:
    """The sign of more levels in the latencies; empty if there is none.

    The first pivot of the search for cabinets has measured all hosts. The latencies inside its cabinet form one group,
    those to other hosts another; a clear gap within a group is a sign.
    """
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if isinstance(record, Measurement) and (record.name, record.params.get("experiment")) == (
            NAME,
            "discover",
        ):
            samples = record.samples or ([record.median] if record.summary else [])
            if samples:
                times[str(record.params["pivot"])][str(record.subject.peer)].append(typical(samples))
    home = {host: name for name, hosts in cabinets.items() for host in hosts}
    for pivot, of_peers in times.items():
        for is_near in (True, False):
            group = {
                host: visits
                for host, visits in of_peers.items()
                if (home.get(host) == home.get(pivot)) == is_near
            }
            gap = _reproduced_gap(group) if len(cabinets) > 1 else None
            if gap is not None:
                where = (
                    f"inside {home.get(pivot)}" if is_near else f"from {home.get(pivot)} to other cabinets"
                )
                return (
                    f"{where} some hosts are {format_quantity(gap.near, 's')} away and the others "
                    f"{format_quantity(gap.far, 's')}"
                )
    return ""


def _reproduced_gap(times: VisitTimes) -> Gap | None:
    """A gap that odd and even visits see between the same hosts; None for few hosts, which may differ by chance."""
    if len(times) < MIN_HOSTS or any(len(visits) < 2 for visits in times.values()):
        return None
    gap = find_gap(times)
    odd, even = (PivotView(half, gap).near() for half in halves(times))
    return gap if odd == even else None


def _by_rates(records: Sequence[AnyRecord], model: Model) -> list[str]:
    """Of each kind of round that with the largest error of the model, if it is larger than MIN_ERROR."""
    worst: dict[str, tuple[float, str]] = {}
    for record in flows_that_count(records):
        kind = str(record.params.get("experiment"))
        if kind not in UNFITTED or not _is_modelled(record, model):
            continue
        predicted = model.network.total(flows_of(record))
        measured = estimate(summed(record.slices)).value
        error = predicted / measured - 1
        if abs(error) > max(MIN_ERROR, worst.get(kind, (0.0, ""))[0]):
            text = f"{_describe(record)}: {format_quantity(measured, 'B/s')}, and two levels let expect "
            worst[kind] = (
                abs(error),
                text + f"{format_quantity(predicted, 'B/s')} ({format_share(error)} off)",
            )
    return [text for _, text in worst.values()]


def _is_modelled(record: Flows, model: Model) -> bool:
    capacity = model.network.capacity
    ends = {*record.sources, *record.targets}
    return bool(record.slices) and all(("host", host, "up") in capacity for host in ends)


def _describe(record: Flows) -> str:
    if record.params["experiment"] == "strides":
        return f"all cabinets at once, each to the one {record.params['stride']} away"
    if record.params["experiment"] in (OTHER_PARTNERS, EVERY_SECOND):
        where = {"up": "to", "down": "from", "both": "to and from"}[str(record.params["direction"])]
        if record.params["experiment"] == EVERY_SECOND:
            return f"every second host of {record.params['cabinet']} {where} others"
        return f"{record.params['cabinet']} {where} other hosts than before"
    return f"{record.params['cabinet']} to {record.params['other']}"
