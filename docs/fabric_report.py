#!/usr/bin/env python3
"""The picture of docs/fabric.md: conflicts of a shift on 45 hosts, at step 28, with the pairs of one cable.

    .venv/bin/python docs/fabric_report.py

writes docs/fabric-report.png with Chromium and Playwright (make test-setup).
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 1200, 1000  # px
LIMIT_MS = 60_000
COMMAND = "fabric conflicts --fat-tree radix=36,nodes=45 -o run"
STEP, CABLE = "28", "leaf1 and spine1: 2 flows on one link"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="assay-picture-") as folder:
        subprocess.run([ROOT / "assay", *COMMAND.split()], cwd=folder, check=True)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--headless", "--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto((Path(folder) / "run" / "report.html").as_uri())
            page.wait_for_selector("#report[data-ready]", timeout=LIMIT_MS)
            page.get_by_role("slider").fill(STEP)
            page.get_by_role("button", name=CABLE).press("Enter")
            page.locator("table.pairs tbody tr").nth(2).wait_for(state="detached", timeout=LIMIT_MS)
            page.locator("#fabric").screenshot(path=ROOT / "docs" / "fabric-report.png")
            browser.close()


if __name__ == "__main__":
    main()
