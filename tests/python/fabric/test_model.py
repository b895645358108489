"""Routes and conflicts of described fat trees, compared with closed forms and known values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import UserError
from assay.fabric import Fabric, ForwardingTables, Routes, conflicts, schedules, synthetic, tables


def fat_tree(text: str) -> Fabric:
    return synthetic.build(synthetic.parse(text))


def routes_of(text: str, engine: str = "d-mod-k") -> Routes:
    fabric = fat_tree(text)
    return Routes(fabric, tables.compute(fabric, engine))


def conflicts_of_shift(routes: Routes) -> conflicts.Conflicts:
    ranks = routes.fabric.hosts
    return conflicts.analyse(routes, schedules.shift(ranks), np.arange(ranks))


# Conflicts and lockstep rounds of radix-36 trees, from a model and from the tables of OpenSM.
@pytest.mark.parametrize(("nodes", "total", "rounds"), [(45, 81, 62), (64, 160, 98), (512, 2160, 971)])
def test_known_conflicts_and_rounds(nodes: int, total: int, rounds: int) -> None:
    result = conflicts_of_shift(routes_of(f"radix=36,nodes={nodes}"))
    assert (result.total, result.rounds, result.bound) == (total, rounds, nodes)
    assert result.share == total / nodes**2


def test_conflicts_by_step_of_45_nodes() -> None:
    result = conflicts_of_shift(routes_of("radix=36,nodes=45"))
    assert list(result.conflicts) == [max(0, 9 - abs(k - 27)) for k in range(45)]


def test_two_pairs_share_an_up_port_at_shift_28() -> None:
    routes = routes_of("radix=36,nodes=45")
    shared = conflicts.Loads(routes, np.arange(45)).shared_links(schedules.shift(45).step(28))
    assert len(shared) == 8
    pairs = [set(zip(s.src.tolist(), s.dst.tolist(), strict=True)) for s in shared]
    assert {(20, 37), (29, 1)} in pairs
    link = shared[pairs.index({(20, 37), (29, 1)})].link
    assert routes.fabric.link_name(link) == "leaf1[20] -> spine1[2]"


@settings(deadline=None, max_examples=25)
@given(half=st.integers(2, 8), data=st.data())
def test_conflicts_follow_the_closed_form(half: int, data: st.DataObject) -> None:
    """F full leaf switches of m hosts and a last leaf switch of r hosts have r (m - r) (F - 1) conflicts."""
    full = data.draw(st.integers(1, 2 * half - 1))
    last = data.draw(st.integers(1, half))
    result = conflicts_of_shift(routes_of(f"radix={2 * half},nodes={full * half + last}"))
    assert result.total == last * (half - last) * (full - 1)


@pytest.mark.parametrize(
    "text", ["radix=8", "radix=8,levels=3", "radix=4,levels=4", "radix=12,nodes=36,spines=3"]
)
def test_complete_trees_have_no_conflict_in_shifts(text: str) -> None:
    """Zahavi's theorem on d-mod-k routing of complete fat trees."""
    result = conflicts_of_shift(routes_of(text))
    assert result.total == 0
    assert result.rounds == result.bound


@settings(deadline=None, max_examples=30)
@given(
    half=st.integers(2, 4),
    levels=st.integers(2, 3),
    engine=st.sampled_from(sorted(tables.ENGINES)),
    data=st.data(),
)
def test_every_route_leads_up_and_down_to_its_destination(
    half: int, levels: int, engine: str, data: st.DataObject
) -> None:
    """A route is a chain of links from its source to its destination that goes up and then down."""
    nodes = data.draw(st.integers(1, 2 * half**levels))
    routes = routes_of(f"radix={2 * half},levels={levels},nodes={nodes}", engine)
    fabric = routes.fabric
    src, dst = (a.ravel() for a in np.meshgrid(np.arange(nodes), np.arange(nodes)))
    for source, target, row in zip(src, dst, routes.links(src, dst), strict=True):
        path = row[row >= 0]
        assert list(row[len(path) :]) == [-1] * (len(row) - len(path))
        if source == target:
            assert len(path) == 0
            continue
        assert fabric.link_from[path[0]] == fabric.switches + source
        assert fabric.link_to[path[-1]] == fabric.switches + target
        assert list(fabric.link_to[path[:-1]]) == list(fabric.link_from[path[1:]])
        heights = fabric.levels[fabric.link_to[path[:-1]]].tolist()
        top = heights.index(max(heights))
        assert heights[: top + 1] == sorted(heights[: top + 1])
        assert heights[top:] == sorted(heights[top:], reverse=True)


@pytest.mark.parametrize(
    ("text", "hosts", "switches"),
    [("radix=8,levels=1", 8, 1), ("radix=8,missing=3;31", 30, 12), ("radix=4,nodes=8,missing=0", 8, 15)],
)
def test_a_tree_has_room_for_all_its_hosts(text: str, hosts: int, switches: int) -> None:
    """One level is a single switch, all of whose ports lead to hosts. Without ``nodes`` all places but the missing are
    used."""
    fabric = fat_tree(text)
    assert (fabric.hosts, fabric.switches) == (hosts, switches)
    assert (fabric.host_switch >= 0).all()


def test_dead_links_are_routed_around() -> None:
    routes = routes_of("radix=8,dead=leaf0:5")
    assert routes.reachable().all()
    assert not any("leaf0[5]" in routes.fabric.link_name(link) for link in range(routes.fabric.links))
    assert conflicts_of_shift(routes).total > 0


def test_the_reverse_link_of_a_link_is_its_cables_other_direction() -> None:
    fabric = fat_tree("radix=8,nodes=16,spines=2")
    assert (fabric.reverse[fabric.reverse] == np.arange(fabric.links)).all()
    assert (fabric.link_from[fabric.reverse] == fabric.link_to).all()
    assert (fabric.host_switch == np.arange(16) // 4).all()
    assert (fabric.levels == [0] * 4 + [1] * 2).all()


def routes_with_entry(switch: int, host: int, port: int) -> Routes:
    fabric = fat_tree("radix=4,nodes=6")
    ports = tables.d_mod_k(fabric).ports.copy()
    ports[switch, host] = port
    lines = np.arange(ports.size, dtype=np.int32).reshape(ports.shape) + 1
    return Routes(fabric, ForwardingTables(ports, "lfts.txt", lines))


@pytest.mark.parametrize(
    ("port", "message"),
    [
        (tables.NO_ENTRY, "lfts.txt:6: switch leaf0 has no entry for LID 6 (node5)"),
        (200, "lfts.txt:6: switch leaf0 forwards LID 6 (node5) to port 200, where no cable is"),
        (1, "lfts.txt:6: switch leaf0 forwards LID 6 (node5) to port 1, which leads to another host"),
    ],
)
def test_a_route_that_ends_is_named(port: int, message: str) -> None:
    with pytest.raises(UserError) as error:
        routes_with_entry(0, 5, port).links(np.array([0]), np.array([5]))
    assert str(error.value) == message


def test_a_routing_loop_is_named() -> None:
    fabric = fat_tree("radix=4,nodes=6")
    ports = tables.d_mod_k(fabric).ports.copy()
    spine = int(np.flatnonzero(fabric.levels == 1)[0])
    up = int(ports[0, 5])
    spine = int(fabric.link_to[fabric.next_link[0, up]])
    ports[spine, 5] = 1  # back to leaf0
    with pytest.raises(UserError, match="in a loop"):
        Routes(fabric, ForwardingTables(ports, "x")).links(np.array([0]), np.array([5]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes=45", "radix of the switches is missing"),
        ("radix=7", "not an even number"),
        ("radix=36,nodes=x", "nodes=x is not a whole number"),
        ("radix=36,nodes=649,levels=2", "do not fit"),
        ("radix=36,colour=red", "'colour=red' is not understood"),
        ("radix=36,nodes=45,spines=5", "do not spread over 5 spines"),
        ("radix=36,nodes=64,spines=1", "a spine needs"),
        ("radix=8,dead=leaf9:1", "no cable is at port 1 of leaf9"),
        ("radix=8,dead=leaf0", "not a switch and a port"),
        ("radix=8,radix=8", "given twice"),
        ("radix=8,rate=3xEDR", "rate=3xEDR is not a rate"),
        ("radix=8,rate=4xHDR,rate=1xSDR", "rate is given twice"),
        ("radix=8,rate=4x", "rate=4x is not a rate"),
        ("radix=8\nnodes=20\nfoo\n", "--fat-tree:3: 'foo'"),
        ("radix=1", "radix=1 is not an even number from 4"),
        ("radix=36,nodes=0", "nodes=0 is not a whole number of at least 1"),
        ("radix=36,nodes=99999999", "nodes=99999999 is more than 49151"),
        ("radix=36,nodes=49151", "switches more than a subnet has addresses: 49151"),
        ("radix=36,levels=6", "are more than a subnet has addresses: 49151"),
        ("radix=36,levels=99", "levels=99 is more than 6"),
        ("radix=8,missing=32", "missing=32: the last of 32 places is 31"),
        ("radix=8,nodes=31,missing=0;1,levels=2", "no room is left for 31 nodes with 2 places empty"),
        ("radix=8,levels=1,nodes=9", "9 nodes do not fit"),
        ("radix=8,levels=1,per-leaf=4", "per-leaf is for a leaf switch"),
        ("radix=8,nodes=" + "9" * 5000, "nodes=99999999999999999999... is more than"),
    ],
)
def test_a_wrong_description_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        fat_tree(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@settings(deadline=None)
@given(st.text(alphabet="radixnodeslvp-=,;:#\n 0123456789", max_size=60))
def test_any_text_is_a_description_or_an_error(text: str) -> None:
    try:
        tree = synthetic.parse(text)
    except UserError:
        return
    assert tree.places


def test_bisection_of_a_switch_is_full_and_of_an_oversubscribed_tree_is_not() -> None:
    switch = routes_of("radix=8,nodes=4")
    assert conflicts.bisection(switch, np.arange(4), 5).tolist() == [1.0] * 5
    oversubscribed = routes_of("radix=12,nodes=60,per-leaf=8")
    assert conflicts.bisection(oversubscribed, np.arange(60), 5).max() < 0.8


def test_empty_slots_avoid_all_conflicts() -> None:
    """Nine empty slots fill the last leaf switch of 45 nodes. The 54 steps have no conflict."""
    routes = routes_of("radix=36,nodes=45")
    members = np.concatenate([np.arange(45), np.full(9, -1)])
    result = conflicts.analyse(routes, schedules.shift(54), members)
    assert (result.total, result.rounds) == (0, 54)


@pytest.mark.parametrize(
    "text", ["dead=\x1b[31mleaf0:5", "dead=\x1b[31m", "rate=\x1b[31m4xHDR", "levels=\x1b[31m"]
)
def test_no_description_of_a_tree_controls_the_terminal(text: str) -> None:
    with pytest.raises(UserError) as refused:
        synthetic.build(synthetic.parse(f"radix=8,nodes=30,{text}"))
    assert str(refused.value).isprintable()
