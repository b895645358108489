"""The share of a fat tree's rate that a barrel shift, a random order and a planned exchange reach, by node count.

    .venv/bin/python docs/event_scaling.py --nodes 18 36 45 64 128 256 512 --plot docs/event-scaling.png

In step, a schedule takes as long as its fullest link in each step. The share of the links' rate that event building
then reaches is the number of steps over the sum of these loads. The loads are those of radix-36 switches with D-mod-K
forwarding tables, 18 nodes on each leaf switch; nothing is simulated in time. One JSON line a point.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from assay.fabric import Routes, schedules, synthetic, tables  # noqa: E402
from assay.fabric.conflicts import analyse  # noqa: E402
from assay.fabric.remedies import placement  # noqa: E402
from assay.fabric.remedies.exchange import conflict_free, demand_of  # noqa: E402
from assay.fabric.schedules import Schedule  # noqa: E402

Point = dict[str, str | int | float]


def points(nodes: int) -> list[Point]:
    fabric = synthetic.build(synthetic.parse(f"radix=36,nodes={nodes}"))
    routes = Routes(fabric, tables.compute(fabric, "d-mod-k"))
    as_listed = np.arange(nodes, dtype=np.int32)
    ordered = placement.by_slots(routes, as_listed)
    ordered = ordered[ordered >= 0]
    results: list[Point] = []
    for name in ("barrel shift", "random", "without conflicts"):
        begun = time.monotonic()
        planned = name == "without conflicts"
        schedule: Schedule = (
            conflict_free(demand_of(routes, ordered))
            if planned
            else schedules.find({"barrel shift": "shift", "random": "random"}[name], nodes)
        )
        rounds = analyse(routes, schedule, ordered if planned else as_listed).rounds
        share = round(schedule.steps / rounds, 3)
        results.append(
            {"nodes": nodes, "schedule": name, "steps": schedule.steps, "rounds": rounds, "share": share}
        )
        results[-1]["seconds"] = round(time.monotonic() - begun, 1)
    return results


def draw(drawn: list[Point], target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import ScalarFormatter

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for name in dict.fromkeys(point["schedule"] for point in drawn):
        chosen = [point for point in drawn if point["schedule"] == name]
        axes.plot(
            [p["nodes"] for p in chosen], [100 * float(p["share"]) for p in chosen], "o-", label=str(name)
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({int(point["nodes"]) for point in drawn}))
    axes.get_xaxis().set_major_formatter(ScalarFormatter())
    axes.set_ylim(0, 105)
    axes.axhline(80, color="grey", linestyle=":", label="80 %, what event builders are designed for")
    axes.set_xlabel("nodes, 18 on each leaf switch of radix 36")
    axes.set_ylabel("share of the links' rate, in step, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[18, 36, 45, 64, 128, 256, 512])
    parser.add_argument("--plot", type=Path, help="the picture")
    args = parser.parse_args()
    drawn: list[Point] = []
    for nodes in args.nodes:
        for point in points(nodes):
            drawn.append(point)
            print(json.dumps(point), flush=True)
    if args.plot:
        draw(drawn, args.plot)


if __name__ == "__main__":
    main()
