"""Levels of switches: whatever hangs on a spine makes no leaf of it, and where there is no order none is made up."""

from __future__ import annotations

import numpy as np
import pytest
from small_fabrics import connected, ring

from assay.cli import main
from assay.commands.fabric import repair as verb
from assay.errors import UserError
from assay.fabric import Fabric, Routes, synthetic, tables
from assay.fabric.faults import credit_loops, unreachable_pairs
from assay.fabric.levels import UNREACHED
from assay.fabric.remedies.counted import fullest_link, meets_each_pair_once
from assay.fabric.remedies.tables import Repair
from assay.fabric.schedules import of_array, shift
from assay.fabric.topology import AGGREGATION_NODE, HOST, ROUTER

TREE = [(leaf, spine) for leaf in range(3) for spine in (3, 4)]  # leaf switches 0 to 2, spines 3 and 4
ON_LEAVES = [leaf for leaf in range(3) for _ in range(4)]


def tree(on_spines: list[int], kind: str = HOST) -> Fabric:
    """Four hosts on each of three leaf switches, and an end port of a kind on each of ``on_spines``."""
    kinds = [HOST] * len(ON_LEAVES) + [kind] * len(on_spines)
    return connected(5, TREE, [*ON_LEAVES, *on_spines], kinds)


@pytest.mark.parametrize("kind", [HOST, AGGREGATION_NODE, ROUTER])
@pytest.mark.parametrize("on_spines", [[3], [3, 4], [3, 3]])
def test_what_hangs_on_a_spine_makes_no_leaf_of_it(kind: str, on_spines: list[int]) -> None:
    fabric = tree(on_spines, kind)
    assert (fabric.leaves.tolist(), fabric.levels.tolist()) == ([0, 1, 2], [0, 0, 0, 1, 1])
    routes = Routes(fabric, tables.up_down(fabric))
    assert unreachable_pairs(routes) == 0
    assert credit_loops(routes) == []


def test_a_leaf_switch_with_one_host_is_a_leaf() -> None:
    fabric = connected(5, TREE, [0, 0, 0, 0, 1, 1, 1, 1, 2, 3])
    assert fabric.leaves.tolist() == [0, 1, 2]


def test_hosts_on_spines_turn_at_one_switch() -> None:
    """Flows between hosts of the two spines go down to a leaf switch and up again; other flows keep both spines."""
    alone, more = tree([]), tree([3, 4])
    fullest = [
        fullest_link([Routes(f, tables.up_down(f))], np.zeros(f.hosts, np.int32)) for f in (alone, more)
    ]
    assert fullest[1] <= fullest[0] + 8  # each of 4 hosts sends to and hears from two more


SHAPES = {
    "one switch": (1, [], [0, 0], [0], [0]),
    "two switches with hosts": (2, [(0, 1)], [0, 0, 1], [0, 1], [0, 0]),
    "a ring": (4, [(0, 1), (1, 2), (2, 3), (3, 0)], [0, 1, 2, 3], [0, 1, 2, 3], [0] * 4),
    "a triangle": (3, [(0, 1), (1, 2), (2, 0)], [0, 1, 2], [0, 1, 2], [0] * 3),
    "a leaf switch without hosts": (5, TREE, [0, 0, 1, 1], [0, 1], [0, 0, 0, 1, 1]),
    "a switch without cables": (2, [], [0, 0], [0], [0, UNREACHED]),
    # Switch 3 joins leaf 0 and the pods of 4 and 5, which have two leaf switches each.
    "mixed depths": (
        8,
        [(0, 3), (3, 4), (3, 5), (4, 1), (4, 2), (5, 6), (5, 7)],
        [0, 0, 1, 1, 2, 2, 6, 6, 7, 7],
        [0, 1, 2, 6, 7],
        [0, 0, 0, 2, 1, 1, 0, 0],
    ),
    "two islands": (4, [(0, 1), (2, 3)], [0, 0, 2, 2], [0, 2], [0, 1, 0, 1]),
    "a cable from a switch to itself": (2, [(0, 0), (0, 1)], [0, 0], [0], [0, 1]),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_levels_of(shape: tuple) -> None:
    switches, cables, hosts, leaves, levels = shape
    fabric = connected(switches, cables, hosts)
    assert (fabric.leaves.tolist(), fabric.levels.tolist()) == (leaves, levels)
    for engine in ("min-hop", "up/down"):
        routes = Routes(fabric, tables.compute(fabric, engine))
        assert unreachable_pairs(routes) == 0


def test_a_mesh_of_switches_with_hosts_has_no_levels() -> None:
    pairs = [(a, b) for a in range(6) for b in range(a)]
    assert connected(6, pairs, list(range(6))).levels.tolist() == [0] * 6
    assert ring(7).levels.tolist() == [0] * 7


@pytest.mark.parametrize(
    "text", ["radix=8,levels=3,nodes=100", "radix=4,levels=4", "radix=8,levels=3,dead=middle0:5"]
)
def test_levels_of_a_described_tree_are_its_own(text: str) -> None:
    fabric = synthetic.build(synthetic.parse(text))
    names = {"leaf": 0, "middle": 1, "level1-": 1, "level2-": 2, "spine": fabric.levels.max()}
    expected = [names[name.rstrip("0123456789")] for name in fabric.switch_names]
    assert fabric.levels.tolist() == expected


@pytest.mark.parametrize(
    ("fabric", "reason"),
    [
        (tree([3]), "h12 is on s3, above the leaf switches"),
        (ring(4), "s0 and s1 are neighbours and not one level apart"),
        (connected(2, [(0, 0), (0, 1)], [0, 0]), "s0 has a cable to itself"),
    ],
)
def test_d_mod_k_is_refused_with_the_reason(fabric: Fabric, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        tables.d_mod_k(fabric)


def test_d_mod_k_counts_hosts_alone() -> None:
    """An aggregation node on a spine shifts no host to another port: the tables of the hosts stay."""
    kinds = [AGGREGATION_NODE, *[HOST] * 12]
    fabric = connected(5, [(a, b) for b in (3, 4) for a in range(3)], [3, *ON_LEAVES], kinds)
    alone = connected(5, [(a, b) for b in (3, 4) for a in range(3)], ON_LEAVES)
    leaf_entries = tables.d_mod_k(fabric).ports[:3, 1:]
    assert (leaf_entries == tables.d_mod_k(alone).ports[:3]).all()


def test_repair_never_gives_worse_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best tables are given, and another planner is worse: the given ones stay."""
    fabric = synthetic.build(synthetic.parse("radix=8"))
    worse = tables.d_mod_k(fabric).ports.copy()
    worse[0, 4:] = 5  # all flows of a leaf switch go up by one port
    monkeypatch.setattr(verb, "repair", lambda *_: Repair([tables.ForwardingTables(worse, "x")], 0, 12))
    assert main(["fabric", "repair", "--fat-tree", "radix=8"]) == 0
    text = capsys.readouterr().out
    assert "nothing to repair" in text
    assert "these tables              28" in text


def test_an_exchange_that_leaves_out_a_pair_is_no_exchange() -> None:
    whole = shift(4).array()
    assert meets_each_pair_once(of_array("whole", whole))
    for step, rank, peer in ((1, 0, -1), (1, 0, 2)):
        broken = whole.copy()
        broken[step, rank] = peer
        assert not meets_each_pair_once(of_array("broken", broken))
