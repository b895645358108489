"""Fits link capacities to the rounds of a study.

Each link has an experiment in which it should be the limit; its capacity is the rate measured there. The link was
the limit if the predicted rate without it is higher. A link that never was the limit is known to carry at least
that rate (state "at_least"), and the model omits it. A limiter is a limit that both directions share. Where two
explanations give the same rates (a limiter as narrow as the up link; an up link and the only down link that it was
measured with), the record says so and names an experiment that would decide.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from assay.model.calls import EAGER, OIS, OR, OS, Overheads, fit_calls, parameters, time_at
from assay.model.carried import MARGIN, correct
from assay.model.estimate import Estimate, estimate, summed
from assay.model.network import Link, Network, Topology
from assay.model.rounds import Flow, flows_that_count
from assay.model.segments import Segment, fit_segments, points_of
from assay.model.study import EVERY_SECOND, FASTER, FEWER, OTHER_PARTNERS, PLATEAU
from assay.model.times import MessageTimes, sweeps
from assay.records.schema import AnyRecord, Capacity, Context, Flows, Scalar
from assay.records.units import format_quantity, format_share

# Both directions at once carry up to this share less than the sum of each: the acknowledgements of one direction take
# from the other, in TCP as in SimGrid's cross traffic. Less than that shows a link that both share.
ACKNOWLEDGEMENTS = 0.15
NEVER_BINDS = "never seen to be the limit"
ENVELOPE = 16  # B that SimGrid's MPI adds to every message


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


def fit(records: Sequence[AnyRecord], cabinets: Topology) -> Model:
    """The model with all capacities, latencies and message times that the records show."""
    rounds = flows_that_count(records)
    model = Model(Network(cabinets))
    of_hosts = [r for r in rounds if r.params.get("experiment") == "host"]
    _fit_hosts(model, of_hosts)
    correct(model.network, model.capacities, rounds, ["host"])
    _fit_inside_cabinets(model, [r for r in rounds if r.params.get("experiment") == "pairs"])
    correct(model.network, model.capacities, rounds, ["inside"])
    kinds = ("cabinet", OTHER_PARTNERS, EVERY_SECOND, "backbone")
    _fit_between_cabinets(model, [r for r in rounds if r.params.get("experiment") in kinds])
    correct(model.network, model.capacities, rounds, ["cabinet", "backbone"])
    _mark_behind_other_links(model, of_hosts)
    sizes = [int(r.params["size"]) for r in rounds if r.params.get("experiment") == "host"]
    model.size = max(sizes, default=0)
    model.library = next(
        (str(r.facts["mpi.library"]) for r in records if isinstance(r, Context) and "mpi.library" in r.facts),
        "",
    )
    times = sweeps(records)
    model.calls = fit_calls(records, times, lambda pair, size: _time_on_wire(model, pair, size))
    _fit_latencies(model, times)
    _fit_message_times(model, times)
    _add_call_parameters(model)
    return model


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


def _add_capacity(
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


# Hosts.


def _fit_hosts(model: Model, rounds: Sequence[Flows]) -> None:
    sums = _sums_of_hosts(rounds)
    _fit_up_and_down(model, sums)
    for host in model.network.cabinet_of:
        both = sums.get((host, "both"))
        link: Link = ("host", host, "limiter")
        if both is None:
            _add_capacity(model, link, None, "both directions at once were not measured for this host")
            continue
        touching = [flow for flow in both.flows if host in flow]
        alone = model.network.total(touching)
        carried = both.estimate
        if carried.value >= PLATEAU * alone:
            up_and_down = sum(model.network.capacity.get(("host", host, d), math.inf) for d in ("up", "down"))
            could_show = alone >= PLATEAU * up_and_down
            reason = f"{NEVER_BINDS}: both directions at once are as fast as each alone"
            explanations: list[str] = []
            if not could_show:
                model.undecided.add(host)
                partners = ", ".join(sorted({end for flow in touching for end in flow} - {host}))
                reason = f"limiter, or partners: {partners} could not take and give more at the same time"
                explanations = ["limiter", partners]
            _add_capacity(model, link, both, reason, binds=False, explanations=explanations)
            continue
        _add_limiter(model, link, both, "both directions at once carry less than each alone")


def _sums_of_hosts(rounds: Sequence[Flows]) -> dict[tuple[str, str], FlowSum]:
    """The sums by host and direction, of the last kind of round that has measured the host."""
    kinds = {"": 0, FEWER: 1, FASTER: 2}
    sums: dict[tuple[str, str], FlowSum] = {}
    last: dict[tuple[str, str], int] = defaultdict(int)
    for record in rounds:
        kind = kinds.get(str(record.params.get("partners", "")), 0)
        for centre in str(record.params["centres"]).split(","):
            key = centre, str(record.params["direction"])
            if key not in sums or kind > last[key]:
                sums[key], last[key] = FlowSum(), kind
            if kind == last[key]:
                sums[key].add(record, [i for i, flow in enumerate(flows_of(record)) if centre in flow])
    return sums


def _mark_behind_other_links(model: Model, rounds: Sequence[Flows]) -> None:
    """Marks links of hosts as "at_least" where the inside of a cabinet, or the links between cabinets, explain the rate
    of the round as well."""
    network, home = model.network, model.network.cabinet_of
    for (host, direction), carried_sum in _sums_of_hosts(rounds).items():
        capacity = model.find("host", host, "limiter" if direction == "both" else direction)
        if capacity is None or capacity.state != "measured":
            continue
        touching = [i for i, flow in enumerate(carried_sum.flows) if host in flow]
        far = any(home[carried_sum.flows[i][0]] != home[carried_sum.flows[i][1]] for i in touching)
        if not far and ("inside", home[host], "through") not in network.capacity:
            continue
        link: Link = ("host", host, capacity.direction)
        others = network.predict(carried_sum.flows, without=[link])
        if carried_sum.estimate.value >= PLATEAU * sum(others[i] for i in touching):
            where = "links between cabinets" if far else "the inside of the cabinet"
            capacity.state = "at_least"
            capacity.reason = f"{capacity.direction} of the host, or {where}, which its flows passed"
            capacity.explanations = [f"{capacity.direction} of the host", where]
            if direction == "both":
                del network.capacity[link]
                model.undecided.add(host)


def _fit_up_and_down(model: Model, sums: dict[tuple[str, str], FlowSum]) -> None:
    """Takes the rates as capacities first. Links that their partners may have limited then become "at_least"."""
    hosts = list(model.network.cabinet_of)
    links = [(host, direction) for host in hosts for direction in ("up", "down")]
    for host, direction in links:
        if (host, direction) in sums:
            model.network.capacity["host", host, direction] = sums[host, direction].estimate.value
    for host, direction in links:
        carried_sum = sums.get((host, direction))
        link: Link = ("host", host, direction)
        if carried_sum is None:
            _add_capacity(model, link, None, "not measured for this host")
            continue
        touching = [flow for flow in carried_sum.flows if host in flow]
        others = model.network.total(touching, without=[link])
        if carried_sum.estimate.value < PLATEAU * others:
            _add_capacity(
                model,
                link,
                carried_sum,
                f"{'to' if direction == 'up' else 'from'} {len(touching)} hosts at once",
            )
        else:
            partners = ", ".join(sorted({end for flow in touching for end in flow} - {host}))
            reason = f"as much as {partners} could take; another partner at the same time would tell more"
            explanations = [f"{direction} link", partners]
            _add_capacity(model, link, carried_sum, reason, binds=True, explanations=explanations)
            model.capacities[-1].state = "at_least"


def _add_limiter(model: Model, link: Link, both: FlowSum, reason: str) -> None:
    """Adds a limit that both directions share; "at_least" where acknowledgements explain it as well."""
    level, name, _ = link
    each = sum(model.network.capacity.get((level, name, direction), math.inf) for direction in ("up", "down"))
    if both.estimate.value < (1 - ACKNOWLEDGEMENTS) * each or math.isinf(each):
        _add_capacity(model, link, both, reason)
        _mark_hidden_by_limiter(model, level, name, both.estimate)
        return
    reason = (
        f"limiter, or acknowledgements: both directions at once carry {format_share(1 - both.estimate.value / each)} "
        "less than each alone"
    )
    _add_capacity(model, link, both, reason, is_shared=True, explanations=["limiter", "acknowledgements"])


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


# Inside a cabinet.


def _fit_inside_cabinets(model: Model, rounds: Sequence[Flows]) -> None:
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
            _add_capacity(model, link, None, "a cabinet of one has no pairs")
        elif best[2]:
            _add_capacity(model, link, best[1], f"plateau of {len(best[1].flows)} flows inside the cabinet")
        else:
            reason = f"{NEVER_BINDS}: {len(best[1].flows)} flows at once are as fast as their hosts"
            _add_capacity(model, link, best[1], reason, binds=False)


def _carried(record: Flows, hosts: Sequence[str]) -> float:
    return sum(value for source, value in zip(record.sources, record.values, strict=True) if source in hosts)


# Between cabinets.


def _fit_between_cabinets(model: Model, rounds: Sequence[Flows]) -> None:
    names = list(model.network.cabinets)
    if len(names) < 2:
        return
    if not rounds:
        for name in names:
            for direction in ("up", "down"):
                _add_capacity(model, ("cabinet", name, direction), None, "not measured")
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
            _add_capacity(
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
    _add_capacity(
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
            _add_limiter(model, link, limited[name], reason)
        elif name in limiters:
            reason = "limiter or backbone: all cabinets together carry no more than this one alone"
            explanations = ["limiter", "backbone"]
            _add_capacity(model, link, limiters[name], reason, binds=False, explanations=explanations)
        else:
            _add_capacity(model, link, sums.get((name, "both")), NEVER_BINDS, binds=False)
    binds = all_at_once.samples != [] and total < PLATEAU * network.total(all_at_once.flows)
    reason = "plateau of all cabinets at once, each to the next" if binds else NEVER_BINDS
    _add_capacity(model, backbone, all_at_once, reason, binds=binds)


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
            _add_capacity(model, link, None, "not measured")
            continue
        del network.capacity[link]
        value, direction = carried_sum.estimate.value, link[2]
        if value >= PLATEAU * network.total(carried_sum.flows):
            reason, explanations = f"{NEVER_BINDS}: as much as its hosts could take", []
            if value < PLATEAU * _max_exchange(network, link):
                reason = "cabinet link, or the other ends: they could take or give no more at the same time"
                explanations = ["cabinet link", "the other ends"]
            _add_capacity(model, link, carried_sum, reason, binds=False, explanations=explanations)
        elif value >= PLATEAU * total:
            reason = "cabinet link or backbone: this cabinet alone carries what all of them do together"
            explanations = ["cabinet link", "backbone"]
            _add_capacity(model, link, carried_sum, reason, binds=False, explanations=explanations)
        else:
            preposition = "to" if direction == "up" else "from"
            reason = f"plateau of {len(carried_sum.flows)} flows {preposition} all other cabinets"
            _add_capacity(model, link, carried_sum, reason)


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


# Times of messages.


def _fit_latencies(model: Model, times: Mapping[str, MessageTimes]) -> None:
    for level, level_times in times.items():
        small = level_times.small_sizes()
        carried_sum = FlowSum(samples=[level_times.time_of(size).value for size in small])
        carried_sum.evidence = [r.id for size in small for r in level_times.visits[size]]
        rest = [
            p.time for p in points_of(level_times, time_in_calls=model.calls.time_in_calls) if p.size in small
        ]
        setattr(model, level, estimate(rest).value)
        where = "inside a cabinet" if level == "inside" else "between cabinets"
        reason = f"half a round trip of up to {max(small)} B {where}"
        _add_capacity(model, ("network", level, "latency"), carried_sum, reason, binds=False, unit="s")
        model.capacities[-1].state = "measured"


def _time_on_wire(model: Model, pair: Flow, size: int) -> float:
    """The time in s that a message needs at the pair's measured rate; 0 for sizes whose rate has a factor."""
    return (size + ENVELOPE) * model.network.gap(pair) if model.size and size >= model.size else 0.0


def _fit_message_times(model: Model, times: Mapping[str, MessageTimes]) -> None:
    """Fits factors of latency and rate by message size to all ping-pong pairs: one set holds for the platform.

    From ``model.size`` bytes on the rate factor is 1.
    """
    points = []
    for level, level_times in times.items():
        if gap := model.network.gap(level_times.pair):
            latency = max(model.inside, getattr(model, level))
            points += points_of(level_times, latency, gap, ENVELOPE, model.calls.time_in_calls)
    model.segments = fit_segments(points, model.size)


def _add_call_parameters(model: Model) -> None:
    """Adds a record for each parameter of the calls: the time of a call with 1 B, or the threshold in B."""
    values = parameters(model.calls)
    if model.calls.eager is not None:
        values[EAGER] = str(model.calls.eager)
    first = {OS: model.calls.send, OIS: model.calls.isend, OR: model.calls.receive}
    for key, source in model.calls.sources.items():
        value: float | None = None
        if key in values:
            value = time_at(first[key], 1) if key in first else float(values[key])
        model.capacities.append(
            Capacity(
                level="network",
                resource=key,
                direction="latency",
                unit="s" if key in first else "B",
                state="unknown" if value is None else "measured",
                value=value,
                low=value,
                high=value,
                n=len(model.calls.evidence.get(key, [])),
                reason=source if value is None else f"{source}: {values[key]}",
                evidence=model.calls.evidence.get(key, []),
            )
        )
