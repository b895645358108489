#!/usr/bin/env python3
"""Event building on a simulated fat tree: `assay eb`, its manager, credits and barriers, in simulated time.

    .venv/bin/python bench/scale_events.py --nodes 18 36 45 64 128 256 512 --plot docs/event-simulation.png

The fabric has radix-36 switches, 18 nodes on each leaf switch, D-mod-K forwarding tables, and cables of 12.5 GB/s and
100 ns. Three schedules run in step (--synchronised) and free, without barriers: a barrel shift, a random order, and the
exchange of `assay fabric schedule`. A figure is the share of the cables' rate that arrives as payload.

Messages are flows (`assay simulate --flows`). Up to 64 nodes SimGrid simulates the same too, over the MPI transport,
with an actor for each rank, and the figure beside it is how far the two differ. Both divide a cable's rate among its
flows; neither simulates full buffers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from figures import exit_code_of, figure, waived  # noqa: E402

from assay.events.figures import buildings  # noqa: E402
from assay.fabric import Routes, synthetic, tables  # noqa: E402
from assay.fabric.platform import platform_text  # noqa: E402
from assay.fabric.remedies.exchange import conflict_free, demand_of  # noqa: E402
from assay.launch import simulator  # noqa: E402
from assay.records.run import Run  # noqa: E402

RATE = 12.5e9  # B/s: EDR InfiniBand, Omni-Path
CABLE_LATENCY = "100ns"
MESSAGE = 4 << 20  # bytes; a barrier of about 3 us after each step costs little beside it
ROUNDS = 3  # events that each builder unit assembles
FREE_EVENTS = 720  # of all nodes, without barriers
# Without barriers who is first at one instant decides who waits: a run's share differs by a few percent from that with
# messages a little larger. Sizes that SimGrid simulates too are compared by means of such runs.
VARIANTS, VARIANT_BYTES, VARIANT_ROUNDS = 4, 4096, 16
FEW_ROUNDS_NODES = 256  # from here on one round in step: each takes the time of the one before
SIMGRID_NODES = 64  # simulated in SimGrid too
FLOWS, SIMGRID = "flows", "SimGrid"
LIMIT_S = 3600
# Pace: all ranks start each step together, after a barrier; or each rank continues without barriers.
IN_STEP, FREE = "in step", "free"
# Order: in which each rank sends to the others. `assay fabric schedule` plans the conflict-free one.
SHIFT, RANDOM, CONFLICT_FREE = "barrel shift", "random", "planned"
SERIES = [(order, pace) for pace in (IN_STEP, FREE) for order in (CONFLICT_FREE, SHIFT, RANDOM)]
Point = dict[str, str | int | float]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python")}


class Fabric:
    """A fat tree with ``nodes`` nodes. Its SimGrid platform and its planned exchange are files in ``folder``."""

    def __init__(self, nodes: int, folder: Path, radix: int = 36) -> None:
        self.nodes = nodes
        self.folder = folder
        fabric = synthetic.build(synthetic.parse(f"radix={radix},nodes={nodes}"))
        routes = Routes(fabric, tables.compute(fabric, "d-mod-k"))
        self.platform = folder / f"{nodes}.xml"
        self.platform.write_text(platform_text(routes, RATE, CABLE_LATENCY))
        planned = conflict_free(demand_of(routes, np.arange(nodes, dtype=np.int32)))
        self.schedule = folder / f"{nodes}.schedule"
        self.schedule.write_text("".join(" ".join(map(str, step)) + "\n" for step in planned))

    def share(
        self, order: str, pace: str, message: int = MESSAGE, rounds: int = ROUNDS, flows: bool = False
    ) -> float:
        """Simulates ``rounds`` events for each builder unit, in SimGrid or as ``flows``. Returns the payload rate over
        the cables' rate."""
        chosen = {SHIFT: ["--schedule", "shift"], RANDOM: ["--schedule", "random"]}
        arguments = chosen.get(order) or ["--schedule-file", str(self.schedule)]
        if pace == IN_STEP:
            arguments += ["--synchronised", "--in-flight", "1", "--credits", "1"]
        else:
            # Only the middle half of the time counts: buffers fill at the beginning, nodes are idle at the end.
            rounds *= 2
        round_s = self.nodes * message / RATE
        arguments += ["--events", str(rounds * self.nodes), "--slice", f"{max(round_s / 4, 0.01):.4f}s"]
        run = self.folder / f"{self.nodes}-{order}-{pace}-{message}-{flows}".replace(" ", "-")
        command = [sys.executable, "-m", "assay", "simulate", str(self.platform)]
        command += [*(["--flows"] if flows else []), "--", "eb"]
        command += [*arguments, "--size", str(message), "--no-verify", "--timeout", "3600s", "-o", str(run)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=ENVIRONMENT, timeout=LIMIT_S, check=False
        )
        if done.returncode not in (0, 1):
            raise SystemExit(f"{self.nodes} nodes, {order}, {pace}: {done.stderr.strip()[-500:]}")
        (building,) = buildings(Run.load(run).records)
        if pace == IN_STEP:
            rates = [
                r
                for r in building.ranks
                if r.metric == "rank_throughput" and r.params["direction"] == "received"
            ]
            return sum(r.summary.median for r in rates if r.summary) / RATE / self.nodes
        last = max(s.t for s in building.slices)
        counted = [s for s in building.slices if last / 4 <= s.t <= last * 3 / 4]
        seconds = sum(s.end - s.t for s in counted)
        built_bytes = sum(s.rate * (s.end - s.t) for s in counted)
        # A node's fragment for its own builder unit does not cross a cable.
        off_node_share = (self.nodes - 1) / self.nodes
        return built_bytes / seconds / RATE / self.nodes * off_node_share


def mean_share(fabric: Fabric, order: str, pace: str, flows: bool) -> float:
    """The share of `Fabric.share`, in step of one run."""
    if pace == IN_STEP:
        return fabric.share(order, pace, rounds=ROUNDS if fabric.nodes < FEW_ROUNDS_NODES else 1, flows=flows)
    if fabric.nodes > SIMGRID_NODES:
        return fabric.share(order, pace, rounds=max(2, FREE_EVENTS // fabric.nodes), flows=flows)
    messages = [MESSAGE + k * VARIANT_BYTES for k in range(VARIANTS)]
    return statistics.mean(fabric.share(order, pace, message, VARIANT_ROUNDS, flows) for message in messages)


def measure(fabric: Fabric, order: str, pace: str) -> list[Point]:
    """The points by flows and, of a size that it can take, by SimGrid."""
    name = f"scale.events.{fabric.nodes}_nodes.{order}_{pace}".replace(" ", "_")
    points: list[Point] = []
    for flows in (True, False) if fabric.nodes <= SIMGRID_NODES and not simulator.unavailable() else (True,):
        begun = time.monotonic()
        share = mean_share(fabric, order, pace, flows)
        seconds = round(time.monotonic() - begun, 1)
        point: Point = {"nodes": fabric.nodes, "order": order, "pace": pace, "share": round(share, 4)}
        points.append({**point, "by": FLOWS if flows else SIMGRID, "seconds": seconds})
    by_flows = float(points[0]["share"])
    figure(
        name,
        [by_flows],
        0.98 if (order, pace) == (CONFLICT_FREE, IN_STEP) else None,
        "higher",
        peer=points[0],
    )
    if len(points) > 1:
        by_simgrid = float(points[1]["share"])
        figure(f"{name}.from_simgrid", [abs(by_flows / by_simgrid - 1)], 0.03, "lower", peer=points[1])
    return points


def measure_all(nodes: int, paces: Sequence[str]) -> list[Point]:
    """All series at one size, two at a time; the last figure is the processor time that they took."""
    with tempfile.TemporaryDirectory(prefix="assay-scale-") as folder, ThreadPoolExecutor(2) as pool:
        before = processor_seconds()
        fabric = Fabric(nodes, Path(folder))
        chosen = sorted(
            (s for s in SERIES if s[1] in paces), key=lambda s: s[1] == IN_STEP
        )  # the longest first
        points = [p for part in pool.map(lambda series: measure(fabric, *series), chosen) for p in part]
    # Ten minutes of two processors, for each size up to that of the design: 512 nodes.
    figure(f"scale.events.{nodes}_nodes.processor_time", [processor_seconds() - before], 1200, "lower", "s")
    return points


def processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def draw(points: list[Point], target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullLocator, ScalarFormatter

    picture, axes = pyplot.subplots(figsize=(10, 4.5))
    for order, pace in SERIES:
        by = {
            by: sorted(
                (int(p["nodes"]), 100 * float(p["share"]))
                for p in points
                if (p["order"], p["pace"], p["by"]) == (order, pace, by)
            )
            for by in (FLOWS, SIMGRID)
        }
        line = "o-" if pace == IN_STEP else "s--"
        if by[FLOWS]:
            (drawn,) = axes.plot(*zip(*by[FLOWS], strict=True), line, label=f"{order}, {pace}")
            if by[SIMGRID]:
                axes.plot(*zip(*by[SIMGRID], strict=True), "x", color=drawn.get_color(), markersize=9)
    axes.plot([], [], "kx", label="the same in SimGrid")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({int(point["nodes"]) for point in points}))
    axes.get_xaxis().set_major_formatter(ScalarFormatter())
    axes.get_xaxis().set_minor_locator(NullLocator())
    axes.set_ylim(0, 105)
    axes.axhline(80, color="grey", linestyle=":", label="80 %, what event builders are designed for")
    axes.set_xlabel("nodes, 18 on each leaf switch of radix 36")
    axes.set_ylabel("payload, share of the cables' rate, %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    picture.tight_layout()
    picture.savefig(target, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[45, 512])
    parser.add_argument("--in-step-only", action="store_true")
    parser.add_argument(
        "--points", type=Path, help="keep the figures here, and draw those of earlier calls too"
    )
    parser.add_argument("--plot", type=Path, help="write the plot to this PNG file")
    args = parser.parse_args()
    if simulator.unavailable():
        waived("scale.events.45_nodes.from_simgrid", str(simulator.unavailable()))
    points: list[Point] = []
    if args.points and args.points.exists():
        points = [json.loads(line) for line in args.points.read_text().splitlines()]
    for nodes in args.nodes:
        points += measure_all(nodes, [IN_STEP] if args.in_step_only else [IN_STEP, FREE])
        if args.points:
            args.points.write_text("".join(json.dumps(p) + "\n" for p in points))
    if args.plot:
        draw(points, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
