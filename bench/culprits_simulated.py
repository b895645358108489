#!/usr/bin/env python3
"""How well findings of `assay net` name planted faults on 100 simulated clusters: its engine, planner and retest run as
they do on a cluster, on a network that SimGrid simulates.

    f1, precision, recall   as in net_culprits.py
    healthy                 findings on the healthy clusters among them
    time                    a run with its simulation, s

The clusters are those of netcases.py with 8 to 24 hosts. SimGrid loses no packet and has no noise, so losses, jitter
and clusters that are noisy or busy are left out. ``--misses`` shows missed faults and wrong findings, ``--markdown``
prints the table of docs/culprits.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.sax.saxutils import quoteattr

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from figures import exit_code_of, waived  # noqa: E402
from netcases import Case, generate_case  # noqa: E402
from netfabric import NO_LIMIT, Fabric  # noqa: E402
from netscore import Score, judge_case, print_figures  # noqa: E402

from assay.records.run import Run  # noqa: E402
from assay.records.schema import Finding  # noqa: E402

SEED = 30_000
KINDS = {
    "transmit": 18, "receive": 18, "adapter": 14, "pair": 14, "link": 10, "cabinet": 10,
    "quiet": 8, "oversubscribed": 8,
}  # fmt: skip
SIZES = (8, 12, 16, 24)
RATE, LATENCY_S = 1.25e9, 1e-6  # of a host's cable
LIMIT_S = 120  # of a run


def platform(fabric: Fabric) -> str:
    """The XML of a fabric: a zone in which the route of each ordered pair has the links that bound it."""
    links: dict[str, float] = {}
    routes = []
    for source in range(fabric.count):
        for target in range(fabric.count):
            if source != target:
                path = dict(_path(fabric, source, target))
                links |= path
                hops = "".join(f"<link_ctn id={quoteattr(name)}/>" for name in path)
                routes.append(f'<route src="n{source}" dst="n{target}" symmetrical="NO">{hops}</route>')
    return "\n".join([
        '<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        '<platform version="4.1">', '<zone id="cluster" routing="Full">',
        *(f'<host id="n{i}" speed="1Gf"/>' for i in range(fabric.count)),
        *(f'<link id={quoteattr(name)} bandwidth="{rate * RATE:.0f}Bps" latency="{LATENCY_S}s"/>'
          for name, rate in links.items()),
        *routes, "</zone>", "</platform>",
    ])  # fmt: skip


def _path(fabric: Fabric, source: int, target: int) -> Iterator[tuple[str, float]]:
    """The links between two hosts and their rates relative to a healthy host's cable."""
    yield f"up{source}", float(fabric.up[source])
    if fabric.duplex_limit < NO_LIMIT:
        yield f"both{source}", fabric.duplex_limit
    cabinets = source // fabric.size, target // fabric.size
    if cabinets[0] != cabinets[1]:
        cable = target % fabric.size
        for direction, cabinet in enumerate(cabinets):
            share = fabric.trunk.get((cabinet, direction), 1.0)
            yield f"trunk{cabinet}-{direction}", fabric.size / fabric.oversubscription * share
            if (limit := fabric.cable.get((cabinet, cable, direction))) is not None:
                yield f"cable{cabinet}-{cable}-{direction}", limit
    if (limit := fabric.pair.get((source, target))) is not None:
        yield f"pair{source}-{target}", limit
    if fabric.duplex_limit < NO_LIMIT:
        yield f"both{target}", fabric.duplex_limit
    yield f"down{target}", float(fabric.down[target])


def findings(case: Case, folder: Path) -> tuple[list[Finding], float]:
    """The findings of ``assay net`` on the simulated cluster, and the time that they took, in s."""
    file, run = folder / f"{case.seed}.xml", folder / str(case.seed)
    file.write_text(platform(case.fabric))
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "assay", "simulate", file, "--", "net", "-o", run, "--sizes", "1MiB", "--repeats", "3"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(f"case {case.seed}: exit code {done.returncode}: {done.stderr[-400:]}")
    return [r for r in Run.load(run).records if isinstance(r, Finding)], time.monotonic() - begun


def main() -> None:
    if not (Path(os.environ.get("ASSAY_ENGINES") or ROOT / "build/bin") / "assay-probe-smpi").exists():
        waived("culprits.simulated", "no engine is built for SimGrid")
        return
    kinds = [kind for kind, count in KINDS.items() for _ in range(count)]
    cases = [generate_case(SEED + number, kind, SIZES) for number, kind in enumerate(kinds)]
    score, seconds = Score(), []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = pool.map(lambda case: findings(case, Path(folder)), cases)
        for case, (found, taken) in zip(cases, runs, strict=True):
            judge_case(score, case, found, "--misses" in sys.argv)
            seconds.append(taken)
    if "--markdown" in sys.argv:
        print(score.markdown(KINDS))
        return
    print_figures("culprits.simulated", score, 0.95, seconds)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
