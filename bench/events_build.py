"""Event building in this machine's memory against MPI_Alltoall, and with killed ranks in a lab.

- throughput of ranks on this machine over that of MPI_Alltoall with the same message size, in the same run: with the
  same production and verification of each byte (of_verified_alltoall), and without, where only event building has them
- the event manager's time for an event; a million events, every byte of them verified
- under MPI, where a death is the end: the time from a death until a whole new job builds events
- the time until events are complete again after a death, over TCP, UDP and libfabric: 10 random deaths each, so that
  the area ends in its ten minutes; with --long 200 each, in about an hour. Five hosts die in each run, one by one. The
  lab is lossless (bench/events_lab.py); --lossy shows what the waits of TCP for lost packets add

The figures are valid only on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from events_lab import unusable  # noqa: E402
from figures import exit_code_of, figure, waived  # noqa: E402

from assay.events.figures import Building, buildings  # noqa: E402
from assay.events.shares import network_rates  # noqa: E402
from assay.lab import Lab, Rates, take_down  # noqa: E402
from assay.lab.traffic import parse_rate  # noqa: E402
from assay.records.run import Run  # noqa: E402

HOSTS = 8
LIMIT_S = 180  # of a run
ROOT_NEEDED = "a lab needs root"
RATE = "400mbit"  # of each host; one core can forward about ten times the sum of the 8 hosts
DEATH_TRANSPORTS = ("tcp", "udp", "ofi:tcp")
DEATHS_OF_A_RUN, RUNS, LONG_RUNS = 5, 2, 40
RUN_LIMIT_S = 180  # of a run with deaths
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
CHAOS = ROOT / "tests" / "python" / "events" / "events_chaos.py"
RESTARTS = 3
TURNS = 3  # in memory


def run_event_building(folder: Path, name: str, *arguments: str) -> tuple[Building, Run]:
    path = folder / name
    command = [sys.executable, "-m", "assay", "eb", *arguments, "-o", str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, timeout=LIMIT_S, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"bench: {name}: {done.stderr.strip()} {done.stdout.strip()[-2000:]}")
    run = Run.load(path)
    if run.info.busy:
        print(f"bench: {name}: {run.info.busy}", file=sys.stderr)
    (building,) = buildings(run.records)
    return building, run


def ratio(rate: float, of: float) -> float:
    """0 where one of them was not measured."""
    return 0.0 if math.isnan(rate / of) else rate / of


def measure_in_memory(folder: Path) -> None:
    """The rate over that of MPI_Alltoall between two ranks here, and the event manager's time for an event."""
    if reason := unusable("mpi"):
        waived("events.build.of_verified_alltoall", reason)
    else:
        of_verified, of_bare = [], []
        for turn in range(TURNS):
            building, run = run_event_building(folder, f"memory-{turn}", "-n", "2", "--budget", "5s")
            carried = network_rates(run.records)
            of_verified.append(ratio(building.network_throughput, carried.alltoall_verified))
            of_bare.append(ratio(building.network_throughput, carried.alltoall))
        figure("events.build.of_verified_alltoall", of_verified, 1.0, "higher")
        figure("events.build.of_alltoall", of_bare, None, "higher")
    building, _ = run_event_building(
        folder, "million", "--transport", "null", "-n", "2", "--size", "1KiB", "--events", "1000000"
    )
    figure("events.build.million_events_built", [building.count("events_built") or 0], 1e6, "higher")
    decision = building.totals.get("decision")
    if decision is not None:
        figure("events.build.decision", [decision.median * 1e6], 2.0, "lower", unit="us")


def measure_deaths(transport: str, runs: int, lossless: bool) -> None:
    """The time until events are complete again after a rank dies; each name tells how many deaths there were."""
    name = f"events.deaths.{transport}.{runs * DEATHS_OF_A_RUN}_deaths"
    if reason := unusable(transport):
        waived(name, reason)
        return
    command = [sys.executable, str(CHAOS), "--transport", transport, "--json"]
    command += ["--runs", str(runs), "--deaths", str(DEATHS_OF_A_RUN)]
    command += ["--lossless"] if lossless else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=runs * RUN_LIMIT_S, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    if len(results) != runs:
        raise SystemExit(f"bench: {len(results)} of {runs} runs with deaths ended: {done.stderr[-2000:]}")
    for text in sorted({text for result in results for text in result["wrong"]}):
        print(f"bench: {transport}: {text}", file=sys.stderr)
    times = [seconds for result in results for seconds in result["resumes"]]
    figure(f"{name}.wrong_runs", [sum(bool(r["wrong"]) for r in results)], 0, "lower")
    if times:
        figure(f"{name}.resume", times, 0.2, "lower", unit="s")
        figure(f"{name}.longest_resume", [max(times)], 1.0, "lower", unit="s")


def measure_restart_under_mpi(folder: Path) -> None:
    """The time from the death of a rank until the job has ended, and until a new job builds events."""
    sys.path.insert(0, str(CHAOS.parent))
    from events_chaos import engines_of

    if reason := unusable("mpi"):
        waived("events.deaths.mpi", reason)
        return
    rate = parse_rate(RATE)
    name = f"bench-{os.getpid()}"
    lab = Lab.up(HOSTS, 1, Rates(rate, rate, None, None), name=name)
    ends, restarts = [], []
    try:
        for k in range(RESTARTS):
            with building_in(lab, folder / f"mpi-{k}") as first:
                killed_at = time.monotonic()
                for pid in engines_of(lab, lab.hosts[HOSTS // 2]):
                    os.kill(pid, signal.SIGKILL)
                first.wait(LIMIT_S)
            ends.append(time.monotonic() - killed_at)
            with building_in(lab, folder / f"mpi-{k}-again"):
                restarts.append(time.monotonic() - killed_at)
    finally:
        take_down(name)
    figure("events.deaths.mpi.end_of_job", ends, None, "lower", unit="s")
    figure("events.deaths.mpi.full_restart", restarts, None, "lower", unit="s")


@contextlib.contextmanager
def building_in(lab: Lab, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``assay eb`` over MPI in a lab, once its first slice of time is recorded; interrupted at the end."""
    command = [sys.executable, "-m", "assay", "eb", "--lab", lab.name, "--alone", "--slice", "0.1s"]
    command += ["--budget", f"{LIMIT_S}s", "-o", str(path)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        records, deadline = path / "records.jsonl", time.monotonic() + LIMIT_S
        while not (records.is_file() and b"events.slices" in records.read_bytes()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"bench: {' '.join(command)} built no event")
            time.sleep(0.01)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--long", action="store_true", help="200 deaths over each transport instead of 10, and nothing else"
    )
    parser.add_argument(
        "--lossy", action="store_true", help="deaths in a lab whose short queues drop packets"
    )
    args = parser.parse_args()
    runs = LONG_RUNS if args.long else RUNS
    if os.geteuid() != 0:
        waived("events.deaths", ROOT_NEEDED)
    else:
        for transport in DEATH_TRANSPORTS:
            measure_deaths(transport, runs, lossless=not args.lossy)
    if runs == LONG_RUNS:
        return 0
    with tempfile.TemporaryDirectory(prefix="assay-events-") as folder:
        measure_in_memory(Path(folder))
        if os.geteuid() == 0:
            measure_restart_under_mpi(Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
