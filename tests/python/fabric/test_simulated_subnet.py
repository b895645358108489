"""The real subnet manager on a simulated fabric, from the cables to the conflicts."""

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
    pytest.mark.skipif(bool(subnet_simulation.missing()), reason=subnet_simulation.missing() or "-"),
]


@pytest.mark.parametrize("engine", ["ftree", "minhop", "updn"])
def test_opensm_routes_45_nodes(engine: str, tmp_path: Path) -> None:
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


def test_the_planned_exchange_of_a_real_dump_has_no_conflict(tmp_path: Path) -> None:
    """OpenSM's own tables of 45 nodes, entry by entry from the text of dump_fts; the cables from ibnetdiscover."""
    subnet_simulation.simulate(synthetic.build(synthetic.parse("radix=36,nodes=45")), tmp_path)
    fabric = read_fabric(tmp_path / subnet_simulation.TOPOLOGY)
    routes = Routes(fabric, read_tables(tmp_path / subnet_simulation.TABLES, fabric))
    schedule = conflict_free(demand_of(routes, np.arange(45)))
    forward = re.findall(
        r"(0x[0-9a-f]{4}) ([0-9]{3}) :|\((\w+)\):$", (tmp_path / "fts.txt").read_text(), re.MULTILINE
    )
    entries, name = {}, ""
    for lid, port, switch in forward:
        name = switch or name
        if lid:
            entries[name, int(lid, 16)] = int(port)
    cables = {}
    for block in (tmp_path / "topology.txt").read_text().split("\n\n"):
        if owner := re.search(r'^Switch.*# "(\w+)"', block, re.MULTILINE):
            for port, peer in re.findall(r'^\[(\d+)\]\s+"\w-\w+"\[\d+\].*?# "(\w+)', block, re.MULTILINE):
                cables[owner[1], int(port)] = peer
    met: Counter = Counter()
    for step in schedule:
        load: Counter = Counter()
        for src, dst in enumerate(step.tolist()):
            if dst < 0:
                continue
            met[src, dst] += 1
            at = next(switch for (switch, _), peer in cables.items() if peer == fabric.host_names[src])
            while not at.startswith("node"):
                out = at, entries[at, int(fabric.host_lids[dst])]
                at = cables[out]
                load[out] += 1
            assert at == fabric.host_names[dst]
        assert max(load.values()) == 1  # also of the cable to a host
    assert schedule.steps == 44
    assert met == Counter((a, b) for a in range(45) for b in range(45) if a != b)
