"""Every schedule has each pair once; conflicts are counted again here, link by link, without the product's counting."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import UserError
from assay.fabric import synthetic, tables
from assay.fabric.remedies import search
from assay.fabric.remedies.exchange import conflict_free, demand_of
from assay.fabric.remedies.tables import repair, without_cables
from assay.fabric.routes import Routes


def fat_tree(text: str) -> Routes:
    fabric = synthetic.build(synthetic.parse(text))
    return Routes(fabric, tables.compute(fabric, "d-mod-k"))


def walked(routes: Routes, src: int, dst: int) -> list[tuple[int, int]]:
    """(switch, port) of each link between switches, by following the tables entry by entry."""
    fabric, ends = routes.fabric, {}
    for link in range(fabric.links):
        ends[int(fabric.link_from[link]), int(fabric.link_from_port[link])] = int(fabric.link_to[link])
    node, crossed = ends[fabric.switches + src, 1], []
    while True:
        port = int(routes.tables.ports[node, dst])
        following = ends[node, port]
        if following >= fabric.switches:
            assert following == fabric.switches + dst
            return crossed
        crossed.append((node, port))
        node = following


def check(routes: Routes, members: list[int], steps: np.ndarray) -> None:
    """Each ordered pair once, nobody twice in a step, no link twice in a step."""
    met = Counter()
    for step in steps:
        active = [(src, int(dst)) for src, dst in enumerate(step) if dst >= 0]
        assert len({dst for _, dst in active}) == len(active)
        load = Counter()
        for src, dst in active:
            met[src, dst] += 1
            load.update(walked(routes, members[src], members[dst]))
        assert max(load.values(), default=0) <= 1
    ranks = range(len(members))
    assert met == Counter((src, dst) for src in ranks for dst in ranks if src != dst)


@pytest.mark.parametrize("nodes", [45, 64])
def test_radix_36_needs_a_step_for_each_other_node(nodes: int) -> None:
    routes = fat_tree(f"radix=36,nodes={nodes}")
    schedule = conflict_free(demand_of(routes, np.arange(nodes)))
    assert schedule.steps == nodes - 1
    check(routes, list(range(nodes)), schedule.array())


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_hosts_of_a_two_level_tree_in_any_order(data: st.DataObject) -> None:
    radix = data.draw(st.sampled_from([4, 6, 8]))
    nodes = data.draw(st.integers(2, radix * radix // 2))
    routes = fat_tree(f"radix={radix},levels=2,nodes={nodes}")
    members = data.draw(st.lists(st.integers(0, nodes - 1), unique=True, min_size=1))
    demand = demand_of(routes, np.array(members))
    schedule = conflict_free(demand)
    check(routes, members, schedule.array())
    load = Counter()
    for src in members:
        for dst in members:
            load.update(walked(routes, src, dst) if src != dst else [])
    assert schedule.steps == demand.bound() == max(len(members) - 1, *load.values(), 0)


@pytest.mark.parametrize(
    ("text", "steps"),
    [("radix=36,nodes=64,dead=leaf0:19", 92), ("radix=12,nodes=32,per-leaf=8,spines=2,levels=2", 48)],
)
def test_hosts_that_share_a_cable_down(text: str, steps: int) -> None:
    """All flows to two hosts come down one cable: 2 x (64 - 18), 2 x (32 - 8); those within the leaf fit in between."""
    routes = fat_tree(text)
    hosts = routes.fabric.hosts
    demand = demand_of(routes, np.arange(hosts))
    assert demand.bound() == steps
    schedule = conflict_free(demand)
    assert schedule.steps == steps
    check(routes, list(range(hosts)), schedule.array())


def test_an_exchange_beyond_the_memory_is_refused() -> None:
    routes = fat_tree("radix=36,nodes=5000")
    with pytest.raises(UserError, match="too large to be planned"):
        conflict_free(demand_of(routes, np.arange(5000)))


def repaired(text: str, dead: int) -> Routes:
    """Tables made anew around ``dead`` cables that are drawn."""
    routes = fat_tree(text)
    between = np.flatnonzero(routes.fabric.between_switches)
    drawn = np.random.default_rng(1).choice(between, dead, replace=False)
    left = without_cables(routes.fabric, drawn.tolist())
    return Routes(left, repair(left, routes.tables).tables)


@pytest.mark.parametrize("text", ["radix=6,nodes=16,dead=leaf0:4", "radix=4,levels=3,nodes=16"])
@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_what_no_flow_can_plan_is_still_without_conflicts(text: str, seconds: float) -> None:
    """A link that some leaves use for a destination and others do not; links between middle levels."""
    routes = fat_tree(text)
    demand = demand_of(routes, np.arange(routes.fabric.hosts))
    schedule = conflict_free(demand, seconds)
    assert schedule.steps >= demand.bound()
    check(routes, list(range(routes.fabric.hosts)), schedule.array())


@pytest.mark.parametrize(
    ("routes", "steps"),
    [
        (repaired("radix=36,nodes=45", 1), 44),
        (repaired("radix=36,nodes=45", 4), 44),
        (repaired("radix=12,nodes=60", 3), 66),
        (fat_tree("radix=8,levels=3,nodes=34"), 33),
    ],
)
def test_the_search_reaches_the_bound_on_repaired_tables_and_three_levels(routes: Routes, steps: int) -> None:
    hosts = routes.fabric.hosts
    demand = demand_of(routes, np.arange(hosts))
    assert demand.bound() == steps < conflict_free(demand).steps
    schedule = conflict_free(demand, 120)
    assert schedule.steps == steps
    check(routes, list(range(hosts)), schedule.array())


@settings(max_examples=8, deadline=None)
@given(dead=st.integers(0, 3), nodes=st.integers(5, 16), seconds=st.sampled_from([1e-9, 10.0]))
def test_a_search_that_runs_out_of_time_has_every_pair(dead: int, nodes: int, seconds: float) -> None:
    routes = repaired(f"radix=8,levels=3,nodes={nodes}", dead)
    demand = demand_of(routes, np.arange(nodes))
    cells = search.cells_of(demand.senders, demand.leaf, demand.paths)
    plan = search.plan(cells, seconds)
    assert (plan.sum(axis=0) == cells.demand).all()
    assert (cells.capacity >= (cells.uses @ plan.T).T).all()
    assert cells.bound() == demand.bound() <= len(plan)
