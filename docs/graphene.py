#!/usr/bin/env python3
"""Graphene, the worked example: a platform from published figures, and the published curves from that platform.

Grid'5000's Graphene cluster in Nancy has 144 hosts in four cabinets, TCP over 1 Gbit/s Ethernet. Its published
capacities were measured by hand, with the experiments that `assay saturate` automates:

    a host         120 MB/s each way, 187.5 MB/s both ways together
    a cabinet      1.16 GB/s each way to the others
    the backbone   1.51 GB/s for all that goes between cabinets

    python docs/graphene.py [FOLDER]

writes graphene.xml from these, runs the whole study on it in SimGrid, fits the study, writes the platform anew,
simulates that one as well, and prints published against found; with Chromium and Playwright (make test-setup) it
also takes the report's pictures.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python")]

from assay.cli import main as assay  # noqa: E402
from assay.model.fitted import Model  # noqa: E402
from assay.model.network import Network  # noqa: E402
from assay.model.platform import write_platform  # noqa: E402
from assay.records.run import Run  # noqa: E402
from assay.records.schema import Capacity  # noqa: E402

CABINETS = {"c1": (1, 39), "c2": (40, 74), "c3": (75, 104), "c4": (105, 144)}  # the cluster's own numbering
HOST, LIMITER, CABINET, BACKBONE = 120e6, 187.5e6, 1.16e9, 1.51e9  # B/s, as published
# Latencies of a small message (s), which are not published: two links of 24 us, and two of 10 us between cabinets.
LATENCY, CABINET_LATENCY = 48e-6, 68e-6
PUBLISHED = "published: SMPI Saturation, Graphene"


def published() -> Model:
    cabinets = {name: [f"graphene-{i}" for i in range(a, b + 1)] for name, (a, b) in CABINETS.items()}
    model = Model(Network(cabinets), inside=LATENCY, between=CABINET_LATENCY)
    for name, hosts in cabinets.items():
        for host in hosts:
            for direction, value in (("up", HOST), ("down", HOST), ("limiter", LIMITER)):
                plant(model, "host", host, direction, value, name)
        for direction in ("up", "down"):
            plant(model, "cabinet", name, direction, CABINET)
    plant(model, "backbone", "", "through", BACKBONE)
    return model


def plant(model: Model, level: str, resource: str, direction: str, value: float, cabinet: str = "") -> None:
    model.network.capacity[level, resource, direction] = value
    model.capacities.append(
        Capacity(
            level=level,
            resource=resource,
            direction=direction,
            unit="B/s",
            state="measured",  # type: ignore[arg-type]
            value=value,
            low=value,
            high=value,
            cabinet=cabinet,
            reason=PUBLISHED,
        )
    )


def compare(run: Run) -> None:
    capacities = [r for r in run.records if isinstance(r, Capacity) and r.value is not None]
    print(f"{'':28}{'published':>12}{'found':>12}")
    for text, level, direction, value in (
        ("a host, up", "host", "up", HOST),
        ("a host, down", "host", "down", HOST),
        ("a host, both ways", "host", "limiter", LIMITER),
        ("a cabinet, up", "cabinet", "up", CABINET),
        ("a cabinet, down", "cabinet", "down", CABINET),
        ("between cabinets, in all", "backbone", "through", BACKBONE),
    ):
        values = sorted(r.value or 0.0 for r in capacities if (r.level, r.direction) == (level, direction))
        print(f"{text:28}{value / 1e6:9.1f} MB/s{values[len(values) // 2] / 1e6:9.1f} MB/s")


def pictures(report: Path, folder: Path) -> None:
    browser = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser = None
    if browser is None:
        print("no pictures: Chromium and Playwright are not here", file=sys.stderr)
        return
    with sync_playwright() as engine:
        page = engine.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page(
            viewport={"width": 1200, "height": 900}
        )
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("#model")
        page.locator("#model .platform").screenshot(path=folder / "graphene-platform.png")
        page.locator("#model .charts").screenshot(path=folder / "graphene-curves.png")


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "graphene")
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.process_time(), time.monotonic()
    write_platform(published(), folder / "graphene.xml", PUBLISHED)
    run = folder / "run"
    status = assay(["simulate", str(folder / "graphene.xml"), "--", "saturate", "-o", str(run)])
    status = status or assay(
        ["model", str(run), "--platform", str(folder / "graphene-again.xml"), "--limit", "1%"]
    )
    print(f"{time.monotonic() - begun[1]:.0f} s for the whole of it")
    compare(Run.load(run))
    pictures(run / "report.html", folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
