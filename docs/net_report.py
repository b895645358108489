#!/usr/bin/env python3
"""The picture of the README: `assay net` on a lab of eight hosts, one of them planted to send at half its rate.

    sudo .venv/bin/python docs/net_report.py

writes docs/net-report.png with Chromium and Playwright (make test-setup). It needs root for the lab, and a quiet
machine: on a busy one the report says so in its head.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
LAB = "picture"
UP = "lab up --nodes 8 --cabinets 2 --host-rate 100mbit --duplex-rate 160mbit --cabinet-rate 300mbit"
WIDTH, HEIGHT = 1200, 750  # px: the report's first screen
LIMIT_MS = 60_000


def assay(line: str, folder: Path, *, allowed: tuple[int, ...] = (0,)) -> None:
    done = subprocess.run([ROOT / "assay", *line.split()], cwd=folder, check=False)
    if done.returncode not in allowed:
        raise SystemExit(f"assay {line}: exit code {done.returncode}")


def take_picture(report: Path, picture: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--headless", "--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(report.as_uri())
        page.wait_for_selector("#report[data-ready]", timeout=LIMIT_MS)
        page.screenshot(path=picture)
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assay(f"{UP} --lab {LAB}", folder)
        try:
            assay(f"lab fault h3 --tx 50% --lab {LAB}", folder)
            assay(f"net --lab {LAB} -o net", folder, allowed=(1,))  # it fails: h3 is slow
        finally:
            assay(f"lab down --lab {LAB}", folder)
        take_picture(folder / "net" / "report.html", ROOT / "docs" / "net-report.png")


if __name__ == "__main__":
    main()
