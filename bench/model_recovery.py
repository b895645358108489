#!/usr/bin/env python3
"""Recovery of hidden platforms: `assay saturate` finds the cabinets and capacities of simulated random platforms.

The tests' generator writes each platform: 2 to 8 cabinets of 8 to 48 hosts, half of them heterogeneous. The whole of
`assay simulate -- saturate` runs on it. Every planted capacity that traffic can show is compared with the result.

The cost is compared with that of the original saturation study, whose procedure is fixed: 1..n/2 pairs with send,
sendrecv and (each second step) rings of four, 10 runs of each, in every cabinet; and three patterns between two
cabinets, each cabinet once. A transfer is one flow of one run. The original's transfer is one message of 4 MB, Assay's
as many messages as fill the window, so bytes are compared as well.
"""

from __future__ import annotations

import contextlib
import io
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(ROOT / "python"),
    str(ROOT / "tests" / "fixtures"),
    str(ROOT / "docs"),
    str(ROOT / "bench"),
]

import graphene  # noqa: E402
import hidden_platforms  # noqa: E402
from figures import exit_code_of, figure, waived  # noqa: E402

from assay.cli import main  # noqa: E402
from assay.launch import simulator  # noqa: E402
from assay.measure.saturation import read_cabinets  # noqa: E402
from assay.model.platform import write_platform  # noqa: E402
from assay.records.run import Run  # noqa: E402
from assay.records.schema import Capacity, Flows  # noqa: E402

SEEDS = range(1, 9)
CLOSE = 0.01  # relative error of a capacity that counts as recovered
RUNS_OF_THE_ORIGINAL = 10
MESSAGE_OF_THE_ORIGINAL = 4e6  # B, one a transfer


def original_transfers(sizes: list[int]) -> int:
    """Transfers of the original's procedure on cabinets with these numbers of hosts."""
    inside = sum(k * 3 + (2 * k if k % 2 == 0 else 0) for n in sizes for k in range(1, n // 2 + 1))
    pairs = zip(sizes[::2], sizes[1::2], strict=False)
    between = sum(4 * k for a, b in pairs for k in range(1, min(a, b) + 1))
    return RUNS_OF_THE_ORIGINAL * (inside + between)


def recover(seed: int, folder: Path) -> dict[str, float]:
    hidden = hidden_platforms.draw_platform(seed)
    platform = hidden_platforms.write_platform(hidden, folder / f"{seed}.xml")
    begun = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = main(["simulate", str(platform), "--", "saturate", "-o", str(folder / str(seed))])
    seconds = time.monotonic() - begun
    run = Run.load(folder / str(seed))
    cabinets = read_cabinets(run.info.options.get("cabinets") or [])
    names = {frozenset(hosts): name for name, hosts in cabinets.items()}
    grouped = set(names) == {frozenset(hosts) for hosts in hidden.cabinets.values()}
    values = {
        (c.level, c.resource, c.direction): c.value
        for c in run.records
        if isinstance(c, Capacity) and c.state == "measured"
    }
    close = 0
    for level, owner, direction in hidden.capacity:
        measured_owner = names.get(frozenset(hidden.cabinets[owner]), "") if level == "cabinet" else owner
        value, truth = (
            values.get((level, measured_owner, direction)),
            hidden.visible_capacity((level, owner, direction)),
        )
        close += value is not None and abs(value / truth - 1) <= CLOSE
    rounds = [r for r in run.records if isinstance(r, Flows) and r.params["experiment"] != "all_to_all"]
    return {
        "status": status, "seconds": seconds, "grouped": grouped, "close": close, "planted": len(hidden.capacity),
        "hosts": len(hidden.hosts), "cabinets": len(hidden.cabinets), "transfers": sum(len(r.values) for r in rounds),
        "bytes": sum(int(r.params["messages"]) * int(r.params["size"]) for r in rounds),
        "original": original_transfers([len(hosts) for hosts in hidden.cabinets.values()]),
    }  # fmt: skip


def show(name: str, values: list[float], limit: float, better: str) -> None:
    """A figure of all platforms, the first of the values; the others are those of each."""
    figure(f"model.recovery.{name}", values[:1], limit, better, spread=max(values[1:]) - min(values[1:]))


def graphene_seconds(folder: Path) -> float:
    """CPU seconds from the records of a study of 144 hosts to the verified platform: fit, file and simulation."""
    platform, run = folder / "graphene.xml", folder / "graphene"
    write_platform(graphene.published(), platform, "the worked example")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(["simulate", str(platform), "--", "saturate", "-o", str(run)])
        before = cpu_seconds()
        status = main(["model", str(run), "--platform", str(folder / "fitted.xml")])
    if status != 0:
        raise SystemExit("bench: the worked example is not reproduced: see docs/graphene.py")
    return cpu_seconds() - before


def cpu_seconds() -> float:
    """CPU seconds of this process and of the children that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run() -> int:
    reason = simulator.unavailable()
    if reason:
        waived("model.", reason)
        return 0
    with tempfile.TemporaryDirectory(prefix="assay-recovery-") as folder:
        outcomes = []
        for seed in SEEDS:
            outcomes.append(recover(seed, Path(folder)))
            print(f"bench: platform {seed}: {outcomes[-1]}", file=sys.stderr)
        seconds = graphene_seconds(Path(folder))
    close = [sum(o["close"] for o in outcomes) / sum(o["planted"] for o in outcomes)]
    close += [o["close"] / o["planted"] for o in outcomes]
    transfers = [sum(o["transfers"] for o in outcomes) / sum(o["original"] for o in outcomes)]
    transfers += [o["transfers"] / o["original"] for o in outcomes]
    moved = [o["bytes"] / (o["original"] * MESSAGE_OF_THE_ORIGINAL) for o in outcomes]
    grouped = [sum(o["grouped"] for o in outcomes) / len(outcomes)]
    show("capacities_within_1_percent", close, 0.95, "higher")
    figure("model.recovery.platforms_with_right_cabinets", grouped, 1.0, "higher")
    show("transfers_over_original", transfers, 0.15, "lower")
    show("bytes_over_original", [sum(moved) / len(moved), *moved], 0.15, "lower")
    figure("model.graphene.seconds_of_144_hosts", [seconds], 60.0, "lower", "s")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(run))
