"""Fits link capacities to the rounds of a study.

Each link has an experiment in which it should be the limit; its capacity is the rate measured there. The link was
the limit if the predicted rate without it is higher. A link that never was the limit is known to carry at least
that rate (state "at_least"), and the model omits it. Where two explanations give the same rates (an up link and the
only down link that it was measured with), the record says so and names an experiment that would decide. Here are the
hosts and the times of messages; cabinets.py has the links that hosts share.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from assay.model.cabinets import fit_between_cabinets, fit_inside_cabinets
from assay.model.calls import EAGER, OIS, OR, OS, fit_calls, parameters, time_at
from assay.model.carried import correct
from assay.model.estimate import estimate
from assay.model.fitted import NEVER_BINDS, FlowSum, Model, add_capacity, add_limiter, flows_of
from assay.model.network import Link, Network, Topology
from assay.model.rounds import Flow, flows_that_count
from assay.model.segments import fit_segments, points_of
from assay.model.study import EVERY_SECOND, FASTER, FEWER, OTHER_PARTNERS, PLATEAU
from assay.model.times import MessageTimes, sweeps
from assay.records.schema import AnyRecord, Capacity, Context, Flows

ENVELOPE = 16  # B that SimGrid's MPI adds to every message


def fit(records: Sequence[AnyRecord], cabinets: Topology) -> Model:
    """The model with all capacities, latencies and message times that the records show."""
    rounds = flows_that_count(records)
    model = Model(Network(cabinets))
    of_hosts = [r for r in rounds if r.params.get("experiment") == "host"]
    _fit_hosts(model, of_hosts)
    correct(model.network, model.capacities, rounds, ["host"])
    fit_inside_cabinets(model, [r for r in rounds if r.params.get("experiment") == "pairs"])
    correct(model.network, model.capacities, rounds, ["inside"])
    kinds = ("cabinet", OTHER_PARTNERS, EVERY_SECOND, "backbone")
    fit_between_cabinets(model, [r for r in rounds if r.params.get("experiment") in kinds])
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


# Hosts.


def _fit_hosts(model: Model, rounds: Sequence[Flows]) -> None:
    sums = _sums_of_hosts(rounds)
    _fit_up_and_down(model, sums)
    for host in model.network.cabinet_of:
        both = sums.get((host, "both"))
        link: Link = ("host", host, "limiter")
        if both is None:
            add_capacity(model, link, None, "both directions at once were not measured for this host")
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
            add_capacity(model, link, both, reason, binds=False, explanations=explanations)
            continue
        add_limiter(model, link, both, "both directions at once carry less than each alone")


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
            add_capacity(model, link, None, "not measured for this host")
            continue
        touching = [flow for flow in carried_sum.flows if host in flow]
        others = model.network.total(touching, without=[link])
        if carried_sum.estimate.value < PLATEAU * others:
            add_capacity(
                model,
                link,
                carried_sum,
                f"{'to' if direction == 'up' else 'from'} {len(touching)} hosts at once",
            )
        else:
            partners = ", ".join(sorted({end for flow in touching for end in flow} - {host}))
            reason = f"as much as {partners} could take; another partner at the same time would tell more"
            explanations = [f"{direction} link", partners]
            add_capacity(model, link, carried_sum, reason, binds=True, explanations=explanations)
            model.capacities[-1].state = "at_least"


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
        add_capacity(model, ("network", level, "latency"), carried_sum, reason, binds=False, unit="s")
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
