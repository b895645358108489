"""Capacities from the rounds of a study.

Each capacity has an experiment in which it is the limit, and is what was carried there; that it was the
limit is shown by the prediction without it, which is more. What was never the limit is only known to be no
less: such a figure says "at least", and the model does without that link. Where two explanations give the
same curves (a limiter as narrow as the uplink, an up link and the down link that it always met) the record
says so, and which experiment would tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from assay.model.estimate import Estimate, estimate, summed
from assay.model.network import Link, Network, Topology
from assay.model.rounds import Flow, flows_that_count
from assay.model.segments import Segment, fit_segments, points_of
from assay.model.study import PLATEAU
from assay.model.times import Times, sweeps
from assay.records.schema import AnyRecord, Capacity, Flows

NEVER_BINDS = "never seen to be the limit"
ENVELOPE = 16  # B: what SimGrid's MPI adds to every message
SMALL = 16  # B: up to here a message's length does not show in its time


@dataclass
class Model:
    """What was found. ``network`` holds only links that were seen to be a limit."""

    network: Network
    capacities: list[Capacity] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)  # in a pair's latency and seconds a byte
    inside: float = 0.0  # s: a small message inside a cabinet
    between: float = 0.0  # s: to another one
    size: int = 0  # B: messages that the capacities were measured with

    def find(self, level: str, of: str, way: str) -> Capacity | None:
        return next((c for c in self.capacities if (c.level, c.of, c.way) == (level, of, way)), None)


def fit(records: Sequence[AnyRecord], cabinets: Topology) -> Model:
    rounds = flows_that_count(records)
    model = Model(Network(cabinets))
    times = sweeps(records)
    _latencies(model, times)
    _hosts(model, [r for r in rounds if r.params.get("experiment") == "host"])
    _inside(model, [r for r in rounds if r.params.get("experiment") == "pairs"])
    _cabinets(model, [r for r in rounds if r.params.get("experiment") in ("cabinet", "backbone")])
    sizes = [int(r.params["size"]) for r in rounds if r.params.get("experiment") == "host"]
    model.size = max(sizes, default=0)
    _segments(model, times)
    return model


def flows_of(record: Flows) -> list[Flow]:
    return list(zip(record.sources, record.targets, strict=True))


@dataclass
class Sum:
    """What several rounds, or a host's part in them, carried together."""

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


def _note(
    model: Model, link: Link, found: Sum | None, why: str, binds: bool = True, unit: str = "B/s"
) -> None:
    level, of, way = link
    cabinet = model.network.home.get(of, "") if level == "host" else ""
    record = Capacity(level=level, of=of, way=way, unit=unit, state="unknown", cabinet=cabinet, why=why)  # type: ignore[arg-type]
    if found is not None and found.samples:
        e = found.estimate
        record.state = "measured" if binds else "at_least"
        record.value, record.low, record.high, record.n = e.value, e.low, e.high, e.n
        record.evidence = found.evidence
        if binds:
            model.network.capacity[link] = e.value
    model.capacities.append(record)


# Hosts.


def _hosts(model: Model, rounds: Sequence[Flows]) -> None:
    sums: dict[tuple[str, str], Sum] = defaultdict(Sum)
    for record in rounds:
        way = str(record.params["way"])
        for centre in str(record.params["centres"]).split(","):
            touching = [i for i, flow in enumerate(flows_of(record)) if centre in flow]
            sums[centre, way].add(record, touching)
    _up_and_down(model, sums)
    for host in model.network.home:
        both = sums.get((host, "both"))
        link: Link = ("host", host, "limiter")
        if both is None:
            _note(model, link, None, "both directions at once were not measured for this host")
            continue
        own = [flow for flow in both.flows if host in flow]
        alone = model.network.total(own)
        carried = both.estimate
        if carried.value >= PLATEAU * alone:
            _note(
                model,
                link,
                both,
                f"{NEVER_BINDS}: both directions at once are as fast as each alone",
                binds=False,
            )
            continue
        _note(model, link, both, "both directions at once carry less than each alone")
        _mark_hidden(model, host, carried)


def _up_and_down(model: Model, sums: dict[tuple[str, str], Sum]) -> None:
    """First all of them as they stand; then those of which the partners may have been the limit."""
    hosts = list(model.network.home)
    links = [(host, way) for host in hosts for way in ("up", "down")]
    for host, way in links:
        if (host, way) in sums:
            model.network.capacity["host", host, way] = sums[host, way].estimate.value
    for host, way in links:
        found = sums.get((host, way))
        link: Link = ("host", host, way)
        if found is None:
            _note(model, link, None, "not measured for this host")
            continue
        own = [flow for flow in found.flows if host in flow]
        others = model.network.total(own, without=[link])
        if found.estimate.value < PLATEAU * others:
            _note(model, link, found, f"{'to' if way == 'up' else 'from'} {len(own)} hosts at once")
        else:
            partners = ", ".join(sorted({end for flow in own for end in flow} - {host}))
            why = f"as much as {partners} could take; another partner at the same time would tell more"
            _note(model, link, found, why, binds=True)
            model.capacities[-1].state = "at_least"


def _mark_hidden(model: Model, host: str, both: Estimate) -> None:
    """A limiter as narrow as the link: the link alone was never the limit, as far as can be seen."""
    for way in ("up", "down"):
        one = model.find("host", host, way)
        if one is not None and one.value is not None and both.value < one.value / PLATEAU:
            one.state = "at_least"
            one.why = (
                f"limiter or {way} link: both directions together carry no more than this one alone, so the limiter "
                "hides it; no traffic of this host can tell, its port's settings would"
            )


# Inside a cabinet.


def _inside(model: Model, rounds: Sequence[Flows]) -> None:
    for name, hosts in model.network.cabinets.items():
        link: Link = ("inside", name, "through")
        best: tuple[float, Sum, bool] | None = None
        for shape in dict.fromkeys(str(r.params["shape"]) for r in rounds):
            most = max(int(r.params["count"]) for r in rounds if r.params["shape"] == shape)
            found = Sum()
            for record in rounds:
                if (record.params["shape"], record.params["count"]) == (shape, most):
                    found.add(record, [i for i, source in enumerate(record.sources) if source in hosts])
            found.flows = [flow for flow in found.flows if flow[0] in hosts]
            if not found.flows:
                continue
            value = found.estimate.value
            # Less than the hosts can, and less than as many times what one pair (or ring) carries.
            one = [r for r in rounds if (r.params["shape"], r.params["count"]) == (shape, 1)]
            alone = min((_carried(r, hosts) for r in one), default=0.0)
            count = len(found.flows) / {"send": 1, "sendrecv": 2, "ring": 4}[shape]
            binds = value < PLATEAU * min(model.network.total(found.flows), count * alone)
            if best is None or value > best[0]:  # it carries the most that was ever seen
                best = (value, found, binds)
        if best is None:
            _note(model, link, None, "a cabinet of one has no pairs")
        elif best[2]:
            _note(model, link, best[1], f"plateau of {len(best[1].flows)} flows inside the cabinet")
        else:
            why = f"{NEVER_BINDS}: {len(best[1].flows)} flows at once are as fast as their hosts"
            _note(model, link, best[1], why, binds=False)


def _carried(record: Flows, hosts: Sequence[str]) -> float:
    return sum(value for source, value in zip(record.sources, record.values, strict=True) if source in hosts)


# Between cabinets.


def _cabinets(model: Model, rounds: Sequence[Flows]) -> None:
    names = list(model.network.cabinets)
    if len(names) < 2:
        return
    if not rounds:
        for name in names:
            for way in ("up", "down"):
                _note(model, ("cabinet", name, way), None, "not measured")
        return
    sums: dict[tuple[str, str], Sum] = defaultdict(Sum)
    for record in rounds:
        if record.params["experiment"] == "backbone":
            sums["", "backbone"].add(record, range(len(record.sources)))
            continue
        key = str(record.params["cabinet"]), str(record.params["way"])
        most = max(
            int(r.params["count"]) for r in rounds if (r.params.get("cabinet"), r.params.get("way")) == key
        )
        if int(record.params["count"]) == most:
            sums[key].add(record, range(len(record.sources)))
    if len(names) == 2:
        _two_cabinets(model, names, sums)
    else:
        _many_cabinets(model, names, sums)


def _two_cabinets(model: Model, names: Sequence[str], sums: dict[tuple[str, str], Sum]) -> None:
    a, b = names
    blind = "the two cannot be told apart with two cabinets, a third would tell"
    for source, target, way in ((a, b, "up"), (b, a, "down")):
        found = sums[a, way]
        binds = found.estimate.value < PLATEAU * model.network.total(found.flows)
        why = f"plateau from {source} to {target}: the up link of {source} or the down link of {target}; {blind}"
        if not binds:
            why = f"{NEVER_BINDS}: all hosts from {source} to {target} are as fast as they can be alone"
        for link in (("cabinet", source, "up"), ("cabinet", target, "down")):
            _note(model, link, found, why, binds=binds)
    both = sums[a, "both"]
    binds = both.estimate.value < PLATEAU * model.network.total(both.flows)
    why = (
        f"plateau of both directions between {a} and {b}: a backbone, or a limiter at either cabinet; with four "
        "cabinets, two pairs of them at the same time would tell"
    )
    _note(model, ("backbone", "", "through"), both, why if binds else NEVER_BINDS, binds=binds)


def _many_cabinets(model: Model, names: Sequence[str], sums: dict[tuple[str, str], Sum]) -> None:
    network, backbone = model.network, ("backbone", "", "through")
    every = sums["", "backbone"]
    total = every.estimate.value if every.samples else float("inf")
    _cabinet_links(model, names, sums, total)
    limiters = {}
    for name in names:
        both = sums.get((name, "both"))
        if both is not None and both.estimate.value < PLATEAU * network.total(both.flows):
            limiters[name] = both
    own = {name: both for name, both in limiters.items() if both.estimate.value < PLATEAU * total}
    for name in names:
        link = ("cabinet", name, "limiter")
        if name in own:
            _note(
                model,
                link,
                own[name],
                "both directions at once carry less than each alone; all cabinets, more",
            )
        elif name in limiters:
            why = "limiter or backbone: all cabinets together carry no more than this one alone"
            _note(model, link, limiters[name], why, binds=False)
        else:
            _note(model, link, sums.get((name, "both")), NEVER_BINDS, binds=False)
    binds = every.samples != [] and total < PLATEAU * network.total(every.flows)
    why = "plateau of all cabinets at once, each to the next" if binds else NEVER_BINDS
    _note(model, backbone, every, why, binds=binds)


def _cabinet_links(
    model: Model, names: Sequence[str], sums: dict[tuple[str, str], Sum], total: float
) -> None:
    """First all of them as they stand; then those of which the other cabinets' links may have been the limit.
    ``total``: what all cabinets at once carried."""
    network = model.network
    links: list[Link] = [("cabinet", name, way) for name in names for way in ("up", "down")]
    network.capacity |= {link: sums[link[1:]].estimate.value for link in links if link[1:] in sums}
    for link in links:
        found = sums.get(link[1:])
        if found is None:
            _note(model, link, None, "not measured")
            continue
        del network.capacity[link]
        value, way = found.estimate.value, link[2]
        if value >= PLATEAU * network.total(found.flows):
            why = f"{NEVER_BINDS}: as much as its hosts or the other cabinets could take"
            _note(model, link, found, why, binds=False)
        elif value >= PLATEAU * total:
            why = "cabinet link or backbone: this cabinet alone carries what all of them do together"
            _note(model, link, found, why, binds=False)
        else:
            why = f"plateau of {len(found.flows)} flows {'to' if way == 'up' else 'from'} all other cabinets"
            _note(model, link, found, why)


# Times of messages.


def _latencies(model: Model, times: Mapping[str, Times]) -> None:
    for level, own in times.items():
        small = [size for size in own.visits if size <= SMALL] or [min(own.visits)]
        found = Sum(samples=[own.at(size).value for size in small])
        found.evidence = [one.id for size in small for one in own.visits[size]]
        setattr(model, level, found.estimate.value)
        where = "inside a cabinet" if level == "inside" else "between cabinets"
        why = f"half a round trip of up to {max(small)} B {where}"
        _note(model, ("network", level, "latency"), found, why, binds=False, unit="s")
        model.capacities[-1].state = "measured"


def _segments(model: Model, times: Mapping[str, Times]) -> None:
    """What a message's length does to the latency and the rate of its way, fitted to all pairs that played
    ping-pong: one set of factors holds for a whole platform. Messages as long as those that the capacities were
    measured with go at these."""
    points = []
    for level, own in times.items():
        if gap := model.network.gap(own.pair):
            points += points_of(own, max(model.inside, getattr(model, level)), gap, ENVELOPE)
    model.segments = fit_segments(points, model.size)
