"""OpenSM routes simulated fabrics: the conflicts of its tables, compared with those of the models of its engines."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import subnet_simulation

from assay.fabric import Routes, conflicts, schedules, synthetic, tables
from assay.fabric.read import read_fabric, read_tables
from assay.fabric.remedies.exchange import conflict_free, demand_of

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(
        bool(subnet_simulation.missing_requirement()), reason=subnet_simulation.missing_requirement() or "-"
    ),
]


@pytest.mark.parametrize("engine", ["ftree", "minhop", "updn"])
def test_tables_of_opensm_for_45_nodes_have_81_conflicts(engine: str, tmp_path: Path) -> None:
    subnet_simulation.simulate(synthetic.build(synthetic.parse("radix=36,nodes=45")), tmp_path, engine)
    fabric = read_fabric(tmp_path / subnet_simulation.TOPOLOGY)
    for name in (subnet_simulation.TABLES, "opensm-lfts.dump", "opensm.fdbs"):
        routes = Routes(fabric, read_tables(tmp_path / name, fabric))
        assert conflicts.analyse(routes, schedules.shift(45), np.arange(45)).total == 81


@pytest.mark.parametrize(
    ("engine", "model", "total"), [("ftree", "d-mod-k", 0), ("minhop", "min-hop", 20736)]
)
def test_models_agree_with_opensm_on_three_levels(
    engine: str, model: str, total: int, tmp_path: Path
) -> None:
    described = synthetic.build(synthetic.parse("radix=8,levels=3"))
    subnet_simulation.simulate(described, tmp_path, engine)
    fabric = read_fabric(tmp_path / subnet_simulation.TOPOLOGY)
    real = Routes(fabric, read_tables(tmp_path / subnet_simulation.TABLES, fabric))
    for routes in (real, Routes(described, tables.compute(described, model))):
        assert conflicts.analyse(routes, schedules.shift(128), np.arange(128)).total == total


def test_opensm_routes_around_a_dead_cable(tmp_path: Path) -> None:
    subnet_simulation.simulate(synthetic.build(synthetic.parse("radix=8,dead=leaf0:5")), tmp_path)
    fabric = read_fabric(tmp_path / subnet_simulation.TOPOLOGY)
    routes = Routes(fabric, read_tables(tmp_path / subnet_simulation.TABLES, fabric))
    assert routes.reachable().all()
    assert "leaf0[5]" not in " ".join(fabric.link_name(link) for link in range(fabric.links))
    assert conflicts.analyse(routes, schedules.shift(32), np.arange(32)).total > 0


def test_the_planned_exchange_has_no_conflict_in_opensms_tables(tmp_path: Path) -> None:
    """The routes are followed here entry by entry, from the texts of dump_fts and ibnetdiscover."""
    subnet_simulation.simulate(synthetic.build(synthetic.parse("radix=36,nodes=45")), tmp_path)
    fabric = read_fabric(tmp_path / subnet_simulation.TOPOLOGY)
    routes = Routes(fabric, read_tables(tmp_path / subnet_simulation.TABLES, fabric))
    schedule = conflict_free(demand_of(routes, np.arange(45)))
    matches = re.findall(
        r"(0x[0-9a-f]{4}) ([0-9]{3}) :|\((\w+)\):$", (tmp_path / "fts.txt").read_text(), re.MULTILINE
    )
    entries, name = {}, ""
    for lid, port, switch in matches:
        name = switch or name
        if lid:
            entries[name, int(lid, 16)] = int(port)
    cables = {}
    for block in (tmp_path / "topology.txt").read_text().split("\n\n"):
        if owner := re.search(r'^Switch.*# "(\w+)"', block, re.MULTILINE):
            for port, peer in re.findall(r'^\[(\d+)\]\s+"\w-\w+"\[\d+\].*?# "(\w+)', block, re.MULTILINE):
                cables[owner[1], int(port)] = peer
    pairs_sent: Counter = Counter()
    for step in schedule:
        load: Counter = Counter()
        for src, dst in enumerate(step.tolist()):
            if dst < 0:
                continue
            pairs_sent[src, dst] += 1
            node = next(switch for (switch, _), peer in cables.items() if peer == fabric.host_names[src])
            while not node.startswith("node"):
                link = node, entries[node, int(fabric.host_lids[dst])]
                node = cables[link]
                load[link] += 1
            assert node == fabric.host_names[dst]
        assert max(load.values()) == 1  # also of the cable to a host
    assert schedule.steps == 44
    assert pairs_sent == Counter((a, b) for a in range(45) for b in range(45) if a != b)
