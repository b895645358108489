"""Repaired tables: counted again here, link by link; loaded into OpenSM on a simulated fabric."""

from __future__ import annotations

from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
import subnet_simulation
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import UserError
from assay.fabric import Fabric, Routes, synthetic, tables
from assay.fabric.read import read_fabric, read_tables
from assay.fabric.remedies.lfts import write_lfts
from assay.fabric.remedies.tables import entry_bound, find_cable, lower_bound, repair, without_cables
from assay.fabric.tables import ForwardingTables


def built(text: str) -> Fabric:
    return synthetic.build(synthetic.parse(text))


def walk_all(fabric: Fabric, made: ForwardingTables) -> tuple[Counter, set]:
    """Flows on each (switch, port) between switches of an all-to-all exchange, and which follow each other."""
    ends = {
        (int(a), int(p)): int(b)
        for a, p, b in zip(fabric.link_from, fabric.link_from_port, fabric.link_to, strict=True)
    }
    load, waits = Counter(), set()
    for src in range(fabric.hosts):
        for dst in range(fabric.hosts):
            node, before, way = ends[fabric.switches + src, 1], None, []
            while src != dst:
                link = (node, int(made.ports[node, dst]))
                assert link in ends and len(way) < fabric.switches
                if ends[link] >= fabric.switches:
                    assert ends[link] == fabric.switches + dst
                    break
                if before is not None:
                    waits.add((before, link))
                way.append(link)
                before, node = link, ends[link]
            load.update(way)
    return load, waits


def assert_no_circle(waits: set) -> None:
    followers: dict = {}
    for link, following in waits:
        followers.setdefault(link, []).append(following)
    TopologicalSorter(followers).prepare()  # raises CycleError where buffers wait in a circle


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_dead_cables(data: st.DataObject) -> None:
    text = data.draw(
        st.sampled_from(["radix=6", "radix=8,nodes=19", "radix=4,levels=3", "radix=8,spines=2,nodes=15"])
    )
    fabric = built(text)
    given_tables = tables.compute(fabric, "d-mod-k")
    between = np.flatnonzero(fabric.between_switches).tolist()
    dead = data.draw(st.lists(st.sampled_from(between), unique=True, max_size=4))
    left = without_cables(fabric, dead)
    try:
        result = repair(left, given_tables)
    except UserError as error:
        assert "no way leads from" in str(error)
        return
    load, waits = walk_all(left, result.tables)
    assert max(load.values(), default=0) == result.heaviest
    assert_no_circle(waits)
    assert lower_bound(left) <= result.heaviest + 1e-6
    if "levels" not in text:
        assert entry_bound(left) <= result.heaviest
    if not dead:
        assert result.changed == 0


def test_ten_dead_cables_among_500_nodes_cost_no_more_than_tables_must() -> None:
    fabric = built("radix=36,nodes=500")
    dead = np.random.default_rng(1).choice(np.flatnonzero(fabric.between_switches), 10, replace=False)
    left = without_cables(fabric, dead.tolist())
    result = repair(left, tables.compute(fabric, "d-mod-k"))
    routes = Routes(left, result.tables)
    src, dst = np.repeat(np.arange(500), 500), np.tile(np.arange(500), 500)
    crossed = routes.links(src, dst)
    crossed = crossed[(crossed >= 0) & left.between_switches[crossed]]
    assert np.bincount(crossed).max() == result.heaviest == entry_bound(left)


def test_where_no_way_goes_up_and_down_a_switch_in_the_middle_is_the_top() -> None:
    """leaf0 and leaf1 have no spine in common: the way leads over leaf2."""
    left = built("radix=4,nodes=6,dead=leaf0:3;leaf1:4")
    load, waits = walk_all(left, repair(left, None).tables)
    assert len(load) and set(waits)
    assert_no_circle(waits)


def test_what_cannot_be_avoided_is_refused() -> None:
    fabric = built("radix=4,nodes=6")
    ups = [find_cable(fabric, f"leaf0:{port}") for port in (3, 4)]
    with pytest.raises(UserError, match="no way leads from leaf1 to leaf0"):
        repair(without_cables(fabric, ups), None)
    for text, message in {
        "leaf0": "not a switch and a port",
        "leaf9:3": "no switch has the name",
        "leaf0:99": "no cable is at port 99",
        "leaf0:1": "the only cable of a host",
    }.items():
        with pytest.raises(UserError, match=message):
            find_cable(fabric, text)


@pytest.mark.programs
@pytest.mark.skipif(bool(subnet_simulation.missing()), reason=subnet_simulation.missing() or "-")
def test_opensm_loads_the_tables(tmp_path: Path) -> None:
    """OpenSM routes a fabric; two of its cables are avoided; it loads the new tables, and its own dump has them."""
    subnet_simulation.simulate(built("radix=8,nodes=30"), tmp_path / "before")
    fabric = read_fabric(tmp_path / "before" / subnet_simulation.TOPOLOGY)
    before = read_tables(tmp_path / "before" / subnet_simulation.TABLES, fabric)
    avoided = [find_cable(fabric, text) for text in ("leaf0:5", "leaf3:7")]
    result = repair(without_cables(fabric, avoided), before)
    (tmp_path / "new.lfts").write_text(write_lfts(fabric, result.tables))
    subnet_simulation.simulate(built("radix=8,nodes=30"), tmp_path / "after", "file", tmp_path / "new.lfts")
    loaded = read_fabric(tmp_path / "after" / subnet_simulation.TOPOLOGY)
    after = read_tables(tmp_path / "after" / subnet_simulation.TABLES, loaded)
    load, _ = walk_all(loaded, after)
    leaves = {name: loaded.switch_names.index(name) for name in ("leaf0", "leaf3")}
    assert (leaves["leaf0"], 5) not in load and (leaves["leaf3"], 7) not in load
    assert max(load.values()) == result.heaviest
    hosts = loaded.find_hosts(fabric.host_names)
    switches = [loaded.switch_names.index(name) for name in fabric.switch_names]
    assert (after.ports[np.ix_(switches, hosts)] == result.tables.ports).all()
    assert (before.ports != result.tables.ports).any()
