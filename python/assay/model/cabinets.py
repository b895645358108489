"""Fits the limits inside the cabinets and between them: their links, their limiters, and the backbone of all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from assay.model.carried import MARGIN
from assay.model.fitted import NEVER_BINDS, FlowSum, Model, add_capacity, add_limiter
from assay.model.network import Link, Network
from assay.model.study import OTHER_PARTNERS, PLATEAU
from assay.records.schema import Flows, Scalar
from assay.records.units import format_quantity


def fit_inside_cabinets(model: Model, rounds: Sequence[Flows]) -> None:
    for name, hosts in model.network.cabinets.items():
        link: Link = ("inside", name, "through")
        best: tuple[float, FlowSum, bool] | None = None
        for shape in dict.fromkeys(str(r.params["shape"]) for r in rounds):
            most = max(int(r.params["count"]) for r in rounds if r.params["shape"] == shape)
            carried_sum = FlowSum()
            for record in rounds:
                if (record.params["shape"], record.params["count"]) == (shape, most):
                    carried_sum.add(record, [i for i, source in enumerate(record.sources) if source in hosts])
            carried_sum.flows = [flow for flow in carried_sum.flows if flow[0] in hosts]
            if not carried_sum.flows:
                continue
            value = carried_sum.estimate.value
            # Less than the hosts can carry, and less than a single pair (or ring) times their number.
            single = [r for r in rounds if (r.params["shape"], r.params["count"]) == (shape, 1)]
            alone = min((_carried(r, hosts) for r in single), default=0.0)
            count = len(carried_sum.flows) / {"send": 1, "sendrecv": 2, "ring": 4}[shape]
            binds = value < PLATEAU * min(model.network.total(carried_sum.flows), count * alone)
            # Hosts that send and receive may be limited by a limiter that no round could show.
            both_ways = {a for a, _ in carried_sum.flows} & {b for _, b in carried_sum.flows}
            binds = binds and not (both_ways & model.undecided)
            if best is None or value > best[0]:  # the highest rate of all shapes
                best = (value, carried_sum, binds)
        if best is None:
            add_capacity(model, link, None, "a cabinet of one has no pairs")
        elif best[2]:
            add_capacity(model, link, best[1], f"plateau of {len(best[1].flows)} flows inside the cabinet")
        else:
            reason = f"{NEVER_BINDS}: {len(best[1].flows)} flows at once are as fast as their hosts"
            add_capacity(model, link, best[1], reason, binds=False)


def _carried(record: Flows, hosts: Sequence[str]) -> float:
    return sum(value for source, value in zip(record.sources, record.values, strict=True) if source in hosts)


# Between cabinets.


def fit_between_cabinets(model: Model, rounds: Sequence[Flows]) -> None:
    names = list(model.network.cabinets)
    if len(names) < 2:
        return
    if not rounds:
        for name in names:
            for direction in ("up", "down"):
                add_capacity(model, ("cabinet", name, direction), None, "not measured")
        return
    sums: dict[tuple[str, str], FlowSum] = defaultdict(FlowSum)
    others: dict[tuple[str, str], dict[Scalar, FlowSum]] = defaultdict(lambda: defaultdict(FlowSum))
    for record in rounds:
        everything = range(len(record.sources))
        if record.params["experiment"] == "backbone":
            sums["", "backbone"].add(record, everything)
            continue
        key = str(record.params["cabinet"]), str(record.params["direction"])
        count = record.params.get("count", record.params["experiment"])
        others[key][count].add(record, everything)
    for key, by_count in others.items():
        chosen = max(by_count, key=lambda count: count if isinstance(count, int) else 0)
        if OTHER_PARTNERS in by_count and _tells_more(model, by_count[OTHER_PARTNERS], by_count[chosen]):
            chosen = OTHER_PARTNERS
        sums[key] = by_count.pop(chosen)
    if len(names) == 2:
        _fit_two_cabinets(model, names, sums)
    else:
        _fit_many_cabinets(model, names, sums)
        _mark_several_paths(model, others)


def _tells_more(model: Model, other: FlowSum, first: FlowSum) -> bool:
    """Whether a round with other partners tells more about the cabinet's link: it carried more, or its hosts could."""
    could = model.network.total(other.flows) > model.network.total(first.flows) * (1 + MARGIN)
    return could or other.estimate.value > first.estimate.value / PLATEAU


def _mark_several_paths(model: Model, others: Mapping[tuple[str, str], Mapping[Scalar, FlowSum]]) -> None:
    """Marks the links of cabinets as "at_least" that carry less in other rounds than the model lets expect: it is not
    one link that all flows share.

    ``others``: by cabinet and direction, the rounds with fewer flows or with partners that carried less.
    """
    for (name, direction), rounds in others.items():
        capacity = model.find("cabinet", name, "limiter" if direction == "both" else direction)
        if capacity is None or capacity.state != "measured":
            continue
        for less in rounds.values():
            expected = model.network.total(less.flows)
            if less.estimate.high < PLATEAU * expected:
                capacity.state = "at_least"
                capacity.reason = (
                    f"{len(less.flows)} flows carried {format_quantity(less.estimate.value, 'B/s')} where one link of "
                    f"this capacity carries {format_quantity(expected, 'B/s')}: several paths, or a limit further on"
                )
                capacity.explanations = ["several paths", "a limit further on"]
                break


def _fit_two_cabinets(model: Model, names: Sequence[str], sums: dict[tuple[str, str], FlowSum]) -> None:
    """With two cabinets all traffic passes both cabinets' links, so each limit has several explanations: the model has
    the limit, and no link has the state "measured"."""
    a, b = names
    ambiguity = "the two cannot be told apart with two cabinets, a third would tell"
    for source, target, direction in ((a, b, "up"), (b, a, "down")):
        carried_sum = sums[a, direction]
        binds = carried_sum.estimate.value < PLATEAU * model.network.total(carried_sum.flows)
        reason = f"plateau from {source} to {target}: the up link of {source} or the down link of {target}; {ambiguity}"
        if not binds:
            reason = f"{NEVER_BINDS}: all hosts from {source} to {target} are as fast as they can be alone"
        explanations = [f"up link of {source}", f"down link of {target}"] if binds else []
        for link in (("cabinet", source, "up"), ("cabinet", target, "down")):
            add_capacity(
                model, link, carried_sum, reason, binds=binds, is_shared=binds, explanations=explanations
            )
    both = sums[a, "both"]
    binds = both.estimate.value < PLATEAU * model.network.total(both.flows)
    reason = (
        f"plateau of both directions between {a} and {b}: a backbone, or a limiter at either cabinet; with four "
        "cabinets, two pairs of them at the same time would tell"
    )
    explanations = ["backbone", "a limiter of either cabinet"] if binds else []
    if binds and model.undecided:
        reason += f"; or limiters of hosts that no round could show ({len(model.undecided)})"
        explanations.append("limiters of hosts")
    link = ("backbone", "", "through")
    add_capacity(
        model,
        link,
        both,
        reason if binds else NEVER_BINDS,
        binds=binds,
        is_shared=binds,
        explanations=explanations,
    )


def _fit_many_cabinets(model: Model, names: Sequence[str], sums: dict[tuple[str, str], FlowSum]) -> None:
    network, backbone = model.network, ("backbone", "", "through")
    all_at_once = sums["", "backbone"]
    total = all_at_once.estimate.value if all_at_once.samples else float("inf")
    _fit_cabinet_links(model, names, sums, total)
    limiters = {}
    for name in names:
        both = sums.get((name, "both"))
        if both is not None and both.estimate.value < PLATEAU * network.total(both.flows):
            limiters[name] = both
    limited = {name: both for name, both in limiters.items() if both.estimate.value < PLATEAU * total}
    for name in names:
        link = ("cabinet", name, "limiter")
        if name in limited:
            reason = "both directions at once carry less than each alone; all cabinets, more"
            add_limiter(model, link, limited[name], reason)
        elif name in limiters:
            reason = "limiter or backbone: all cabinets together carry no more than this one alone"
            explanations = ["limiter", "backbone"]
            add_capacity(model, link, limiters[name], reason, binds=False, explanations=explanations)
        else:
            add_capacity(model, link, sums.get((name, "both")), NEVER_BINDS, binds=False)
    binds = all_at_once.samples != [] and total < PLATEAU * network.total(all_at_once.flows)
    reason = "plateau of all cabinets at once, each to the next" if binds else NEVER_BINDS
    add_capacity(model, backbone, all_at_once, reason, binds=binds)


def _fit_cabinet_links(
    model: Model, names: Sequence[str], sums: dict[tuple[str, str], FlowSum], total: float
) -> None:
    """Takes the rates as capacities first. Links that the other cabinets may have limited then become "at_least".

    ``total``: the rate of all cabinets at once, in B/s.
    """
    network = model.network
    links: list[Link] = [("cabinet", name, direction) for name in names for direction in ("up", "down")]
    network.capacity |= {link: sums[link[1:]].estimate.value for link in links if link[1:] in sums}
    for link in links:
        carried_sum = sums.get(link[1:])
        if carried_sum is None:
            add_capacity(model, link, None, "not measured")
            continue
        del network.capacity[link]
        value, direction = carried_sum.estimate.value, link[2]
        if value >= PLATEAU * network.total(carried_sum.flows):
            reason, explanations = f"{NEVER_BINDS}: as much as its hosts could take", []
            if value < PLATEAU * _max_exchange(network, link):
                reason = "cabinet link, or the other ends: they could take or give no more at the same time"
                explanations = ["cabinet link", "the other ends"]
            add_capacity(model, link, carried_sum, reason, binds=False, explanations=explanations)
        elif value >= PLATEAU * total:
            reason = "cabinet link or backbone: this cabinet alone carries what all of them do together"
            explanations = ["cabinet link", "backbone"]
            add_capacity(model, link, carried_sum, reason, binds=False, explanations=explanations)
        else:
            preposition = "to" if direction == "up" else "from"
            reason = f"plateau of {len(carried_sum.flows)} flows {preposition} all other cabinets"
            add_capacity(model, link, carried_sum, reason)


def _max_exchange(network: Network, link: Link) -> float:
    """The most that the hosts of a cabinet and all others can exchange in that direction, in B/s."""
    _, name, direction = link
    own, opposite = ("up", "down") if direction == "up" else ("down", "up")
    inside = [network.capacity.get(("host", host, own), math.inf) for host in network.cabinets[name]]
    outside = [
        network.capacity.get(("host", host, opposite), math.inf)
        for other, hosts in network.cabinets.items()
        if other != name
        for host in hosts
    ]
    return min(sum(inside), sum(outside))
