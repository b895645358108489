"""``assay saturate`` and ``assay model`` on a lab of two cabinets with planted rates: the planted capacities are found,
and the simulation of the written platform agrees with the measurements.

Expected rates are the payload's share of planted rates. How capacities and cabinets follow from figures is tested on
planted networks in ``tests/python/model``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.lab import Lab
from assay.launch import simulator
from assay.launch.launchers import find_launcher
from assay.records.run import Run
from assay.records.schema import Capacity, Comparison, Measurement

GOODPUT = 0.956  # payload's share of a planted rate (1448 of 1514 bytes)
MBIT = 1e6 / 8
HOST, DUPLEX, CABINET = 200, 320, 500
LONG = 64 << 10  # bytes; times of longer messages are known as accurately as rates


def missing_launcher(launcher: str) -> str | None:
    try:
        find_launcher(launcher)
    except UserError as error:
        return str(error)
    return None


def missing_requirement() -> str | None:
    if os.geteuid() != 0:
        return "a lab needs root"
    return simulator.unavailable()


pytestmark = [
    pytest.mark.lab,
    pytest.mark.acceptance("model"),
    pytest.mark.statistical(
        "1 in 20, assumed: some 150 figures must lie within 5 %, which a program that wakes up beside them can prevent"
    ),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(missing_requirement() is not None, reason=str(missing_requirement())),
]


# The limit ends a run that hangs. A study beside other programs repeats its rounds and takes several times as long.
def assay(*arguments: str, limit: float = 1200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay", *arguments],
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


@pytest.fixture(scope="module")
def lab(make_lab) -> Lab:
    return make_lab(6, 2, host_rate=f"{HOST}mbit", duplex_rate=f"{DUPLEX}mbit", cabinet_rate=f"{CABINET}mbit")


def study(lab: Lab, folder: Path, launcher: str) -> tuple[list, int, str]:
    arguments = [
        "--lab",
        lab.name,
        "--launcher",
        launcher,
        "--topology",
        "a=h[0-2]",
        "b=h[3-5]",
        "--confidence",
        "4%",
    ]
    study_run = assay("saturate", *arguments, "-o", str(folder))
    assert study_run.returncode == 0, study_run.stderr
    comparison = assay("model", str(folder), "--platform", str(folder / "platform.xml"))
    return Run.load(folder).records, comparison.returncode, comparison.stdout + comparison.stderr


def relative_errors(records: list) -> dict[str, float]:
    """The relative error of each capacity that was found."""
    planted = {("host", "up"): HOST, ("host", "down"): HOST, ("host", "limiter"): DUPLEX}
    planted |= {("cabinet", "up"): CABINET, ("cabinet", "down"): CABINET}
    capacities = [r for r in records if isinstance(r, Capacity) and (r.level, r.direction) in planted]
    assert len(capacities) == 3 * 6 + 2 * 2
    return {
        f"{r.resource} {r.direction}": abs(
            (r.value or 0) / (planted[r.level, r.direction] * MBIT * GOODPUT) - 1
        )
        for r in capacities
    }


def test_planted_capacities_are_found_and_the_simulation_agrees(lab: Lab, tmp_path: Path):
    """The MPI is Open MPI. The next test uses MPICH."""
    launcher = "openmpi"
    if reason := missing_launcher(launcher):
        pytest.skip(reason)
    records, status, stderr = study(lab, tmp_path / "run", launcher)
    errors = relative_errors(records)
    assert max(errors.values()) <= 0.05, errors
    assert status == 0, stderr
    points = [r for r in records if isinstance(r, Comparison)]
    rates = [r for r in points if r.unit == "B/s"]
    assert len(rates) > 25 and sum(r.curve.startswith("all to all") for r in rates) == 4
    assert all(r.error is not None and abs(r.error) <= 0.05 for r in rates)
    assert len(points) > len(rates) + 40
    # The verdict is PASS, so all points together are within the limit and the measurement's own error.
    assert all(r.error is not None for r in points)
    long = [r for r in points if r.axis == "message size" and r.x >= LONG]
    assert len(long) >= 14 and all(r.error is not None and abs(r.error) <= 0.05 for r in long)
    # All bytes used the network.
    shares = [
        r for r in records if isinstance(r, Measurement) and (r.name, r.metric) == ("network.wire", "share")
    ]
    assert len(shares) == 6 and all(r.summary.median >= 1 for r in shares if r.summary)


def test_unlisted_cabinets_are_found(make_lab, tmp_path: Path):
    """Latency hardly differs, so the cabinets are found by the flows' rates over the full link between them."""
    if reason := missing_launcher("mpich-wheel"):
        pytest.skip(reason)
    cabinet_rate, expected = 250, ["c1=h[0-2]", "c2=h[3-5]"]
    name = make_lab(6, 2, host_rate=f"{HOST}mbit", cabinet_rate=f"{cabinet_rate}mbit").name
    folder = tmp_path / "run"
    arguments = ["--lab", name, "--launcher", "mpich-wheel", "--confidence", "4%", "-o", str(folder)]
    study_run = assay("saturate", *arguments)
    assert study_run.returncode == 0, study_run.stderr
    comparison = assay("model", str(folder), "--platform", str(folder / "platform.xml"))
    assert Run.load(folder).info.options["cabinets"] == expected
    assert comparison.returncode == 0, comparison.stdout
    capacities = [r for r in Run.load(folder).records if isinstance(r, Capacity)]
    links = [r for r in capacities if r.level == "cabinet" and r.direction in ("up", "down")]
    assert len(links) == 4
    assert all(abs((r.value or 0) / (cabinet_rate * MBIT * GOODPUT) - 1) <= 0.05 for r in links)
