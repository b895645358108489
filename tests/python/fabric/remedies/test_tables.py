"""Repaired forwarding tables: the tests count their flows themselves, link by link, and OpenSM loads the tables on a
simulated fabric."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
import subnet_simulation
from hypothesis import given, settings
from hypothesis import strategies as st
from small_fabrics import ring

from assay.commands.fabric.repair import _better_tables
from assay.errors import UserError
from assay.fabric import Fabric, Routes, synthetic, tables
from assay.fabric.read import read_fabric, read_tables
from assay.fabric.remedies.lfts import write_lfts
from assay.fabric.remedies.tables import (
    entry_bound,
    find_cable,
    lower_bound,
    path_of,
    repair,
    without_cables,
)
from assay.fabric.tables import NO_ENTRY, ForwardingTables


def fat_tree(text: str) -> Fabric:
    return synthetic.build(synthetic.parse(text))


def walk_all(fabric: Fabric, routing: ForwardingTables, senders: set | None = None) -> tuple[Counter, set]:
    """Follows the routes from ``senders`` (default: all hosts) to all hosts. Returns the number of flows on each link
    (switch, port) between switches, and the pairs of links that follow each other on a route."""
    ends = {
        (int(a), int(p)): int(b)
        for a, p, b in zip(fabric.link_from, fabric.link_from_port, fabric.link_to, strict=True)
    }
    load, waits = Counter(), set()
    for src in sorted(senders if senders is not None else range(fabric.hosts)):
        for dst in range(fabric.hosts):
            node, before, links = ends[fabric.switches + src, 1], None, []
            while src != dst:
                link = (node, int(routing.ports[node, dst]))
                assert link in ends and len(links) < fabric.switches
                if ends[link] >= fabric.switches:
                    assert ends[link] == fabric.switches + dst
                    break
                if before is not None:
                    waits.add((before, link))
                links.append(link)
                before, node = link, ends[link]
            load.update(links)
    return load, waits


def assert_no_credit_loop(waits: set) -> None:
    followers: dict = {}
    for link, following in waits:
        followers.setdefault(link, []).append(following)
    TopologicalSorter(followers).prepare()  # raises CycleError if links wait for each other in a cycle


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_tables_are_repaired_around_any_dead_cables(data: st.DataObject) -> None:
    text = data.draw(
        st.sampled_from(["radix=6", "radix=8,nodes=19", "radix=4,levels=3", "radix=8,spines=2,nodes=15"])
    )
    fabric = fat_tree(text)
    given_tables = tables.compute(fabric, "d-mod-k")
    between = np.flatnonzero(fabric.between_switches).tolist()
    dead = data.draw(st.lists(st.sampled_from(between), unique=True, max_size=4))
    remaining_fabric = without_cables(fabric, dead)
    try:
        result = repair(remaining_fabric, given_tables)
    except UserError as error:
        assert "no way leads from" in str(error)
        return
    load, waits = walk_all(remaining_fabric, result.tables)
    assert max(load.values(), default=0) == result.heaviest
    assert_no_credit_loop(waits)
    assert lower_bound(remaining_fabric) <= result.heaviest + 1e-6
    if "levels" not in text:
        assert entry_bound(remaining_fabric) <= result.heaviest
    if not dead:
        assert result.changed == 0


def test_ten_dead_cables_of_500_nodes_reach_the_bound() -> None:
    fabric = fat_tree("radix=36,nodes=500")
    dead = np.random.default_rng(1).choice(np.flatnonzero(fabric.between_switches), 10, replace=False)
    remaining_fabric = without_cables(fabric, dead.tolist())
    result = repair(remaining_fabric, tables.compute(fabric, "d-mod-k"))
    routes = Routes(remaining_fabric, result.tables)
    src, dst = np.repeat(np.arange(500), 500), np.tile(np.arange(500), 500)
    crossed = routes.links(src, dst)
    crossed = crossed[(crossed >= 0) & remaining_fabric.between_switches[crossed]]
    assert np.bincount(crossed).max() == result.heaviest == entry_bound(remaining_fabric)


@pytest.mark.parametrize("paths", [2, 4])
def test_several_lids_per_host_reduce_the_load_below_the_bound_of_one(paths: int) -> None:
    """Flows are counted link by link. Each sender uses the tables of the LID to which it sends."""
    fabric = fat_tree("radix=8,nodes=30")
    dead = np.random.default_rng(3).choice(np.flatnonzero(fabric.between_switches), 3, replace=False)
    remaining_fabric = without_cables(fabric, dead.tolist())
    given_tables = tables.compute(fabric, "d-mod-k")
    one_lid, several_lids = (
        repair(remaining_fabric, given_tables),
        repair(remaining_fabric, given_tables, paths),
    )
    lid_of_sender = path_of(remaining_fabric, paths)
    load, waits = Counter(), set()
    for number, routing in enumerate(several_lids.paths):
        senders = set(np.flatnonzero(lid_of_sender == number).tolist())
        part, part_waits = walk_all(remaining_fabric, routing, senders)
        load += part
        waits |= walk_all(remaining_fabric, routing)[1] | part_waits
    assert_no_credit_loop(waits)
    assert max(load.values()) == several_lids.heaviest
    assert lower_bound(remaining_fabric) <= several_lids.heaviest <= one_lid.heaviest
    assert one_lid.heaviest >= entry_bound(remaining_fabric)
    assert several_lids.heaviest < entry_bound(remaining_fabric) or paths == 2


def test_hosts_of_a_switch_use_the_lids_in_turn() -> None:
    fabric = fat_tree("radix=8,nodes=10")
    assert path_of(fabric, 2).tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert path_of(fabric, 4).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert path_of(fabric, 1).tolist() == [0] * 10


@pytest.mark.slow
def test_four_lids_per_host_are_within_1_percent_of_split_flows() -> None:
    fabric = fat_tree("radix=36,nodes=500")
    dead = np.random.default_rng(1).choice(np.flatnonzero(fabric.between_switches), 10, replace=False)
    remaining_fabric = without_cables(fabric, dead.tolist())
    result = repair(remaining_fabric, tables.compute(fabric, "d-mod-k"), 4)
    lid_of_sender, load = path_of(remaining_fabric, 4), np.zeros(remaining_fabric.links, np.int64)
    for number, routing in enumerate(result.paths):
        senders = np.flatnonzero(lid_of_sender == number)
        crossed = Routes(remaining_fabric, routing).links(
            np.repeat(senders, 500), np.tile(np.arange(500), len(senders))
        )
        crossed = crossed[(crossed >= 0) & remaining_fabric.between_switches[crossed]]
        load += np.bincount(crossed, minlength=remaining_fabric.links)
    assert load.max() == result.heaviest
    assert lower_bound(remaining_fabric) >= 0.99 * result.heaviest


def test_routes_without_a_common_spine_lead_over_another_leaf() -> None:
    """leaf0 and leaf1 have no spine in common. Their routes lead over leaf2."""
    remaining_fabric = fat_tree("radix=4,nodes=6,dead=leaf0:3;leaf1:4")
    load, waits = walk_all(remaining_fabric, repair(remaining_fabric, None).tables)
    assert len(load) and set(waits)
    assert_no_credit_loop(waits)


def test_cables_that_cannot_be_avoided_are_refused() -> None:
    texts = ["MF0;leaf0:X/U1", "leaf 1", "leaf 2", "spine", "spine"]
    fabric = replace(fat_tree("radix=4,nodes=6"), switch_texts=texts)
    ups = [find_cable(fabric, f"leaf0:{port}") for port in (3, 4)]
    assert ups[0] == find_cable(fabric, "MF0;leaf0:X/U1:3")
    with pytest.raises(UserError, match="no way leads from leaf1 to leaf0"):
        repair(without_cables(fabric, ups), None)
    for text, message in {
        "leaf0": "not a switch and a port",
        "leaf9:3": "no switch has the name",
        "leaf00:3": "no switch has the name 'leaf00'; fix: did you mean leaf0",
        "spine:1": "several switches have the name 'spine'",
        "leaf0:99": "no cable is at port 99",
        "leaf0:1": "the only cable of a host",
    }.items():
        with pytest.raises(UserError, match=message):
            find_cable(fabric, text)


@pytest.mark.programs
@pytest.mark.skipif(
    bool(subnet_simulation.missing_requirement()), reason=subnet_simulation.missing_requirement() or "-"
)
def test_opensm_loads_the_repaired_tables(tmp_path: Path) -> None:
    """OpenSM routes a fabric. Two of its cables are avoided. OpenSM loads the new tables, and its dump has them."""
    subnet_simulation.simulate(fat_tree("radix=8,nodes=30"), tmp_path / "before")
    fabric = read_fabric(tmp_path / "before" / subnet_simulation.TOPOLOGY)
    before = read_tables(tmp_path / "before" / subnet_simulation.TABLES, fabric)
    avoided = [find_cable(fabric, text) for text in ("leaf0:5", "leaf3:7")]
    result = repair(without_cables(fabric, avoided), before)
    (tmp_path / "new.lfts").write_text(write_lfts(fabric, [result.tables]))
    subnet_simulation.simulate(
        fat_tree("radix=8,nodes=30"), tmp_path / "after", "file", tmp_path / "new.lfts"
    )
    loaded = read_fabric(tmp_path / "after" / subnet_simulation.TOPOLOGY)
    after = read_tables(tmp_path / "after" / subnet_simulation.TABLES, loaded)
    load, _ = walk_all(loaded, after)
    leaves = {name: loaded.switch_names.index(name) for name in ("leaf0", "leaf3")}
    assert (leaves["leaf0"], 5) not in load and (leaves["leaf3"], 7) not in load
    assert max(load.values()) == result.heaviest
    hosts = loaded.find_ports(fabric.host_names)
    switches = [loaded.switch_names.index(name) for name in fabric.switch_names]
    assert (after.ports[np.ix_(switches, hosts)] == result.tables.ports).all()
    assert (before.ports != result.tables.ports).any()


def entries_of(dump: str) -> dict[str, dict[int, int]]:
    """The port by LID of each switch, from the output of dump_fts."""
    ports_by_switch: dict[str, dict[int, int]] = {}
    for line in dump.splitlines():
        if head := re.match(r"Unicast lids .* \((.*)\):", line):
            table = ports_by_switch.setdefault(head[1], {})
        elif entry := re.match(r"(0x[0-9a-f]{4}) ([0-9]{3}) :", line):
            table[int(entry[1], 16)] = int(entry[2])
    return ports_by_switch


@pytest.mark.programs
@pytest.mark.skipif(
    bool(subnet_simulation.missing_requirement()), reason=subnet_simulation.missing_requirement() or "-"
)
def test_opensm_loads_the_tables_of_several_lids(tmp_path: Path) -> None:
    """Every LID of every host is routed as planned. The flows of the most used link are counted from OpenSM's dump."""
    tree = fat_tree("radix=8,nodes=30")
    subnet_simulation.simulate(tree, tmp_path / "before", lmc=2)
    fabric = read_fabric(tmp_path / "before" / subnet_simulation.TOPOLOGY)
    before = read_tables(tmp_path / "before" / subnet_simulation.TABLES, fabric)
    avoided = [find_cable(fabric, text) for text in ("leaf0:5", "leaf3:7")]
    remaining_fabric = without_cables(fabric, avoided)
    result = repair(remaining_fabric, before, 4)
    (tmp_path / "new.lfts").write_text(write_lfts(remaining_fabric, result.paths))
    subnet_simulation.simulate(tree, tmp_path / "after", "file", tmp_path / "new.lfts", lmc=2)
    loaded = read_fabric(tmp_path / "after" / subnet_simulation.TOPOLOGY)
    tables_of = entries_of((tmp_path / "after" / subnet_simulation.TABLES).read_text())
    lids = dict(zip(loaded.host_names, loaded.host_lids.tolist(), strict=True))
    load: Counter = Counter()
    for number, routing in enumerate(result.paths):
        ports = np.array([
            [tables_of[switch].get(lids[host] + number, NO_ENTRY) for host in fabric.host_names]
            for switch in fabric.switch_names
        ])  # fmt: skip
        assert (ports == routing.ports).all()
        senders = set(np.flatnonzero(path_of(remaining_fabric, 4) == number).tolist())
        load += walk_all(remaining_fabric, ForwardingTables(ports.astype(np.uint16)), senders)[0]
    assert max(load.values()) == result.heaviest < entry_bound(remaining_fabric)


def test_tables_of_several_lids_need_hosts_with_several_lids() -> None:
    fabric = fat_tree("radix=8,nodes=30")
    with pytest.raises(UserError, match="node00 has 1 LID, and 2 are needed"):
        write_lfts(fabric, repair(fabric, None, 2).paths)


def test_tables_of_virtual_lanes_are_not_replaced_by_fuller_ones() -> None:
    """Shortest ways around a ring wait for each other unless lanes keep them apart. Without lanes one cable is hardly
    used, so the others are fuller."""
    fabric = ring(8)
    given = ForwardingTables(tables.min_hop(fabric).ports, "given")
    with pytest.raises(UserError, match="wait for each other in a circle if they share a virtual lane"):
        _better_tables(fabric, given, 1)
    computed = tables.min_hop(fabric)
    assert computed.is_computed and _better_tables(fabric, computed, 1)[2] > 0
