"""Studies of hidden platforms: capacities marked as measured are true, and a platform that passes its validation
predicts traffic that the study never measured."""

from __future__ import annotations

import random

import pytest
from hidden_platforms import HiddenPlatform, draw_platform
from planted_network import PlantedNetwork, answer_rounds, linear_time

from assay.model.compare import comparisons, replay, rounds_to_simulate
from assay.model.fit import fit
from assay.model.fitted import NEVER_BINDS, Model
from assay.model.network import Network, Topology
from assay.model.proof import verdict
from assay.model.rounds import Flow, Result

pytestmark = pytest.mark.slow


def planted(hidden: HiddenPlatform) -> PlantedNetwork:
    network = Network(hidden.cabinets, dict(hidden.capacity))
    near = 2 * hidden.host_latency
    return PlantedNetwork(network, linear_time(near), linear_time(near + 2 * hidden.cabinet_latency))


def slow_partners(hidden: HiddenPlatform, seed: int) -> HiddenPlatform:
    """Hosts differ by up to three times: many have no partner as fast as they are."""
    rng = random.Random(seed)
    for host in hidden.hosts:
        share = rng.choice((0.4, 0.7, 1.0, 1.2))
        for direction in ("up", "down", "limiter"):
            if ("host", host, direction) in hidden.capacity:
                hidden.capacity["host", host, direction] *= share
    return hidden


def equally_far(hidden: HiddenPlatform) -> HiddenPlatform:
    hidden.cabinet_latency = 0.0
    return hidden


def narrow_limiters(hidden: HiddenPlatform) -> HiddenPlatform:
    """Limiters as narrow as one direction: both explain the same rates."""
    for host in hidden.hosts:
        hidden.capacity["host", host, "limiter"] = min(
            hidden.capacity["host", host, direction] for direction in ("up", "down")
        )
    return hidden


def limited_cabinets(hidden: HiddenPlatform, seed: int) -> HiddenPlatform:
    rng = random.Random(seed)
    for name in hidden.cabinets:
        both = sum(hidden.capacity["cabinet", name, direction] for direction in ("up", "down"))
        hidden.capacity["cabinet", name, "limiter"] = both * rng.uniform(0.6, 0.8)
    return hidden


def limited_inside(hidden: HiddenPlatform, seed: int) -> HiddenPlatform:
    """The inside of a cabinet carries a few of its hosts; some hosts alone fill it in both directions."""
    rng = random.Random(seed)
    for name, hosts in hidden.cabinets.items():
        up = sum(hidden.capacity["host", host, "up"] for host in hosts) / len(hosts)
        hidden.capacity["inside", name, "through"] = up * rng.choice((1.6, 2.3, 3.1))
    return hidden


PLATFORMS = {
    **{f"plain {seed}": draw_platform(seed, (2, 5), (5, 12)) for seed in range(5)},
    **{f"two cabinets {seed}": draw_platform(seed, (2, 2), (5, 12)) for seed in range(20, 22)},
    **{
        f"slow partners {seed}": slow_partners(draw_platform(seed, (1, 4), (6, 12)), seed)
        for seed in range(40, 44)
    },
    **{f"equally far {seed}": equally_far(draw_platform(seed, (2, 6), (5, 12))) for seed in range(60, 63)},
    **{
        f"narrow limiters {seed}": narrow_limiters(draw_platform(seed, (2, 4), (5, 10)))
        for seed in range(80, 82)
    },
    **{
        f"limited cabinets {seed}": limited_cabinets(draw_platform(seed, (3, 5), (5, 10)), seed)
        for seed in range(90, 92)
    },
    **{
        f"limited inside {seed}": limited_inside(draw_platform(seed, (2, 4), (5, 14)), seed)
        for seed in range(120, 124)
    },
    **{f"small cabinets {seed}": draw_platform(seed, (3, 6), (2, 4)) for seed in range(100, 102)},
}


def patterns(hosts: list[str], cabinets: Topology, seed: int) -> dict[str, list[Flow]]:
    """Traffic that no study measures: all to all at once, halves, rings, many to one, pairs of cabinets."""
    rng = random.Random(seed)
    shuffled = rng.sample(hosts, len(hosts))
    half = len(hosts) // 2
    halves = list(zip(shuffled[:half], shuffled[half:], strict=False))
    traffic = {
        "all to all": [(a, b) for a in hosts for b in hosts if a != b],
        "bisection": halves,
        "bisection, both ways": halves + [(b, a) for a, b in halves],
        "ring": [(a, b) for a, b in zip(shuffled, shuffled[1:] + shuffled[:1], strict=True)],
        "everyone to one": [(a, hosts[0]) for a in hosts[1:]],
    }
    names = list(cabinets)
    for a, b in zip(names, names[1:] + names[:1], strict=True):
        if a != b:
            traffic[f"{a} to {b}"] = list(zip(cabinets[a], cabinets[b], strict=False))
    return traffic


def proof_outcome(planted: PlantedNetwork, model: Model) -> str:
    """The outcome of the validation, with the model in place of SimGrid: both share links max-min fairly."""
    rounds = rounds_to_simulate(planted.records)
    simulated: dict[str, Result] = {}
    modelled = PlantedNetwork(model.network, planted.inside, planted.between)
    answer_rounds(replay([entry.round for entry in rounds], simulated), modelled.answer)
    return verdict(comparisons(rounds, simulated, model), 0.05).outcome


def maximum_demand(hidden: HiddenPlatform, link: tuple[str, str, str]) -> float:
    """The highest rate (B/s) that any traffic can ask of a link: what the other links carry without it."""
    level, resource, direction = link
    without = Network(hidden.cabinets, {k: v for k, v in hidden.capacity.items() if k != link})
    hosts = [resource] if level == "host" else hidden.cabinets.get(resource, [])
    inside = set(hosts)
    others = [host for host in hidden.hosts if host not in inside]
    outward = [(a, b) for a in hosts for b in others]
    inward = [(b, a) for a, b in outward]
    flows = {"up": outward, "down": inward, "limiter": outward + inward}.get(direction, [])
    return without.total(flows) if flows else 0.0


def true_names(discovered: Topology, truth: Topology) -> dict[str, str]:
    """The true name of each discovered cabinet; empty if the cabinets differ."""
    names = {frozenset(hosts): name for name, hosts in truth.items()}
    renamed = {name: names.get(frozenset(hosts), "") for name, hosts in discovered.items()}
    return renamed if all(renamed.values()) and len(renamed) == len(truth) else {}


@pytest.mark.parametrize("name", PLATFORMS)
def test_measured_capacities_are_true_and_a_proved_model_predicts(name: str) -> None:
    hidden = PLATFORMS[name]
    network = planted(hidden)
    study = network.study()
    model = fit(network.records, study.cabinets)
    true_name = true_names(study.cabinets, hidden.cabinets)
    assert true_name or len(hidden.cabinets) == 1, study.cabinets
    errors = []
    for capacity in model.capacities:
        link = (capacity.level, true_name.get(capacity.resource, capacity.resource), capacity.direction)
        true_value = hidden.capacity.get(link)
        if capacity.state == "measured" and capacity.level != "network":
            if true_value is None or capacity.value != pytest.approx(true_value, rel=0.01):
                errors.append((link, capacity.value, true_value, capacity.reason))
        elif capacity.reason.startswith(NEVER_BINDS) and true_value is not None:
            demand = maximum_demand(hidden, link)
            if true_value < 0.97 * demand:
                errors.append((link, "is a limit", true_value / demand, capacity.reason))
        elif true_value is not None and capacity.value is not None and true_value < 0.99 * capacity.value:
            errors.append((link, "is no more than", true_value / capacity.value, capacity.reason))
    assert not errors
    assert proof_outcome(network, model) == "PASS"
    for pattern, flows in patterns(hidden.hosts, study.cabinets, 7).items():
        true_rate = network.network.total(flows)
        assert model.network.total(flows) == pytest.approx(true_rate, rel=0.05), pattern
