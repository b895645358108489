"""Event building over each transport: both protocols build every fragment, and building goes on over libfabric without
a killed rank.

TCP and UDP are tested with faults on labs: ``test_events_chaos``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.events.figures import Building, buildings
from assay.launch.engines import check_transport_here
from assay.records.run import Run
from assay.records.schema import Failure

pytestmark = pytest.mark.programs

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300
RANKS = 3
EVENTS = 60
TRANSPORTS = {
    "tcp": ["--transport", "tcp"],
    "udp": ["--transport", "udp"],
    "ofi:tcp": ["--transport", "ofi:tcp"],
    "ofi:shm": ["--transport", "ofi:shm"],
    "Open MPI": ["--launcher", "openmpi"],
    "MPICH": ["--launcher", "mpich"],
}
# Other programs may take the processors for longer than the default of 50 ms. Where no rank dies, none may seem lost.
HEARTBEAT_MS, HEARTBEAT_WITHOUT_DEATHS_MS = 2000, 60_000


def start(run: Path, mark: str, heartbeat_ms: int, *options: str) -> subprocess.Popen[str]:
    """Starts ``assay eb`` on this machine, without measuring MPI. ``mark`` is in the environment of every process."""
    options_of_run = ["-n", str(RANKS), "--alone", "--size", "64KiB", "-o", str(run)]
    command = [sys.executable, "-m", "assay", "eb", *options_of_run]
    return subprocess.Popen(
        [*command, *(["--heartbeat-ms", str(heartbeat_ms)] if heartbeat_ms else []), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "ASSAY_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def checked_building(run: Path) -> Building:
    """The event building of a run, which must have no failure and no corrupt or duplicate fragment."""
    records = Run.load(run).records
    assert not [r.problem for r in records if isinstance(r, Failure)]
    (building,) = [b for b in buildings(records) if b.params]
    assert all(building.count(metric) == 0 for metric in ("fragments_corrupt", "fragments_duplicate"))
    return building


def skip_without_provider(provider: str) -> None:
    try:
        check_transport_here(provider)
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("protocol", ["push", "pull"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_fragment_is_built_and_verified(transport: str, protocol: str, tmp_path: Path) -> None:
    if transport.startswith("ofi"):
        skip_without_provider(transport)
    options = [*TRANSPORTS[transport], "--protocol", protocol, "--events", str(EVENTS)]
    heartbeat_ms = 0 if "MPI" in transport else HEARTBEAT_WITHOUT_DEATHS_MS
    process = start(tmp_path / "run", "", heartbeat_ms, *options)
    output = process.communicate(timeout=LIMIT_S)[0]
    assert process.returncode == 0, output
    building = checked_building(tmp_path / "run")
    assert building.count("fragments_lost") == 0
    assert building.count("events_built") == EVENTS and building.count("fragments_built") == EVENTS * RANKS


def rank_process(mark: str, rank: int) -> int | None:
    """The process of a rank whose environment has this mark; None: there is none."""
    wanted = {f"ASSAY_TEST_MARK={mark}".encode(), f"ASSAY_RANK={rank}".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                return int(folder.name)
    return None


@pytest.mark.acceptance("events")
def test_building_goes_on_over_libfabric_when_a_rank_is_killed(tmp_path: Path) -> None:
    skip_without_provider("ofi:tcp")
    run, mark = tmp_path / "run", uuid.uuid4().hex
    options = ["--transport", "ofi:tcp", "--budget", "6s", "--slice", "0.1s"]
    process = start(run, mark, HEARTBEAT_MS, *options)
    records, deadline = run / "records.jsonl", time.monotonic() + LIMIT_S
    while not (records.is_file() and b"events.slices" in records.read_bytes()):
        assert time.monotonic() < deadline and process.poll() is None, "no event was built"
        time.sleep(0.05)
    victim = rank_process(mark, 2)
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    output = process.communicate(timeout=LIMIT_S)[0]
    assert process.returncode == 1, output  # a rank was lost: no pass
    building = checked_building(run)
    assert len(building.resumes) == 1 and building.resumes[0].summary is not None, output
    assert building.count("events_built")
