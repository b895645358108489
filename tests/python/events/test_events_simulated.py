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


@pytest.mark.slow
@pytest.mark.skipif(simulator.unavailable() is not None, reason=str(simulator.unavailable()))
def test_the_simulated_share_follows_from_the_routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import events_scale

    fabric = events_scale.Fabric(NODES, tmp_path, RADIX)
    conflict_free = fabric.share(
        events_scale.CONFLICT_FREE, events_scale.IN_STEP, MESSAGE, rounds=EVENTS_PER_BUILDER
    )
    shift = fabric.share(events_scale.SHIFT, events_scale.IN_STEP, MESSAGE, rounds=EVENTS_PER_BUILDER)
    sys.modules.pop("events_scale")
    described = synthetic.build(synthetic.parse(f"radix={RADIX},nodes={NODES}"))
    routes = Routes(described, tables.compute(described, "d-mod-k"))
    shift_conflicts = analyse(routes, schedules.find("shift", NODES), np.arange(NODES))
    # In lockstep a step takes as many rounds as flows share its fullest link. One round is the step in which each rank
    # sends to itself: it takes no time.
    expected = (NODES - 1) / (shift_conflicts.rounds - 1)
    assert expected < 0.8
    assert conflict_free == pytest.approx(1, abs=0.05)
    assert shift == pytest.approx(expected, rel=0.05)
