"""Studies of hidden platforms: what is called measured is true, and a platform that passes its proof predicts traffic
that nobody has measured."""

from __future__ import annotations

import random

import pytest
from hidden_platforms import Hidden, draw
from planted_network import Planted, conduct, line

from assay.model.compare import comparisons, replay, rounds_to_simulate, verdict
from assay.model.fit import NEVER_BINDS, Model, fit
from assay.model.network import Network, Topology
from assay.model.rounds import Flow, Result
from assay.model.study import Study


def planted(hidden: Hidden) -> Planted:
    network = Network(hidden.cabinets, dict(hidden.capacity))
    near = 2 * hidden.latency
    return Planted(network, line(near), line(near + 2 * hidden.between))


def slow_partners(hidden: Hidden, seed: int) -> Hidden:
    """Hosts differ by up to three times: many have no partner as fast as they are."""
    chance = random.Random(seed)
    for host in hidden.hosts:
        share = chance.choice((0.4, 0.7, 1.0, 1.2))
        for direction in ("up", "down", "limiter"):
            if ("host", host, direction) in hidden.capacity:
                hidden.capacity["host", host, direction] *= share
    return hidden


def equally_far(hidden: Hidden) -> Hidden:
    hidden.between = 0.0
    return hidden


def narrow_limiters(hidden: Hidden) -> Hidden:
    """A limiter that carries what one direction does: both explain the same rates."""
    for host in hidden.hosts:
        hidden.capacity["host", host, "limiter"] = min(
            hidden.capacity["host", host, direction] for direction in ("up", "down")
        )
    return hidden


def limited_cabinets(hidden: Hidden, seed: int) -> Hidden:
    chance = random.Random(seed)
    for name in hidden.cabinets:
        both = sum(hidden.capacity["cabinet", name, direction] for direction in ("up", "down"))
        hidden.capacity["cabinet", name, "limiter"] = both * chance.uniform(0.6, 0.8)
    return hidden


PLATFORMS = {
    **{f"plain {seed}": draw(seed, (2, 5), (5, 12)) for seed in range(5)},
    **{f"two cabinets {seed}": draw(seed, (2, 2), (5, 12)) for seed in range(20, 22)},
    **{f"slow partners {seed}": slow_partners(draw(seed, (1, 4), (6, 12)), seed) for seed in range(40, 44)},
    **{f"equally far {seed}": equally_far(draw(seed, (2, 6), (5, 12))) for seed in range(60, 63)},
    **{f"narrow limiters {seed}": narrow_limiters(draw(seed, (2, 4), (5, 10))) for seed in range(80, 82)},
    **{
        f"limited cabinets {seed}": limited_cabinets(draw(seed, (3, 5), (5, 10)), seed)
        for seed in range(90, 92)
    },
    **{f"small cabinets {seed}": draw(seed, (3, 6), (2, 4)) for seed in range(100, 102)},
}


def patterns(hosts: list[str], cabinets: Topology, seed: int) -> dict[str, list[Flow]]:
    """Traffic that no study measures: all to all at once, halves against each other, rings, pairs of cabinets."""
    chance = random.Random(seed)
    shuffled = chance.sample(hosts, len(hosts))
    half = len(hosts) // 2
    halves = list(zip(shuffled[:half], shuffled[half:], strict=False))
    found = {
        "all to all": [(a, b) for a in hosts for b in hosts if a != b],
        "bisection": halves,
        "bisection, both ways": halves + [(b, a) for a, b in halves],
        "ring": [(a, b) for a, b in zip(shuffled, shuffled[1:] + shuffled[:1], strict=True)],
        "everyone to one": [(a, hosts[0]) for a in hosts[1:]],
    }
    names = list(cabinets)
    for a, b in zip(names, names[1:] + names[:1], strict=True):
        if a != b:
            found[f"{a} to {b}"] = list(zip(cabinets[a], cabinets[b], strict=False))
    return found


def proved(planted: Planted, study: Study, model: Model) -> str:
    """The proof on the model itself, in place of SimGrid on its platform file, which shares links alike."""
    rounds = rounds_to_simulate(planted.records)
    simulated: dict[str, Result] = {}
    again = Planted(model.network, planted.inside, planted.between)
    conduct(replay([entry.round for entry in rounds], simulated), again.answer)
    return verdict(comparisons(rounds, simulated, model), 0.05).outcome


def could_be_asked(hidden: Hidden, link: tuple[str, str, str]) -> float:
    """The most that traffic of any kind asks of a link, B/s: what the links around it carry without it."""
    level, resource, direction = link
    without = Network(hidden.cabinets, {k: v for k, v in hidden.capacity.items() if k != link})
    hosts = [resource] if level == "host" else hidden.cabinets.get(resource, [])
    inside = set(hosts)
    others = [host for host in hidden.hosts if host not in inside]
    there = [(a, b) for a in hosts for b in others]
    back = [(b, a) for a, b in there]
    flows = {"up": there, "down": back, "limiter": there + back}.get(direction, [])
    return without.total(flows) if flows else 0.0


def same_cabinets(found: Topology, truth: Topology) -> dict[str, str]:
    """The true name of each cabinet that was found; empty where they are others."""
    names = {frozenset(hosts): name for name, hosts in truth.items()}
    renamed = {name: names.get(frozenset(hosts), "") for name, hosts in found.items()}
    return renamed if all(renamed.values()) and len(renamed) == len(truth) else {}


@pytest.mark.parametrize("name", PLATFORMS)
def test_what_is_called_measured_is_true_and_what_is_proved_predicts(name: str) -> None:
    hidden = PLATFORMS[name]
    network = planted(hidden)
    study = network.study()
    model = fit(network.records, study.cabinets)
    true_name = same_cabinets(study.cabinets, hidden.cabinets)
    assert true_name or len(hidden.cabinets) == 1, study.cabinets
    wrong = []
    for capacity in model.capacities:
        link = (capacity.level, true_name.get(capacity.resource, capacity.resource), capacity.direction)
        true_value = hidden.capacity.get(link)
        if capacity.state == "measured" and capacity.level != "network":
            if true_value is None or capacity.value != pytest.approx(true_value, rel=0.01):
                wrong.append((link, capacity.value, true_value, capacity.reason))
        elif capacity.reason.startswith(NEVER_BINDS) and true_value is not None:
            most = could_be_asked(hidden, link)
            if true_value < 0.97 * most:
                wrong.append((link, "is a limit", true_value / most, capacity.reason))
        elif true_value is not None and capacity.value is not None and true_value < 0.99 * capacity.value:
            wrong.append((link, "is no more than", true_value / capacity.value, capacity.reason))
    assert not wrong
    assert proved(network, study, model) == "PASS"
    for pattern, flows in patterns(hidden.hosts, study.cabinets, 7).items():
        true_rate = network.network.total(flows)
        assert model.network.total(flows) == pytest.approx(true_rate, rel=0.05), pattern
