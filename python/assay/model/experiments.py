"""The experiments of a saturation study, as a generator of rounds.

``experiments`` yields a round and is sent its result. Each phase measures only what the earlier ones left
open: a single pair (how long messages must be), latencies (which hosts share a cabinet), the sweep over
message sizes (where protocols change), the calls of MPI themselves, all pairs of every cabinet at once (fewer
pairs only where a plateau shows), each host with two partners (so that no partner is the limit), and each
cabinet with all others. Short messages are then timed once more, minutes after the first time. A round is
repeated until its result is precise enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import zip_longest

from assay.errors import UserError
from assay.model.calls import time_calls
from assay.model.contention import discover_by_contention
from assay.model.discover import discover
from assay.model.network import Topology
from assay.model.rounds import Flow, Result, Round
from assay.model.study import (
    EVERY_SECOND,
    FASTER,
    FEWER,
    OTHER_PARTNERS,
    PLATEAU,
    Rounds,
    Study,
    repeat,
    until_steady,
)
from assay.model.sweep import confirm, sweep
from assay.records.schema import Scalar

MAX_PARTNERS = 4  # of a host in one direction
STEPS = 8  # limit of the measured steps of an all-to-all, evenly spread
DIRECTIONS = ("up", "down", "both")
ROUNDS_OF_CABINET = 3  # a direction: one host, all, and half of them or the knee
ROUNDS_OF_PLATEAU = 2  # more: other partners, and every second host


def expected_rounds(study: Study) -> int:
    """The approximate number of rounds of the study; 0 while the cabinets are unknown."""
    if not study.cabinets:
        return 0
    strides = 2 * min(STEPS, len(study.cabinets))
    each = len(DIRECTIONS) * (ROUNDS_OF_CABINET + ROUNDS_OF_PLATEAU)
    trunks = {1: 0, 2: each}.get(len(study.cabinets), each * len(study.cabinets) + 1 + strides)
    stars = 1 + len(star_rounds(study.cabinets))  # the first one also with fewer hosts at once
    return 1 + 40 + len(DIRECTIONS) * stars + trunks + STEPS


def experiments(study: Study) -> Rounds:
    """Yields all rounds of a study. Does not search for cabinets if ``study`` names them already."""
    if len(study.hosts) < 2:
        raise UserError("a single host has no network to saturate", "name at least two hosts")
    yield from _calibrate(study)
    if not study.cabinets:
        yield from _find_cabinets(study)
    yield from sweep(study)
    yield from time_calls(study)
    yield from _inside(study)
    yield from _hosts(study)
    yield from _between(study)
    yield from _all_to_all(study)
    yield from confirm(study)


def _find_cabinets(study: Study) -> Rounds:
    """Finds the cabinets by latency; by contention where all latencies are alike."""
    study.phase = "finding the cabinets"
    cabinets, study.grouped_by = (yield from discover(study.hosts, study.effort.round_trips)), "latency"
    if len(cabinets) == 1:
        cabinets, study.grouped_by = (yield from discover_by_contention(study)), "contention"
    if not cabinets:
        cabinets, study.grouped_by = {"c1": list(study.hosts)}, ""
    study.cabinets = cabinets


def _calibrate(study: Study) -> Rounds:
    """Measures the rate of a single pair, from which message sizes and durations follow."""
    study.phase = "one pair"
    flow = (study.hosts[0], study.hosts[1])
    params: dict[str, Scalar] = {"experiment": "first"}
    result = yield from until_steady(
        study, Round((flow,), study.effort.min_size, study.effort.seconds, params=params)
    )
    study.pair_rate = result.total


def _inside(study: Study) -> Rounds:
    """1 to n pairs in every cabinet, all cabinets at once, since they share nothing: send, sendrecv, rings of four."""
    study.phase = "pairs inside the cabinets"
    for shape in ("send", "sendrecv", "ring"):
        most = max(most_of(shape, len(hosts)) for hosts in study.cabinets.values())
        if most == 0:
            continue
        alone = yield from _pairs(study, shape, 1)
        together = yield from _pairs(study, shape, most) if most > 1 else _without_rounds(alone)
        if most > 2:
            middle = yield from _pairs(study, shape, (most + 1) // 2)
            if together < PLATEAU * most * alone:  # a plateau: find its knee
                knee = max(2, min(most - 1, round(together / alone)))
                if knee not in (1, (most + 1) // 2, most) and middle >= PLATEAU * together:
                    yield from _pairs(study, shape, knee)


def _without_rounds(value: float) -> Generator[Round, Result, float]:
    """Returns the value as an experiment without rounds."""
    return value
    yield


def _pairs(study: Study, shape: str, count: int) -> Generator[Round, Result, float]:
    """The rate of all flows of the largest cabinet, in B/s."""
    flows: list[Flow] = []
    for hosts in study.cabinets.values():
        flows += shape_flows(hosts, shape, count)
    params: dict[str, Scalar] = {"experiment": "pairs", "shape": shape, "count": count}
    slow = study.pair_rate / 2
    request = Round(tuple(flows), study.size, study.seconds(slow), params=params)
    result = yield from repeat(study, request, list(study.cabinets.values()))
    carried: dict[str, float] = defaultdict(float)
    for (source, _), rate in zip(flows, result.flows.values if result.flows else [], strict=True):
        carried[study.home[source]] += rate
    for name, rate in carried.items():
        study.inside[name] = max(study.inside.get(name, 0.0), rate)
    largest = max(study.cabinets, key=lambda name: len(study.cabinets[name]))
    return carried[largest]


def most_of(shape: str, hosts: int) -> int:
    """How many pairs or rings these hosts can form at once."""
    return max(hosts // 4, int(hosts == 3)) if shape == "ring" else hosts // 2


def shape_flows(hosts: Sequence[str], shape: str, count: int) -> list[Flow]:
    """At most ``count`` disjoint pairs, or rings of four, of these hosts. Three hosts are one ring."""
    if shape == "ring":
        if len(hosts) == 3:
            return list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))
        rings = [hosts[4 * i : 4 * i + 4] for i in range(min(count, len(hosts) // 4))]
        return [(ring[k], ring[(k + 1) % 4]) for ring in rings for k in range(4)]
    half = len(hosts) // 2
    pairs = [(hosts[i], hosts[half + i]) for i in range(min(count, half))]
    return pairs if shape == "send" else [flow for a, b in pairs for flow in ((a, b), (b, a))]


def _hosts(study: Study) -> Rounds:
    """Measures each host with two partners: sending, receiving, and both at once. Several hosts of a cabinet are
    measured in a round; again with fewer at once where they shared a limit. A host whose partners may have been the
    limit is measured again with the fastest partners of its cabinet."""
    study.phase = "each host"
    for direction in DIRECTIONS:
        seconds = 0.0
        for number, stars in enumerate(star_rounds(study.cabinets)):
            if len(stars[0][1]) < 2 and direction == "both" and len(study.hosts) > 2:
                continue
            flows = {centre: star_flows(centre, partners, direction) for centre, partners in stars}
            seconds = yield from _stars(study, flows, direction, seconds=seconds)
            yield from _repeat_with_fewer_at_once(study, flows, direction, is_first=number == 0)
        if direction == "both":
            yield from _repeat_with_faster_partners(study, ("both",))
        elif direction == "down":  # a sender's partners receive, so both directions have to be known
            yield from _repeat_with_faster_partners(study, ("up", "down"))


def _stars(
    study: Study,
    stars: Mapping[str, Sequence[Flow]],
    direction: str,
    partners: str = "",
    seconds: float = 0.0,
) -> Generator[Round, Result, float]:
    """Measures the flows of several hosts at once, and notes the rate of each. ``seconds``: how long a round of other
    hosts took. Returns how long it took."""
    params: dict[str, Scalar] = {"experiment": "host", "direction": direction, "centres": ",".join(stars)}
    if partners:
        params["partners"] = partners
    flows = tuple(flow for flows_of_star in stars.values() for flow in flows_of_star)
    lasts = max(seconds, study.seconds(study.pair_rate / 2))
    result = yield from repeat(study, Round(flows, study.size, lasts, params=params), [[c] for c in stars])
    rates = dict(zip(flows, result.flows.values if result.flows else [], strict=False))
    for centre, flows_of_star in stars.items():
        study.rates[centre, direction] = sum(rates.get(flow, 0.0) for flow in flows_of_star)
    return result.seconds


def _repeat_with_fewer_at_once(
    study: Study, stars: Mapping[str, Sequence[Flow]], direction: str, is_first: bool
) -> Rounds:
    """Measures the hosts of a cabinet with fewer at once if they have shared a limit in the round of ``stars``.

    Whether they have is seen from one of them alone, the fastest: a shared limit holds the fastest back first. It is
    looked for in the first round, and where the hosts carried as much as was ever seen inside their cabinet.
    """
    of_cabinet: dict[str, list[str]] = defaultdict(list)
    for centre in stars:
        of_cabinet[study.home[centre]].append(centre)
    together: dict[str, float] = {}  # the rate of the fastest host of each cabinet that is asked
    for name, centres in of_cabinet.items():
        fastest = max(centres, key=lambda centre: study.rates[centre, direction])
        carried = sum(study.rates[centre, direction] for centre in centres)
        if len(centres) > 1 and (is_first or carried >= PLATEAU * study.inside.get(name, 0.0)):
            together[fastest] = study.rates[fastest, direction]
    if not together:
        return
    yield from _stars(study, {centre: stars[centre] for centre in together}, direction, FEWER)
    waiting: dict[str, list[list[str]]] = {}  # by cabinet: hosts that are measured at once
    for fastest, rate in together.items():
        alone = study.rates[fastest, direction]
        if rate >= PLATEAU * alone:
            continue
        name = study.home[fastest]
        study.crowded.add(name)
        others = [centre for centre in of_cabinet[name] if centre != fastest]
        at_once = max(1, int(PLATEAU * rate * len(of_cabinet[name]) / alone))
        waiting[name] = [others[i : i + at_once] for i in range(0, len(others), at_once)]
    for groups in zip_longest(*waiting.values(), fillvalue=()):
        chosen = {centre: stars[centre] for group in groups for centre in group}
        yield from _stars(study, chosen, direction, FEWER)


def _repeat_with_faster_partners(study: Study, directions: Sequence[str]) -> Rounds:
    """Measures hosts again whose partners were the limit, where others of the cabinet can receive or send more."""
    first = {c: partners for stars in star_rounds(study.cabinets) for c, partners in stars}
    for direction in directions:
        rounds: list[dict[str, list[Flow]]] = []
        for hosts in study.cabinets.values():
            for centre in hosts:
                before = star_flows(centre, first.get(centre, []), direction)
                if not _is_held_back(study, centre, direction, before):
                    continue
                flows = faster_flows(study, centre, hosts, direction)
                if _partners_rate(study, centre, flows) > _partners_rate(study, centre, before) / PLATEAU:
                    _add_to_free_round(study, rounds, centre, flows)
        for stars in rounds:
            yield from _stars(study, stars, direction, FASTER)


def _add_to_free_round(
    study: Study, rounds: list[dict[str, list[Flow]]], centre: str, flows: list[Flow]
) -> None:
    """Adds the flows to the first round in which none of their hosts takes part, and of a cabinet whose hosts share a
    limit no other host."""
    members = {end for flow in flows for end in flow}
    if study.home[centre] in study.crowded:
        members |= set(study.cabinets[study.home[centre]])
    for stars in rounds:
        if not members & {end for flows_of_star in stars.values() for flow in flows_of_star for end in flow}:
            stars[centre] = flows
            return
    rounds.append({centre: flows})


def _partners_rate(study: Study, centre: str, flows: Sequence[Flow]) -> float:
    """The highest rate in B/s at which the partners receive from a host and send to it, if the host does not limit it.
    Each partner has a single flow."""
    rates = study.rates
    return sum(rates.get((b, "down"), 0.0) if a == centre else rates.get((a, "up"), 0.0) for a, b in flows)


def _is_held_back(study: Study, centre: str, direction: str, flows: Sequence[Flow]) -> bool:
    """Whether the partners, not the host, may have been the limit of its measured rate."""
    rates = study.rates
    if direction != "both":
        return bool(flows) and rates.get((centre, direction), 0.0) >= PLATEAU * _partners_rate(
            study, centre, flows
        )
    up = min(
        rates.get((centre, "up"), 0.0), _partners_rate(study, centre, [f for f in flows if f[0] == centre])
    )
    down = min(
        rates.get((centre, "down"), 0.0), _partners_rate(study, centre, [f for f in flows if f[1] == centre])
    )
    alone = rates.get((centre, "up"), 0.0) + rates.get((centre, "down"), 0.0)
    carried = rates.get((centre, "both"), 0.0)
    return bool(flows) and carried >= PLATEAU * (up + down) and up + down < PLATEAU * alone


def faster_flows(study: Study, centre: str, hosts: Sequence[str], direction: str) -> list[Flow]:
    """Flows with as many of the fastest partners as fill the host, a partner in one direction only."""
    rates = study.rates
    others = [host for host in hosts if host != centre]

    def fastest(side: str, free: Sequence[str], target_rate: float) -> list[str]:
        chosen: list[str] = []
        for host in sorted(free, key=lambda host: -rates.get((host, side), 0.0)):
            if (
                sum(rates.get((other, side), 0.0) for other in chosen) >= target_rate
                or len(chosen) >= MAX_PARTNERS
            ):
                break
            chosen.append(host)
        return chosen

    # The host's own limit is not known yet; it is assumed to be twice the measured rate.
    alone = {
        side: rates.get((centre, side), 0.0) * (2 if direction != "both" else 1.05) for side in ("up", "down")
    }
    receivers = fastest("down", others, alone["up"]) if direction != "down" else []
    if direction == "both" and len(receivers) == len(others):
        receivers = receivers[: max(1, len(others) // 2)]
    senders = (
        fastest("up", [h for h in others if h not in receivers], alone["down"]) if direction != "up" else []
    )
    return [(centre, host) for host in receivers] + [(host, centre) for host in senders]


Star = tuple[str, list[str]]


def star_flows(centre: str, partners: Sequence[str], direction: str) -> list[Flow]:
    if direction == "up":
        return [(centre, partner) for partner in partners]
    if direction == "down":
        return [(partner, centre) for partner in partners]
    return [(centre, partners[0]), (partners[-1], centre)]


def star_rounds(cabinets: Topology) -> list[list[Star]]:
    """Rounds in which each host is the centre once, with two partners.

    Partners are of the same cabinet; a cabinet of fewer than three hosts takes others, one star a round.
    """
    rounds: list[list[Star]] = []
    everyone = [host for hosts in cabinets.values() for host in hosts]
    for hosts in cabinets.values():
        n = len(hosts)
        if n < 3:
            for host in hosts:
                near = [other for other in hosts if other != host]
                far = [other for other in everyone if other not in hosts]
                rounds.append([(host, (near + far)[:2])])
            continue
        stars = n // 3
        starts = [(i * n) // stars for i in range(stars)]
        steps = max(b - a for a, b in zip(starts, [*starts[1:], n], strict=True))
        for step in range(steps):
            rounds.append(
                [(hosts[(i + step) % n], [hosts[(i + step + k) % n] for k in (1, 2)]) for i in starts]
            )
    return _merged(rounds)


def _merged(rounds: Iterable[list[Star]]) -> list[list[Star]]:
    """Merges rounds that share no host; a host is the centre only once."""
    merged: list[list[Star]] = []
    done: set[str] = set()
    for stars in rounds:
        fresh = [star for star in stars if star[0] not in done]
        done |= {centre for centre, _ in fresh}
        members = {host for centre, partners in fresh for host in (centre, *partners)}
        for other in merged:
            if not members & {host for centre, partners in other for host in (centre, *partners)}:
                other += fresh
                break
        else:
            if fresh:
                merged.append(fresh)
    return merged


def _between(study: Study) -> Rounds:
    """Each cabinet against all others: to them, from them, both; then all cabinets at once."""
    names = list(study.cabinets)
    if len(names) < 2:
        return
    study.phase = "between the cabinets"
    pair = len(names) == 2  # then A to B is all there is: the up link of one and the down link of the other
    for name in names[:1] if pair else names:
        seconds = 0.0
        for direction in DIRECTIONS:
            seconds = yield from _cabinet(study, name, direction, seconds)
    if not pair:
        flows = ring_of_cabinets(study.cabinets)
        params: dict[str, Scalar] = {"experiment": "backbone"}
        result = yield from repeat(
            study, Round(tuple(flows), study.size, study.seconds(study.pair_rate / 2), params=params)
        )
        yield from _strides(study, result.seconds)


def _strides(study: Study, seconds: float) -> Rounds:
    """All cabinets at once, each to the second, third, ... next, and the first to each other alone. Nothing is fitted
    to these rounds: where the model is wrong about them, there are more than two levels. ``seconds``: how long the
    round to the next cabinets took."""
    names = list(study.cabinets)
    slow = study.pair_rate / 2
    for stride in evenly(range(2, len(names)), STEPS):
        params: dict[str, Scalar] = {"experiment": "strides", "stride": stride}
        flows = ring_of_cabinets(study.cabinets, stride)
        lasts = max(seconds, study.seconds(slow))
        seconds = (yield from repeat(study, Round(tuple(flows), study.size, lasts, params=params))).seconds
    for index in evenly(range(1, len(names)), STEPS):
        params = {"experiment": "two_cabinets", "cabinet": names[0], "other": names[index]}
        flows = list(zip(study.cabinets[names[0]], study.cabinets[names[index]], strict=False))
        yield from repeat(study, Round(tuple(flows), study.size, study.seconds(slow), params=params))


def evenly(choices: range, most: int) -> list[int]:
    """At most ``most`` of the choices, evenly spread."""
    chosen = min(most, len(choices))
    return [choices[i * len(choices) // chosen] for i in range(chosen)]


def _cabinet(study: Study, name: str, direction: str, seconds: float) -> Generator[Round, Result, float]:
    """One host and all hosts of a cabinet; where a plateau shows, also half of them and its expected knee, and all with
    other partners, and every second host: one link carries the same for each. ``seconds``: how long the round of all
    hosts took in another direction, at first 0. Returns how long it took in this one."""
    most = len(cabinet_flows(study.cabinets, name, "up", len(study.hosts)))
    alone = 0.0
    counts = [1, most] if most > 1 else [1]
    for count in counts:  # a plateau adds more
        flows = cabinet_flows(study.cabinets, name, direction, count)
        params: dict[str, Scalar] = {
            "experiment": "cabinet",
            "cabinet": name,
            "direction": direction,
            "count": count,
        }
        shortest = study.seconds(study.pair_rate / 2)
        lasts = max(shortest, seconds) if count == most else shortest
        result = yield from repeat(study, Round(tuple(flows), study.size, lasts, params=params))
        if count == most:
            seconds = result.seconds
        alone = alone or result.total
        if count == most and result.total < PLATEAU * most * alone:
            knee = round(result.total / alone)
            counts += [n for n in dict.fromkeys(((most + 1) // 2, knee)) if 1 < n < most]
            for experiment, turn, every in ((OTHER_PARTNERS, most, 1), (EVERY_SECOND, 0, 2)):
                other = cabinet_flows(study.cabinets, name, direction, most, turn, every)
                params = {"experiment": experiment, "cabinet": name, "direction": direction}
                lasts = max(
                    shortest, seconds if every == 1 else seconds / 2
                )  # half of the flows share a link
                yield from repeat(study, Round(tuple(other), study.size, lasts, params=params))
    return seconds


def cabinet_flows(
    cabinets: Topology, name: str, direction: str, count: int, turn: int = 0, every: int = 1
) -> list[Flow]:
    """``count`` pairs of a host of the cabinet and one outside; those outside are spread over all other cabinets.

    ``turn``: partners are taken so many places further on. ``every``: hosts are taken every so many places."""
    others = [hosts for other, hosts in cabinets.items() if other != name]
    outside = [hosts[i] for i in range(max(map(len, others))) for hosts in others if i < len(hosts)]
    start = turn % len(outside)
    pairs = list(zip(cabinets[name][::every], outside[start:] + outside[:start], strict=False))[:count]
    if direction == "up":
        return pairs
    # A host receives from another host than it sends to: an MPI may alternate the two directions of one pair.
    back = pairs[1:] + pairs[:1] if direction == "both" else pairs
    down = [(b, a) for (_, b), (a, _) in zip(back, pairs, strict=True)]
    return down if direction == "down" else [flow for both in zip(pairs, down, strict=True) for flow in both]


def ring_of_cabinets(cabinets: Topology, stride: int = 1) -> list[Flow]:
    """Flows from every host to a host of the next cabinet, or of that which is ``stride`` cabinets away."""
    names = list(cabinets)
    flows: list[Flow] = []
    for name, following in zip(names, [*names[stride:], *names[:stride]], strict=True):
        flows += zip(cabinets[name], cabinets[following], strict=False)
    return flows


def all_to_all_steps(hosts: int) -> list[int]:
    """The steps of an all-to-all that are measured; in step k each host sends to the k-th next.

    The step in which hosts exchange messages in pairs is left out: an MPI may alternate the two directions.
    """
    steps = [step for step in range(1, hosts) if 2 * step != hosts]
    return [steps[i] for i in evenly(range(len(steps)), STEPS)]


def _all_to_all(study: Study) -> Rounds:
    """An all-to-all, from which nothing is fitted: it validates the model.

    Each step is measured in steady state. In a free-running all-to-all the transport decides who waits for whom,
    which is no capacity of the network.
    """
    study.phase = "all to all"
    hosts = study.hosts
    for step in all_to_all_steps(len(hosts)):
        flows = tuple((host, hosts[(i + step) % len(hosts)]) for i, host in enumerate(hosts))
        params: dict[str, Scalar] = {"experiment": "all_to_all", "step": step}
        yield from repeat(study, Round(flows, study.size, study.seconds(study.pair_rate / 2), params=params))
