"""Which round of experiments comes next: the course of a saturation study, as a conversation.

``course`` yields a round and is sent its result. Each phase asks only for what the ones before it have left
open: one pair tells how long messages must be, the sweep where the protocols change, latency who stands in
one cabinet with whom. Then every cabinet's pairs all at once (only where that is less than the pairs apart
is the way there looked at more closely), each host against others (two partners at once, so that no partner
is the limit), and cabinets against the others. A round is asked for again until its figure is as sure as was
asked, which a clear plateau is at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from assay.errors import UserError
from assay.model.contention import discover_by_contention
from assay.model.discover import discover
from assay.model.network import Topology
from assay.model.rounds import Flow, Result, Round
from assay.model.study import PLATEAU, Course, Study, repeat, until_steady
from assay.model.sweep import sweep
from assay.records.schema import Scalar

STEPS = 8  # of an all-to-all, at most: spread over all of them


def expected_rounds(study: Study) -> int:
    """About how many rounds the study takes, once it is known who stands where; 0 before."""
    if not study.cabinets:
        return 0
    trunks = {1: 0, 2: 9}.get(len(study.cabinets), 9 * len(study.cabinets) + 1)
    return 1 + 20 + 3 * len(star_rounds(study.cabinets)) + trunks + STEPS


def course(study: Study) -> Course:
    """The whole of it. ``study.cabinets`` given beforehand are taken as they are."""
    if len(study.hosts) < 2:
        raise UserError("one host alone has no network to saturate", "name at least two hosts")
    yield from _calibrate(study)
    if not study.cabinets:
        yield from _who_stands_where(study)
    yield from sweep(study)
    yield from _inside(study)
    yield from _hosts(study)
    yield from _between(study)
    yield from _everyone(study)


def _who_stands_where(study: Study) -> Course:
    """By latency; where all are equally far from each other, by contention."""
    study.doing = "who stands in one cabinet with whom"
    found, study.found_by = (yield from discover(study.hosts, study.pace.echoes)), "latency"
    if len(found) == 1:
        found, study.found_by = (yield from discover_by_contention(study)), "contention"
    if not found:
        found, study.found_by = {"c1": list(study.hosts)}, ""
    study.cabinets = found


def _calibrate(study: Study) -> Course:
    """One pair, a quarter of a second at first: fast networks then get longer messages."""
    study.doing = "one pair"
    flow = (study.hosts[0], study.hosts[1])
    params: dict[str, Scalar] = {"experiment": "first"}
    result = yield from until_steady(
        study, Round((flow,), study.pace.least_size, study.pace.seconds, params=params)
    )
    study.single = result.total


def _inside(study: Study) -> Course:
    """1 to n pairs in every cabinet, all cabinets at once: they share nothing. Send, sendrecv, rings of four."""
    study.doing = "pairs inside the cabinets"
    for shape in ("send", "sendrecv", "ring"):
        most = max(len(hosts) // (4 if shape == "ring" else 2) for hosts in study.cabinets.values())
        if most == 0:
            continue
        alone = yield from _pairs(study, shape, 1)
        together = yield from _pairs(study, shape, most) if most > 1 else _same(alone)
        if most > 2:
            middle = yield from _pairs(study, shape, (most + 1) // 2)
            if together < PLATEAU * most * alone:  # there is a plateau: where does it begin?
                knee = max(2, min(most - 1, round(together / alone)))
                if knee not in (1, (most + 1) // 2, most) and middle >= PLATEAU * together:
                    yield from _pairs(study, shape, knee)


def _same(value: float) -> Generator[Round, Result, float]:
    return value
    yield


def _pairs(study: Study, shape: str, count: int) -> Generator[Round, Result, float]:
    """The sum of the largest cabinet's flows."""
    flows: list[Flow] = []
    for hosts in study.cabinets.values():
        flows += shape_flows(hosts, shape, count)
    params: dict[str, Scalar] = {"experiment": "pairs", "shape": shape, "count": count}
    slow = study.single / 2
    asked = Round(tuple(flows), study.size, study.seconds(slow), params=params)
    result = yield from repeat(study, asked, list(study.cabinets.values()))
    largest = set(sorted(study.cabinets.values(), key=len)[-1])
    return sum(
        rate
        for (source, _), rate in zip(flows, result.flows.values if result.flows else [], strict=True)
        if source in largest
    )


def shape_flows(hosts: Sequence[str], shape: str, count: int) -> list[Flow]:
    """``count`` disjoint pairs, or rings of four, of these hosts; as many as there are."""
    if shape == "ring":
        rings = [hosts[4 * i : 4 * i + 4] for i in range(min(count, len(hosts) // 4))]
        return [(ring[k], ring[(k + 1) % 4]) for ring in rings for k in range(4)]
    half = len(hosts) // 2
    pairs = [(hosts[i], hosts[half + i]) for i in range(min(count, half))]
    return pairs if shape == "send" else [flow for a, b in pairs for flow in ((a, b), (b, a))]


def _hosts(study: Study) -> Course:
    """Each host against two others: all it can send, all it can receive, and both at once."""
    study.doing = "each host"
    for way in ("up", "down", "both"):
        for stars in star_rounds(study.cabinets):
            flows = [flow for centre, partners in stars for flow in star_flows(centre, partners, way)]
            if len(stars[0][1]) < 2 and way == "both" and len(study.hosts) > 2:
                continue
            params: dict[str, Scalar] = {
                "experiment": "host",
                "way": way,
                "centres": ",".join(c for c, _ in stars),
            }
            asked = Round(tuple(flows), study.size, study.seconds(study.single / 2), params=params)
            yield from repeat(study, asked, [[centre] for centre, _ in stars])


Star = tuple[str, list[str]]


def star_flows(centre: str, partners: Sequence[str], way: str) -> list[Flow]:
    if way == "up":
        return [(centre, partner) for partner in partners]
    if way == "down":
        return [(partner, centre) for partner in partners]
    return [(centre, partners[0]), (partners[-1], centre)]


def star_rounds(cabinets: Topology) -> list[list[Star]]:
    """Rounds in which each host is the centre once, with two partners of its own cabinet; where that is too
    small, with others, one star at a time."""
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
        waiting = [(i * n) // stars for i in range(stars)]
        steps = max(b - a for a, b in zip(waiting, [*waiting[1:], n], strict=True))
        for step in range(steps):
            rounds.append(
                [(hosts[(at + step) % n], [hosts[(at + step + k) % n] for k in (1, 2)]) for at in waiting]
            )
    return _merged(rounds)


def _merged(rounds: Iterable[list[Star]]) -> list[list[Star]]:
    """Rounds of different cabinets share no host and can be one; a host is the centre once."""
    merged: list[list[Star]] = []
    done: set[str] = set()
    for one in rounds:
        fresh = [star for star in one if star[0] not in done]
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


def _between(study: Study) -> Course:
    """Each cabinet against all others: to them, from them, both; then all cabinets at once."""
    names = list(study.cabinets)
    if len(names) < 2:
        return
    study.doing = "between the cabinets"
    pair = len(names) == 2  # then A to B is all there is: the up link of one and the down link of the other
    for name in names[:1] if pair else names:
        for way in ("up", "down", "both"):
            yield from _cabinet(study, name, way)
    if not pair:
        flows = ring_of_cabinets(study.cabinets)
        params: dict[str, Scalar] = {"experiment": "backbone"}
        yield from repeat(
            study, Round(tuple(flows), study.size, study.seconds(study.single / 2), params=params)
        )


def _cabinet(study: Study, name: str, way: str) -> Course:
    """One and all of its hosts; where all do not get what they could, half of them and where it should bend."""
    most = len(cabinet_flows(study.cabinets, name, "up", len(study.hosts)))
    alone = 0.0
    counts = [1, most] if most > 1 else [1]
    for count in counts:  # more are added once a plateau is seen
        flows = cabinet_flows(study.cabinets, name, way, count)
        params: dict[str, Scalar] = {"experiment": "cabinet", "cabinet": name, "way": way, "count": count}
        slow = study.single / 2
        result = yield from repeat(study, Round(tuple(flows), study.size, study.seconds(slow), params=params))
        alone = alone or result.total
        if count == most and result.total < PLATEAU * most * alone:
            knee = round(result.total / alone)
            counts += [n for n in dict.fromkeys(((most + 1) // 2, knee)) if 1 < n < most]


def cabinet_flows(cabinets: Topology, name: str, way: str, count: int) -> list[Flow]:
    """``count`` pairs of a host inside and one outside, the ones outside spread over all other cabinets."""
    others = [hosts for other, hosts in cabinets.items() if other != name]
    outside = [hosts[i] for i in range(max(map(len, others))) for hosts in others if i < len(hosts)]
    pairs = list(zip(cabinets[name], outside, strict=False))[:count]
    if way == "up":
        return pairs
    # Back from another than it was sent to: two directions between the same two hosts may take turns in the MPI.
    back = pairs[1:] + pairs[:1] if way == "both" else pairs
    down = [(b, a) for (_, b), (a, _) in zip(back, pairs, strict=True)]
    return down if way == "down" else [flow for both in zip(pairs, down, strict=True) for flow in both]


def ring_of_cabinets(cabinets: Topology) -> list[Flow]:
    """Every host sends to the next cabinet and receives from the one before."""
    names = list(cabinets)
    flows: list[Flow] = []
    for name, following in zip(names, [*names[1:], names[0]], strict=True):
        flows += zip(cabinets[name], cabinets[following], strict=False)
    return flows


def steps_to_all(hosts: int) -> list[int]:
    """Of an all-to-all: in step k everyone sends to the k-th next. Not the one in which everyone sends to whom it
    receives from: two directions between the same two hosts may take turns in the MPI."""
    steps = [step for step in range(1, hosts) if 2 * step != hosts]
    chosen = min(STEPS, len(steps))
    return [steps[i * len(steps) // chosen] for i in range(chosen)]


def _everyone(study: Study) -> Course:
    """An all-to-all: it decides nothing, and shows whether the model holds for what it was not made from. Step by
    step, each in steady state: where all of it goes at once, or as fast as each can, how a transport shares decides
    who waits for whom, and that is no capacity."""
    study.doing = "all to all"
    hosts = study.hosts
    for step in steps_to_all(len(hosts)):
        flows = tuple((host, hosts[(i + step) % len(hosts)]) for i, host in enumerate(hosts))
        params: dict[str, Scalar] = {"experiment": "all_to_all", "step": step}
        yield from repeat(study, Round(flows, study.size, study.seconds(study.single / 2), params=params))
