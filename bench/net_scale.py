#!/usr/bin/env python3
"""Time and peak memory of a whole run of `assay net` with many hosts, on synthetic output of an engine.

    1,000 hosts     all pairs, 23 sizes: 23 million bandwidths
    10,000 hosts    ten rounds of the schedule, 23 sizes

A launcher replays the engine's lines from a file, which is written before. A separate process reads them, explains and
judges the run, and writes report.html. One host sends at 70 % of its rate; the run must name this host alone.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import numpy as np  # noqa: E402
from figures import exit_code_of, figure  # noqa: E402

from assay.judge import find_specification, load_specification  # noqa: E402
from assay.launch.placement import REMOTE, Segment, Site  # noqa: E402
from assay.launch.without_mpi import WithoutMpi  # noqa: E402
from assay.measure.session import Session  # noqa: E402
from assay.records.run import Run  # noqa: E402
from assay.records.schema import Finding  # noqa: E402

SIZES = [1 << k for k in range(23)]
CASES = {
    "1000": (1000, 0, 60, 2**30),
    "10000": (10_000, 10, 60, 2**30),
}  # hosts, rounds (0: all), limits: s, B
SLOW_HOST, SHARE, NOISE = 617, 0.7, 0.02  # its number; the share of its rate that is left; relative noise
NAME = "network.all_to_all"


def engine_lines(hosts: int, rounds: int) -> Iterator[str]:
    """The lines that the engine prints, without the latencies. ``rounds``: 0 for all pairs."""
    rng = np.random.default_rng(1)
    names = [f"n{i}" for i in range(hosts)]
    shifts = np.arange(1, hosts) if not rounds else np.unique(np.linspace(1, hosts - 1, rounds).astype(int))
    yield from (json.dumps({"kind": "hello", "rank": i, "host": name}) for i, name in enumerate(names))
    for size in SIZES:
        params = {"size": size, "op": "send", "clients": hosts, "schedule": "shift", "verified": True}
        head = {"name": NAME, "metric": "bandwidth", "unit": "B/s", "better": "higher", "params": params}
        for i, name in enumerate(names):
            rate = (
                1.2e10
                * size
                / (size + 16384)
                * rng.lognormal(0, NOISE, len(shifts))
                * (SHARE if i == SLOW_HOST else 1)
            )
            peers = ",".join(f'"n{j}"' for j in (i + shifts) % hosts)
            values = ",".join(f"{value:.17g}" for value in rate)
            subject = json.dumps({**head, "subject": {"host": name}})[1:-1]
            yield f'{{"kind":"pairs",{subject},"peers":[{peers}],"values":[{values}]}}'
        for metric, unit in (("bandwidth", "B/s"), ("corrupted", "1")):
            summary = {"n": 5, "median": 1e12 if metric == "bandwidth" else 0.0}
            yield json.dumps(
                {**head, "kind": "measurement", "metric": metric, "unit": unit, "summary": summary}
            )
    for name in names:
        yield json.dumps(
            {"kind": "measurement", "name": "network.wire", "metric": "share", "unit": "1", "better": "higher",
             "subject": {"host": name}, "params": {}, "summary": {"n": 1, "median": 1.02}}
        )  # fmt: skip


class Playback(WithoutMpi):
    """A launcher whose engine prints a file."""

    name, flavour = "playback", "openmpi"

    def __init__(self, file: Path) -> None:
        self.file = file

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        return ["cat", str(self.file)]

    def unavailable(self) -> str | None:
        return None


def run_assay_net(case: str, folder: Path) -> None:
    """Runs in a separate process. Prints seconds, peak bytes, whether the slow host alone was named, and why the run
    ended early (empty if it did not)."""
    hosts = CASES[case][0]
    begun = time.monotonic()
    run = Run.create("net", ["net"], path=folder / "run")
    run.info.hosts = [f"n{i}" for i in range(hosts)]
    session = Session(run, quiet=True)
    session.measure(NAME, Playback(folder / "lines"), REMOTE, [Segment(run.info.hosts)], {})  # type: ignore[arg-type]
    session.conclude([load_specification(find_specification("net"))])
    seconds = time.monotonic() - begun
    named = {r.subject.host for r in Run.load(folder / "run").records if isinstance(r, Finding)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([seconds, peak, named == {f"n{SLOW_HOST}"}, session.ended_early]))


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "run":
        return run_assay_net(sys.argv[2], Path(sys.argv[3]))
    for case, (hosts, rounds, limit_s, limit_bytes) in CASES.items():
        with tempfile.TemporaryDirectory(prefix="assay-scale-") as name:
            with open(Path(name) / "lines", "w") as file:
                file.writelines(line + "\n" for line in engine_lines(hosts, rounds))
            done = subprocess.run(
                [sys.executable, __file__, "run", case, name], check=True, stdout=subprocess.PIPE
            )
            seconds, peak, named, failed = json.loads(done.stdout.splitlines()[-1])
            if failed:
                print(f"net_scale: {failed}", file=sys.stderr)
            stored = sum(path.stat().st_size for path in (Path(name) / "run").iterdir())
            figure(f"net.scale.{case}.time", [seconds], limit_s, "lower", "s")
            figure(f"net.scale.{case}.peak_rss", [peak], limit_bytes, "lower", "B")
            figure(f"net.scale.{case}.stored", [stored], None, "lower", "B")
            figure(f"net.scale.{case}.named", [float(named)], 1, "higher")
    return None


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
