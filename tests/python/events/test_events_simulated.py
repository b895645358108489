"""Event building by a schedule file: on this machine, and in simulated time, where the throughput relative to the
cables' rate must be the one that follows from the routes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from assay.cli import main
from assay.events.figures import buildings
from assay.fabric import Routes, schedules, synthetic, tables
from assay.fabric.conflicts import analyse
from assay.launch import simulator
from assay.records.run import Run

ROOT = Path(__file__).resolve().parents[3]
RADIX, NODES = 8, 10  # four on each leaf switch, two on the last
EVENTS_PER_BUILDER = 2
MESSAGE = 1 << 20  # 84 us at the cables' rate; a barrier takes about 2 us


def test_a_schedule_file_of_assay_fabric_builds_every_event(tmp_path: Path) -> None:
    exchange = tmp_path / "exchange"
    assert main(["fabric", "schedule", "--fat-tree", "radix=4,nodes=7", "--into", str(exchange)]) == 0
    for pace in ([], ["--synchronised"]):
        run = tmp_path / f"run{len(pace)}"
        # The null transport connects threads of one process. --alone measures nothing beside it to compare with.
        command = ["eb", "--transport", "null", "-n", "7", "--events", "70", "--size", "4KiB", *pace]
        command += ["--schedule-file", str(exchange / "schedule.txt"), "--alone", "-o", str(run)]
        assert main(command) == 0
        (building,) = buildings(Run.load(run).records)
        assert building.params["schedule"] == "file"
        assert building.count("events_built") == 70 and building.count("fragments_built") == 490
        assert building.count("events_incomplete") == building.count("fragments_duplicate") == 0


WITHOUT_SIMGRID = pytest.mark.skipif(simulator.unavailable() is not None, reason=str(simulator.unavailable()))


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import scale_events

    yield scale_events
    sys.modules.pop("scale_events", None)


@pytest.mark.slow
@pytest.mark.parametrize("flows", [pytest.param(False, marks=WITHOUT_SIMGRID), True])
def test_the_simulated_share_follows_from_the_routes(scale, tmp_path: Path, flows: bool) -> None:
    fabric = scale.Fabric(NODES, tmp_path, RADIX)
    conflict_free, shift = (
        fabric.share(order, scale.IN_STEP, MESSAGE, EVENTS_PER_BUILDER, flows)
        for order in (scale.CONFLICT_FREE, scale.SHIFT)
    )
    described = synthetic.build(synthetic.parse(f"radix={RADIX},nodes={NODES}"))
    routes = Routes(described, tables.compute(described, "d-mod-k"))
    shift_conflicts = analyse(routes, schedules.find("shift", NODES), np.arange(NODES))
    # In lockstep a step takes as many rounds as flows share its fullest link. One round is the step in which each rank
    # sends to itself: it takes no time.
    expected = (NODES - 1) / (shift_conflicts.rounds - 1)
    assert expected < 0.8
    assert conflict_free == pytest.approx(1, abs=0.05)
    assert shift == pytest.approx(expected, rel=0.05)


def shares(scale, folder: Path, nodes: int, order: str, pace: str) -> tuple[float, float]:
    """The share by flows and that of SimGrid."""
    fabric = scale.Fabric(nodes, folder)
    by_flows, by_simgrid = (scale.mean_share(fabric, order, pace, flows) for flows in (True, False))
    return by_flows, by_simgrid


@pytest.mark.slow
@WITHOUT_SIMGRID
@pytest.mark.parametrize(
    ("order", "pace"),
    [
        ("planned", "in step"),
        ("random", "in step"),
        pytest.param("random", "free", marks=pytest.mark.acceptance("events")),  # SimGrid takes half a minute
    ],
)
def test_flows_agree_with_simgrid_within_3_percent(scale, tmp_path: Path, order: str, pace: str) -> None:
    by_flows, by_simgrid = shares(scale, tmp_path, 18, order, pace)
    assert by_flows == pytest.approx(by_simgrid, rel=0.03)


@pytest.mark.acceptance("events")
@WITHOUT_SIMGRID
@pytest.mark.parametrize("nodes", [45, 64])
@pytest.mark.parametrize("series", range(6))
def test_flows_agree_with_simgrid_at_scale(scale, tmp_path: Path, nodes: int, series: int) -> None:
    by_flows, by_simgrid = shares(scale, tmp_path, nodes, *scale.SERIES[series])
    assert by_flows == pytest.approx(by_simgrid, rel=0.03)


def test_flows_build_every_event_with_either_protocol(tmp_path: Path) -> None:
    platform = tmp_path / "fabric.xml"
    fabric = f"radix={RADIX},nodes={NODES}"
    assert main(["fabric", "platform", "--fat-tree", fabric, "--platform", str(platform)]) == 0
    for protocol in ("push", "pull"):
        run = tmp_path / protocol
        command = ["simulate", str(platform), "--flows", "--", "eb", "--protocol", protocol, "--events", "40"]
        assert main([*command, "--size", "64KiB", "-o", str(run)]) == 0
        (building,) = buildings(Run.load(run).records)
        assert building.count("events_built") == 40 and building.count("fragments_built") == 40 * NODES
        hosts = {record.subject.host for record in building.ranks}
        assert hosts == {f"node{number}" for number in range(NODES)}


@pytest.mark.parametrize("option", ["--restart=2s", "--heartbeat-ms=50"])
def test_options_for_deaths_are_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    platform, run = tmp_path / "fabric.xml", tmp_path / "run"
    fabric = f"radix={RADIX},nodes={NODES}"
    assert main(["fabric", "platform", "--fat-tree", fabric, "--platform", str(platform)]) == 0
    capsys.readouterr()
    assert main(["simulate", str(platform), "--flows", "--", "eb", option, "-o", str(run)]) == 2
    assert capsys.readouterr().err == (
        f"assay: {option.split('=')[0]} with a simulation; fix: no host dies there; leave it out\n"
    )
    assert not run.exists()
