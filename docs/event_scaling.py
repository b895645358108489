"""Event building on a fat tree, simulated: throughput against nodes for several schedules.

    python docs/event_scaling.py --nodes 16 45 64 128 256 512 --into /tmp/scaling --plot docs/event-scaling.png

For each number of nodes it makes a fat tree of radix-36 switches with its forwarding tables, plans an exchange without
conflicts on them, and runs the event builder's own engine on the simulated fabric ('assay fabric platform', 'assay
fabric schedule', 'assay simulate -- eb'). It prints one JSON line a point and draws the plot.

A simulated rank has real buffers: one fragment from each source for each of its credits. So that 512 of them fit into
the memory of a small machine, message sizes and link rates are divided by the same number. The time of each message
stays what it is for 512 KiB at 100 Gbit/s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from assay.events.figures import buildings  # noqa: E402
from assay.records.run import Run  # noqa: E402

LINK = 12.5e9  # B/s: 100 Gbit/s
MESSAGE = 512 << 10  # B, the size that event builders found best
SCALE = 512  # messages and rates are divided by it
SCHEDULES = {
    "barrel shift": ["--schedule", "shift"],
    "barrel shift, in step": ["--schedule", "shift", "--synchronised"],
    "random": ["--schedule", "random"],
    "without conflicts, in step": ["--synchronised"],
}
LIMIT_S = 1800


def assay(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "assay", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode not in (0, 1):  # 1: judged, and something was found
        raise SystemExit(f"assay {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()[-2000:]}")


def prepare(nodes: int, folder: Path) -> tuple[Path, Path]:
    """The platform, and the planned schedule."""
    tree = f"radix=36,nodes={nodes}"
    platform, exchange = folder / f"{nodes}.xml", folder / f"{nodes}-exchange"
    if not platform.exists():
        assay(
            "fabric",
            "platform",
            "--fat-tree",
            tree,
            "--rate",
            f"{LINK / SCALE:.0f}B/s",
            "--platform",
            str(platform),
        )
        # A message is sent when its data have gone, not when they are copied into a buffer of the MPI.
        text = platform.read_text().replace(
            '<prop id="smpi/simulate-computation" value="no"/>',
            '<prop id="smpi/simulate-computation" value="no"/>\n<prop id="smpi/send-is-detached-thresh" value="0"/>',
        )
        platform.write_text(text)
    if not exchange.exists():
        assay("fabric", "schedule", "--fat-tree", tree, "--into", str(exchange))
    return platform, exchange / "schedule.txt"


def measure(nodes: int, name: str, folder: Path, rounds: int, credits: int) -> dict[str, object]:
    """One point: B/s of a node, as a share of its link."""
    platform, planned = prepare(nodes, folder)
    options = list(SCHEDULES[name])
    if name.startswith("without"):
        options += ["--schedule-file", str(planned)]
    run = folder / f"{nodes}-{name.replace(' ', '-').replace(',', '')}"
    begun = time.monotonic()
    assay(
        *("simulate", str(platform), "--", "eb", "--size", str(MESSAGE // SCALE), "--credits", str(credits)),
        *("--events", str(nodes * rounds), "--slice", "1ms", *options, "-o", str(run)),
    )
    seconds = time.monotonic() - begun
    (building,) = buildings(Run.load(run).records)
    rate = building.network_throughput * SCALE / nodes
    return {
        "nodes": nodes,
        "schedule": name,
        "rate": rate,
        "share": round(rate / LINK, 4),
        "total": rate * nodes,
        "seconds": round(seconds, 1),
    }


def draw(points: list[dict[str, object]], target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for name in dict.fromkeys(str(p["schedule"]) for p in points):
        chosen = sorted((p for p in points if p["schedule"] == name), key=lambda p: int(str(p["nodes"])))
        axes.plot(
            [p["nodes"] for p in chosen], [100 * float(str(p["share"])) for p in chosen], "o-", label=name
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({int(str(p["nodes"])) for p in points}))
    axes.get_xaxis().set_major_formatter(matplotlib.ticker.ScalarFormatter())
    axes.set_ylim(0, 105)
    axes.axhline(80, color="grey", linestyle=":", label="80 %: what the event builder needs")
    axes.set_xlabel("nodes, 18 on each leaf switch of radix 36")
    axes.set_ylabel("throughput of a node, % of its link")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(target, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[18, 36, 45, 64, 128])
    parser.add_argument("--schedules", nargs="+", choices=list(SCHEDULES), default=list(SCHEDULES))
    parser.add_argument("--rounds", type=int, default=6, help="events that each node builds (default: 6)")
    parser.add_argument(
        "--credits", type=int, default=2, help="events that a node gathers at once (default: 2)"
    )
    parser.add_argument("--into", type=Path, required=True, help="platforms, schedules and runs go here")
    parser.add_argument("--plot", type=Path, help="the picture")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    points = []
    for nodes in args.nodes:
        for name in args.schedules:
            points.append(measure(nodes, name, args.into, args.rounds, args.credits))
            print(json.dumps(points[-1]), flush=True)
    if args.plot:
        draw(points, args.plot)


if __name__ == "__main__":
    main()
