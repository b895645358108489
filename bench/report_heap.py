#!/usr/bin/env python3
"""The time that Chromium takes to open the report of a heap profile with 1.2 million call-tree nodes and show the tree,
and the report's size."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/fixtures")]

import make_heap  # noqa: E402 - the path comes first
from figures import exit_code_of, figure  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402

from assay.report.html import build_report  # noqa: E402

ROUNDS = 5
NODES = 1_200_000
LIMIT_MS = 120_000
CHROMIUM = "/usr/bin/chromium"


def time_to_call_tree(browser: Browser, report: Path) -> float:
    """Seconds from opening the report to the first row of its call tree."""
    page = browser.new_page()
    page.set_default_timeout(LIMIT_MS)
    start = time.perf_counter()
    page.goto(report.as_uri())
    page.get_by_role("tab", name="Call tree", exact=True).click()
    page.get_by_role("treeitem").first.wait_for()
    elapsed = time.perf_counter() - start
    page.close()
    return elapsed


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = build_report(make_heap.make_run(Path(folder) / "run", NODES).path)
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        times = [time_to_call_tree(browser, report) for _ in range(ROUNDS)]
        browser.close()
        figure("report.heap tree of 1.2 million calls shown", times, 5, "lower", "s")
        figure("report.heap of 1.2 million calls, size", [report.stat().st_size], 50e6, "lower", "B")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
