"""The SimGrid platform of a fabric: its routes, and the simulated time of exchanges, which follows from their
rounds."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded import SIX
from small_fabrics import connected

from assay.cli import main
from assay.errors import UserError
from assay.fabric import Routes, schedules, synthetic, tables
from assay.fabric.platform import own_rates, platform_text
from assay.fabric.remedies.exchange import conflict_free, demand_of
from assay.fabric.topology import AGGREGATION_NODE, HOST, ROUTER

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
RATE, SIZE = 12.5e9, 4 << 20


def fat_tree(text: str) -> Routes:
    fabric = synthetic.build(synthetic.parse(text))
    return Routes(fabric, tables.compute(fabric, "d-mod-k"))


def test_every_pair_has_the_links_of_its_route() -> None:
    routes = fat_tree("radix=4,nodes=6")
    fabric = routes.fabric
    root = ET.fromstring(platform_text(routes, RATE))
    paths_by_pair = {
        (r.get("src"), r.get("dst")): [c.get("id") for c in r.findall("link_ctn")] for r in root.iter("route")
    }
    assert len(paths_by_pair) == 6 * 5
    for (src, dst), path in paths_by_pair.items():
        ends = fabric.find_ports([str(src), str(dst)])
        crossed = routes.links(ends[:1], ends[1:])[0]
        assert path == [fabric.link_name(link) for link in crossed if link >= 0]
    assert len(list(root.iter("link"))) == fabric.links


def test_each_cable_has_its_own_rate_without_the_line_code(capsys: pytest.CaptureFixture[str]) -> None:
    routes = fat_tree("radix=4,nodes=6")
    fabric = routes.fabric
    speeds, widths = ["EDR"] * fabric.links, np.full(fabric.links, 4, np.int32)
    slow = int(fabric.reverse[3])  # one end of a cable
    speeds[slow], widths[5], widths[fabric.reverse[5]] = "QDR", 2, 2
    fabric = replace(fabric, link_speed=speeds, link_width=widths)
    root = ET.fromstring(platform_text(Routes(fabric, routes.tables), own_rates(fabric)))
    rates = {link.get("id"): link.get("bandwidth") for link in root.iter("link")}
    assert {rates[fabric.link_name(3)], rates[fabric.link_name(slow)]} == {"4e+09Bps"}
    assert rates[fabric.link_name(5)] == "6.25e+09Bps"
    assert sorted(rates.values()).count("1.25e+10Bps") == fabric.links - 4


def test_a_cable_without_a_rate_takes_the_default_and_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (SIX / "topology.txt").read_text().splitlines(keepends=True)
    both_ends = [line.replace("4xSDR", "") if "(100009)" in line else line for line in lines]
    (tmp_path / "net.txt").write_text("".join(both_ends))
    assert main(["fabric", "platform", "--fabric", str(tmp_path / "net.txt"), "--routing", "min-hop"]) == 0
    shown = capsys.readouterr()
    assert "net.txt gives no rate of 1 of 12 cables: 12.5 GB/s is taken" in shown.err
    assert shown.out.count('bandwidth="1.25e+10Bps"') == 2 and shown.out.count('bandwidth="1e+09Bps"') == 22


def test_aggregation_nodes_and_routers_are_no_hosts_of_a_platform() -> None:
    kinds = [HOST, HOST, AGGREGATION_NODE, ROUTER]
    fabric = connected(3, [(0, 2), (1, 2)], [0, 1, 2, 2], kinds)
    root = ET.fromstring(platform_text(Routes(fabric, tables.up_down(fabric)), RATE))
    assert [host.get("id") for host in root.iter("host")] == ["h0", "h1"]
    assert len(list(root.iter("route"))) == 2


def test_a_route_that_follows_no_cables_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = fat_tree("radix=4,nodes=6")
    right = Routes.links
    monkeypatch.setattr(Routes, "links", lambda self, src, dst: right(self, src, np.roll(dst, 1)))
    with pytest.raises(UserError, match="is none along the cables"):
        platform_text(routes, RATE)


@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("smpicc"), reason="SimGrid is not installed")
def test_the_planned_exchange_runs_at_line_rate_and_a_shift_at_45_of_62(tmp_path: Path) -> None:
    """A barrier follows each step. In the first step of a shift, ranks send to themselves, so 44 steps and 61 rounds
    remain."""
    routes = fat_tree("radix=36,nodes=45")
    text = platform_text(routes, RATE)
    text = text.replace('latency="1us"', 'latency="1ns"')  # barriers cost nothing
    (tmp_path / "fabric.xml").write_text(text)
    (tmp_path / "hosts").write_text("".join(f"{name}\n" for name in routes.fabric.host_names))
    subprocess.run(
        ["smpicc", "-O1", "-o", "exchange", FIXTURES / "exchange.c"], cwd=tmp_path, check=True, timeout=300
    )
    planned = conflict_free(demand_of(routes, np.arange(45)))
    share = {
        "shift": share_of_line_rate(tmp_path, schedules.shift(45)),
        "planned": share_of_line_rate(tmp_path, planned),
    }
    assert abs(share["shift"] - 44 / 61) < 0.01
    assert share["planned"] > 0.99


def share_of_line_rate(folder: Path, schedule: schedules.Schedule) -> float:
    """The time of 44 messages at the full rate divided by the simulated time."""
    steps = "".join(" ".join(map(str, step)) + "\n" for step in schedule)
    (folder / "steps").write_text(steps)
    options = ["-np", "45", "-platform", "fabric.xml", "-hostfile", "hosts", "--log=root.thresh:warning"]
    command = ["smpirun", *options, "./exchange", "steps", str(SIZE)]
    result = subprocess.run(command, cwd=folder, check=True, timeout=300, capture_output=True, text=True)
    return 44 * SIZE / RATE / float(result.stdout.split()[-1])
