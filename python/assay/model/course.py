"""Which round of experiments comes next: the course of a saturation study, as a conversation.

``course`` yields a round and is sent its result. Each phase asks only for what the ones before it have left
open: one pair tells how long messages must be, the sweep where the protocols change, latency who stands in
one cabinet with whom. Then every cabinet's pairs all at once (only where that is less than the pairs apart
is the way there looked at more closely), each host against others (two partners at once, so that no partner
is the limit), and cabinets against the others. A round is asked for again until its figure is as sure as was
asked, which a clear plateau is at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from assay.errors import UserError
from assay.model.discover import discover
from assay.model.estimate import estimate, summed
from assay.model.network import Topology
from assay.model.rounds import Flow, Result, Round
from assay.model.segments import Segment, between_breaks, doubt, fit_segments
from assay.records.schema import Scalar

Course = Generator[Round, Result, None]

MIB = 1 << 20
LONGEST = MIB  # message of a saturation round
REFINEMENTS = 3  # of where two protocols meet: each halves what is open
SWEEP = tuple(2**k for k in range(23))  # 1 B to 4 MiB
MESSAGES = 6  # of one flow in a round, about
TRIES = 9  # of a round, each three times as long: from a tenth of a millisecond to seconds
PLATEAU = 0.97  # of what the parts could do: less is a limit of what they share


@dataclass
class Pace:
    """How much is asked of each round. In a simulator nothing is gained by repeating or by waiting."""

    confidence: float = 0.02
    repeats: int = 4
    seconds: float = 0.5  # of one round, at least
    echoes: int = 100
    least_size: int = 256 << 10
    messages: int = MESSAGES


@dataclass
class Study:
    """What the course has come to know, for whoever conducts it."""

    hosts: list[str]
    pace: Pace
    cabinets: Topology = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    size: int = MIB
    single: float = 0.0  # B/s of one pair alone
    doing: str = ""
    asked: int = 0

    def seconds(self, slowest: float) -> float:
        """For a round in which a flow may be as slow as that."""
        return max(self.pace.seconds, self.pace.messages * self.size / slowest)


def expected_rounds(study: Study) -> int:
    """About how many rounds the study takes, once it is known who stands where; 0 before."""
    if not study.cabinets:
        return 0
    trunks = {1: 0, 2: 9}.get(len(study.cabinets), 9 * len(study.cabinets) + 1)
    return 1 + 9 + 3 * len(star_rounds(study.cabinets)) + trunks + 1


def course(study: Study) -> Course:
    """The whole of it. ``study.cabinets`` given beforehand are taken as they are."""
    if len(study.hosts) < 2:
        raise UserError("one host alone has no network to saturate", "name at least two hosts")
    yield from _calibrate(study)
    if not study.cabinets:
        study.doing = "who stands in one cabinet with whom"
        study.cabinets = yield from discover(study.hosts, study.pace.echoes)
    yield from _sweep(study)
    yield from _inside(study)
    yield from _hosts(study)
    yield from _between(study)
    yield from _everyone(study)


def _calibrate(study: Study) -> Course:
    """One pair, a quarter of a second at first: fast networks then get longer messages."""
    study.doing = "one pair"
    flow = (study.hosts[0], study.hosts[1])
    params: dict[str, Scalar] = {"experiment": "first"}
    result = yield from _until_steady(
        study, Round((flow,), study.pace.least_size, study.pace.seconds, params=params)
    )
    study.single = result.total


def _until_steady(study: Study, asked: Round) -> Generator[Round, Result, Result]:
    """Longer and longer, until all flows have run at one time and moved a few messages each."""
    for _ in range(TRIES):
        study.asked += 1
        result = yield asked
        if (
            result.flows is not None
            and result.flows.values
            and _few(result, asked) >= study.pace.messages / 2
        ):
            return result
        asked = Round(asked.flows, asked.size, asked.seconds * 3, params=asked.params)
    raise UserError(
        f"the flows of '{asked.params.get('experiment')}' did not run at one time within {asked.seconds / 3:.0f} s",
        "a host is far slower than the others, or does not answer: leave it out",
    )


def _few(result: Result, asked: Round) -> float:
    assert result.flows is not None
    window = float(result.flows.params.get("window_s", 0.0))
    return min(result.flows.values) * window / asked.size


def _repeat(
    study: Study, asked: Round, groups: Sequence[Collection[str]] = ()
) -> Generator[Round, Result, Result]:
    """Once more and once more, until the sum is as sure as was asked: of all flows, or of those that touch each
    group of hosts."""
    result = yield from _until_steady(study, asked)
    wanted = [[i for i, (a, b) in enumerate(asked.flows) if a in one or b in one] for one in groups]
    chosen = [own for own in wanted if own] or [list(range(len(asked.flows)))]
    samples = [_sums(result, own) for own in chosen]
    for again in range(1, study.pace.repeats):
        if max(estimate(own).doubt for own in samples) <= study.pace.confidence:
            break
        seconds = float(result.flows.params["window_s"]) if result.flows else asked.seconds
        params = {**asked.params, "again": again}
        result = yield from _until_steady(
            study, Round(asked.flows, asked.size, max(asked.seconds, round(seconds, 3)), params=params)
        )
        samples = [before + _sums(result, own) for before, own in zip(samples, chosen, strict=True)]
    return result


def _sums(result: Result, chosen: Sequence[int]) -> list[float]:
    return summed([result.flows.slices[i] for i in chosen]) if result.flows else []


def _sweep(study: Study) -> Course:
    """Times of messages, inside a cabinet and between two; then more sizes where two protocols meet."""
    study.doing = "message sizes"
    inside = next((hosts for hosts in study.cabinets.values() if len(hosts) > 1), None)
    names = list(study.cabinets)
    pairs: list[tuple[str, Flow]] = []
    if inside:
        pairs.append(("inside", (inside[0], inside[1])))
    if len(names) > 1:
        pairs.append(("between", (study.cabinets[names[0]][0], study.cabinets[names[1]][0])))
    count = max(2, study.pace.echoes // 5)
    times: dict[int, float] = {}
    doubts: dict[int, float] = {}
    for level, pair in pairs:
        sizes: Sequence[int] = SWEEP
        refinements = REFINEMENTS
        while sizes:
            params: dict[str, Scalar] = {"experiment": "sweep", "level": level}
            result = yield Round((pair,), sizes=tuple(sizes), count=count, params=params)
            if level != pairs[0][0]:
                break
            for one in result.echoes:
                if one.summary:
                    size = int(one.params["size"])
                    times[size], doubts[size] = one.summary.median, doubt(one.samples)
            sizes = between_breaks(times, doubts) if refinements else []
            refinements -= 1
    study.segments = fit_segments(times, doubts)
    latency = min(times.values())
    # Where the last protocol holds, and long against the start-up of a message. Not longer than that: the two
    # directions between two hosts take turns where a socket holds a whole message.
    least = max(study.segments[-1].start, 20 * latency * study.single, study.pace.least_size)
    study.size = 2 ** math.ceil(math.log2(min(least, LONGEST)))


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
    result = yield from _repeat(study, asked, list(study.cabinets.values()))
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
            yield from _repeat(study, asked, [[centre] for centre, _ in stars])


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
        yield from _repeat(
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
        result = yield from _repeat(
            study, Round(tuple(flows), study.size, study.seconds(slow), params=params)
        )
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


def messages_to_all(hosts: int) -> int:
    """Of each host: once round everyone, or what makes a plateau."""
    return max(hosts - 1, 24)


def _everyone(study: Study) -> Course:
    """An all-to-all: it decides nothing, and shows whether the model holds for what it was not made from."""
    study.doing = "all to all"
    params: dict[str, Scalar] = {"experiment": "all_to_all"}
    study.asked += 1
    yield Round(
        everyone=tuple(study.hosts),
        size=study.size,
        messages=messages_to_all(len(study.hosts)),
        params=params,
    )
