"""Repaired tables: counted again here, link by link; loaded into OpenSM on a simulated fabric."""

from __future__ import annotations

import re
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
from assay.fabric.remedies.tables import (
    entry_bound,
    find_cable,
    lower_bound,
    path_of,
    repair,
    without_cables,
)
from assay.fabric.tables import NO_ENTRY, ForwardingTables


def built(text: str) -> Fabric:
    return synthetic.build(synthetic.parse(text))


def walk_all(fabric: Fabric, made: ForwardingTables, senders: set | None = None) -> tuple[Counter, set]:
    """Flows on each (switch, port) between switches from ``senders`` (default: all) to all hosts, and which follow
    each other."""
    ends = {
        (int(a), int(p)): int(b)
        for a, p, b in zip(fabric.link_from, fabric.link_from_port, fabric.link_to, strict=True)
    }
    load, waits = Counter(), set()
    for src in sorted(senders if senders is not None else range(fabric.hosts)):
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


@pytest.mark.parametrize("paths", [2, 4])
def test_several_lids_a_host_reach_what_one_cannot(paths: int) -> None:
    """Counted link by link, each host by the tables of the LID that it sends to."""
    fabric = built("radix=8,nodes=30")
    dead = np.random.default_rng(3).choice(np.flatnonzero(fabric.between_switches), 3, replace=False)
    left = without_cables(fabric, dead.tolist())
    given_tables = tables.compute(fabric, "d-mod-k")
    one, several = repair(left, given_tables), repair(left, given_tables, paths)
    turn = path_of(left, paths)
    load, waits = Counter(), set()
    for number, made in enumerate(several.paths):
        senders = set(np.flatnonzero(turn == number).tolist())
        part, part_waits = walk_all(left, made, senders)
        load += part
        waits |= walk_all(left, made)[1] | part_waits
    assert_no_circle(waits)
    assert max(load.values()) == several.heaviest
    assert lower_bound(left) <= several.heaviest <= one.heaviest
    assert one.heaviest >= entry_bound(left)
    assert several.heaviest < entry_bound(left) or paths == 2


def test_hosts_of_a_switch_take_the_lids_in_turn() -> None:
    fabric = built("radix=8,nodes=10")
    assert path_of(fabric, 2).tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert path_of(fabric, 4).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert path_of(fabric, 1).tolist() == [0] * 10


def test_four_lids_a_host_reach_99_percent_of_split_flows_for_500_hosts() -> None:
    fabric = built("radix=36,nodes=500")
    dead = np.random.default_rng(1).choice(np.flatnonzero(fabric.between_switches), 10, replace=False)
    left = without_cables(fabric, dead.tolist())
    result = repair(left, tables.compute(fabric, "d-mod-k"), 4)
    turn, load = path_of(left, 4), np.zeros(left.links, np.int64)
    for number, made in enumerate(result.paths):
        senders = np.flatnonzero(turn == number)
        crossed = Routes(left, made).links(np.repeat(senders, 500), np.tile(np.arange(500), len(senders)))
        crossed = crossed[(crossed >= 0) & left.between_switches[crossed]]
        load += np.bincount(crossed, minlength=left.links)
    assert load.max() == result.heaviest
    assert lower_bound(left) >= 0.99 * result.heaviest


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
    (tmp_path / "new.lfts").write_text(write_lfts(fabric, [result.tables]))
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


def entries_of(dump: str) -> dict[str, dict[int, int]]:
    """Of each switch by its name: LID and port, as dump_fts prints them."""
    found: dict[str, dict[int, int]] = {}
    for line in dump.splitlines():
        if head := re.match(r"Unicast lids .* \((.*)\):", line):
            table = found.setdefault(head[1], {})
        elif entry := re.match(r"(0x[0-9a-f]{4}) ([0-9]{3}) :", line):
            table[int(entry[1], 16)] = int(entry[2])
    return found


@pytest.mark.programs
@pytest.mark.skipif(bool(subnet_simulation.missing()), reason=subnet_simulation.missing() or "-")
def test_opensm_loads_the_tables_of_several_lids(tmp_path: Path) -> None:
    """Every LID of every host is routed as planned; the fullest link is counted from OpenSM's own dump."""
    tree = built("radix=8,nodes=30")
    subnet_simulation.simulate(tree, tmp_path / "before", lmc=2)
    fabric = read_fabric(tmp_path / "before" / subnet_simulation.TOPOLOGY)
    before = read_tables(tmp_path / "before" / subnet_simulation.TABLES, fabric)
    avoided = [find_cable(fabric, text) for text in ("leaf0:5", "leaf3:7")]
    left = without_cables(fabric, avoided)
    result = repair(left, before, 4)
    (tmp_path / "new.lfts").write_text(write_lfts(left, result.paths))
    subnet_simulation.simulate(tree, tmp_path / "after", "file", tmp_path / "new.lfts", lmc=2)
    loaded = read_fabric(tmp_path / "after" / subnet_simulation.TOPOLOGY)
    tables_of = entries_of((tmp_path / "after" / subnet_simulation.TABLES).read_text())
    lids = dict(zip(loaded.host_names, loaded.host_lids.tolist(), strict=True))
    load: Counter = Counter()
    for number, made in enumerate(result.paths):
        ports = np.array([
            [tables_of[switch].get(lids[host] + number, NO_ENTRY) for host in fabric.host_names]
            for switch in fabric.switch_names
        ])  # fmt: skip
        assert (ports == made.ports).all()
        senders = set(np.flatnonzero(path_of(left, 4) == number).tolist())
        load += walk_all(left, ForwardingTables(ports.astype(np.uint16)), senders)[0]
    assert max(load.values()) == result.heaviest < entry_bound(left)


def test_tables_of_several_lids_need_hosts_that_have_them() -> None:
    fabric = built("radix=8,nodes=30")
    with pytest.raises(UserError, match="node00 has 1 LID, and 2 are needed"):
        write_lfts(fabric, repair(fabric, None, 2).paths)
