"""Blind recovery: hidden random platforms, simulated; the study finds cabinets and capacities without hints.

Each platform (2 to 8 cabinets of 8 to 48 hosts, half of them heterogeneous) is written by the tests' own
generator, and the whole of `assay simulate -- saturate` is run on it. What is held against the truth is every
planted capacity that traffic can show. Transfers are counted as the original counts them, one flow of one run:
its fixed procedure is 1..n/2 pairs with send, sendrecv and (each second step) rings of four, 10 runs of each,
in every cabinet, and the same three ways between pairs of cabinets.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "fixtures")]

import hidden_platforms  # noqa: E402

from assay.cli import main  # noqa: E402
from assay.launch import simulator  # noqa: E402
from assay.measure.saturation import read_cabinets  # noqa: E402
from assay.records.run import Run  # noqa: E402
from assay.records.schema import Capacity, Flows  # noqa: E402

SEEDS = range(1, 11)
CLOSE = 0.01
RUNS_OF_THE_ORIGINAL = 10


def original_transfers(sizes: list[int]) -> int:
    inside = sum(k * 3 + (2 * k if k % 2 == 0 else 0) for n in sizes for k in range(1, n // 2 + 1))
    pairs = zip(sizes[::2], sizes[1::2], strict=False)
    between = sum(4 * k for a, b in pairs for k in range(1, min(a, b) + 1))
    return RUNS_OF_THE_ORIGINAL * (inside + between)


def recover(seed: int, folder: Path) -> dict[str, float]:
    hidden = hidden_platforms.draw(seed)
    platform = hidden_platforms.write(hidden, folder / f"{seed}.xml")
    begun = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = main(["simulate", str(platform), "--", "saturate", "-o", str(folder / str(seed))])
    seconds = time.monotonic() - begun
    run = Run.load(folder / str(seed))
    found = read_cabinets(run.info.options.get("cabinets") or [])
    names = {frozenset(hosts): name for name, hosts in found.items()}
    grouped = set(names) == {frozenset(hosts) for hosts in hidden.cabinets.values()}
    values = {
        (c.level, c.of, c.way): c.value
        for c in run.records
        if isinstance(c, Capacity) and c.state == "measured"
    }
    close = 0
    for level, of, way in hidden.capacity:
        known = names.get(frozenset(hidden.cabinets[of]), "") if level == "cabinet" else of
        value, truth = values.get((level, known, way)), hidden.visible((level, of, way))
        close += value is not None and abs(value / truth - 1) <= CLOSE
    flows = [
        len(r.values) for r in run.records if isinstance(r, Flows) and r.params["experiment"] != "all_to_all"
    ]
    return {
        "status": status, "seconds": seconds, "grouped": grouped, "close": close, "planted": len(hidden.capacity),
        "hosts": len(hidden.hosts), "cabinets": len(hidden.cabinets), "transfers": sum(flows),
        "original": original_transfers([len(hosts) for hosts in hidden.cabinets.values()]),
    }  # fmt: skip


def figure(name: str, value: float, limit: float, met: bool, **more: object) -> None:
    print(
        json.dumps(
            {
                "bench": "saturation_recovery",
                "figure": name,
                "value": round(value, 4),
                "limit": limit,
                "met": met,
                **more,
            }
        ),
        flush=True,
    )


def run() -> None:
    reason = simulator.unavailable()
    if reason:
        print(json.dumps({"bench": "saturation_recovery", "waived": reason}))
        return
    with tempfile.TemporaryDirectory(prefix="assay-recovery-") as folder:
        all_of_them = [recover(seed, Path(folder)) for seed in SEEDS]
    close, planted = sum(o["close"] for o in all_of_them), sum(o["planted"] for o in all_of_them)
    grouped = sum(o["grouped"] for o in all_of_them) / len(all_of_them)
    transfers = sum(o["transfers"] for o in all_of_them) / sum(o["original"] for o in all_of_them)
    worst = min(o["close"] / o["planted"] for o in all_of_them)
    figure(
        "capacities_within_1_percent",
        close / planted,
        0.95,
        close / planted >= 0.95,
        planted=planted,
        worst_platform=round(worst, 4),
    )
    figure("platforms_with_right_cabinets", grouped, 1.0, grouped == 1.0, platforms=len(all_of_them))
    figure("transfers_of_the_original", transfers, 0.15, transfers <= 0.15)


if __name__ == "__main__":
    run()
