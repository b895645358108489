"""Planned exchanges: each schedule has every pair once and no conflict. The tests count conflicts themselves, by
following the forwarding tables link by link."""

from collections import Counter
from collections.abc import Callable
from functools import partial

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

pytestmark = pytest.mark.slow


def fat_tree(text: str) -> Routes:
    fabric = synthetic.build(synthetic.parse(text))
    return Routes(fabric, tables.compute(fabric, "d-mod-k"))


def links_of_route(routes: Routes, src: int, dst: int) -> list[tuple[int, int]]:
    """The (switch, port) of each link between switches on a route, found by following the tables entry by entry."""
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


def check_schedule(routes: Routes, members: list[int], steps: np.ndarray) -> None:
    """Asserts that each ordered pair occurs once, and that in a step no rank receives twice and no link is used
    twice."""
    pairs_sent = Counter()
    for step in steps:
        active = [(src, int(dst)) for src, dst in enumerate(step) if dst >= 0]
        assert len({dst for _, dst in active}) == len(active)
        load = Counter()
        for src, dst in active:
            pairs_sent[src, dst] += 1
            load.update(links_of_route(routes, members[src], members[dst]))
        assert max(load.values(), default=0) <= 1
    ranks = range(len(members))
    assert pairs_sent == Counter((src, dst) for src in ranks for dst in ranks if src != dst)


@pytest.mark.parametrize("nodes", [45, 64])
def test_an_exchange_of_radix_36_has_a_step_for_each_other_node(nodes: int) -> None:
    routes = fat_tree(f"radix=36,nodes={nodes}")
    schedule = conflict_free(demand_of(routes, np.arange(nodes)))
    assert schedule.steps == nodes - 1
    check_schedule(routes, list(range(nodes)), schedule.array())


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_exchanges_of_any_hosts_in_any_order_reach_the_bound(data: st.DataObject) -> None:
    radix = data.draw(st.sampled_from([4, 6, 8]))
    nodes = data.draw(st.integers(2, radix * radix // 2))
    routes = fat_tree(f"radix={radix},levels=2,nodes={nodes}")
    members = data.draw(st.lists(st.integers(0, nodes - 1), unique=True, min_size=1))
    demand = demand_of(routes, np.array(members))
    schedule = conflict_free(demand)
    check_schedule(routes, members, schedule.array())
    load = Counter()
    for src in members:
        for dst in members:
            load.update(links_of_route(routes, src, dst) if src != dst else [])
    assert schedule.steps == demand.bound() == max(len(members) - 1, *load.values(), 0)


@pytest.mark.parametrize(
    ("text", "steps"),
    [("radix=36,nodes=64,dead=leaf0:19", 92), ("radix=12,nodes=32,per-leaf=8,spines=2,levels=2", 48)],
)
def test_exchanges_to_hosts_that_share_a_down_cable_reach_the_bound(text: str, steps: int) -> None:
    """All flows to two hosts use one cable: 2 x (64 - 18) or 2 x (32 - 8) steps. Flows within the leaf fit into
    these."""
    routes = fat_tree(text)
    hosts = routes.fabric.hosts
    demand = demand_of(routes, np.arange(hosts))
    assert demand.bound() == steps
    schedule = conflict_free(demand)
    assert schedule.steps == steps
    check_schedule(routes, list(range(hosts)), schedule.array())


def test_an_exchange_beyond_the_memory_is_refused() -> None:
    routes = fat_tree("radix=36,nodes=5000")
    with pytest.raises(UserError, match="too large to be planned"):
        conflict_free(demand_of(routes, np.arange(5000)))


def routes_around_dead_cables(text: str, dead: int) -> Routes:
    """Routes after ``dead`` randomly chosen cables have failed and the tables were repaired."""
    routes = fat_tree(text)
    between = np.flatnonzero(routes.fabric.between_switches)
    failed_links = np.random.default_rng(1).choice(between, dead, replace=False)
    remaining_fabric = without_cables(routes.fabric, failed_links.tolist())
    return Routes(remaining_fabric, repair(remaining_fabric, routes.tables).tables)


@pytest.mark.parametrize("text", ["radix=6,nodes=16,dead=leaf0:4", "radix=4,levels=3,nodes=16"])
@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_irregular_fabrics_are_planned_without_conflicts(text: str, seconds: float) -> None:
    """The cases: a link that only some leaf switches use for a destination, and links between middle levels."""
    routes = fat_tree(text)
    demand = demand_of(routes, np.arange(routes.fabric.hosts))
    schedule = conflict_free(demand, seconds)
    assert schedule.steps >= demand.bound()
    check_schedule(routes, list(range(routes.fabric.hosts)), schedule.array())


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (partial(routes_around_dead_cables, "radix=36,nodes=45", 1), 44),
        (partial(routes_around_dead_cables, "radix=36,nodes=45", 4), 44),
        (partial(routes_around_dead_cables, "radix=12,nodes=60", 3), 66),
        (partial(fat_tree, "radix=8,levels=3,nodes=34"), 33),
    ],
)
def test_the_search_reaches_the_bound_on_repaired_tables_and_three_levels(
    make: Callable[[], Routes], steps: int
) -> None:
    routes = make()
    hosts = routes.fabric.hosts
    demand = demand_of(routes, np.arange(hosts))
    assert demand.bound() == steps < conflict_free(demand).steps
    schedule = conflict_free(demand, 86400)  # it ends at the bound, after a second or two
    assert schedule.steps == steps
    check_schedule(routes, list(range(hosts)), schedule.array())


@settings(max_examples=8, deadline=None)
@given(dead=st.integers(0, 3), nodes=st.integers(5, 16), seconds=st.sampled_from([1e-9, 10.0]))
def test_a_search_that_runs_out_of_time_still_has_every_pair(dead: int, nodes: int, seconds: float) -> None:
    routes = routes_around_dead_cables(f"radix=8,levels=3,nodes={nodes}", dead)
    demand = demand_of(routes, np.arange(nodes))
    cells = search.cells_of(demand.senders, demand.leaf, demand.paths)
    plan = search.plan(cells, seconds)
    assert (plan.sum(axis=0) == cells.demand).all()
    assert (cells.capacity >= (cells.uses @ plan.T).T).all()
    assert cells.bound() == demand.bound() <= len(plan)
