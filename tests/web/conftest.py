"""Fixtures that open reports from disk in Chromium. A test fails if its page writes to the console, throws an error, or
requests anything from a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import make_run
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from assay.report.html import build_report

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
LIMIT_MS = 120_000  # for each step of a page; against hangs


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=LIMIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from the kind of a synthetic run (make_run) to its report, which is written once for all tests."""
    reports: dict[str, Path] = {}

    def report_of(kind: str) -> Path:
        if kind not in reports:
            reports[kind] = build_report(make_run.make(kind, tmp_path_factory.mktemp(kind) / "run"))
        return reports[kind]

    return report_of


@pytest.fixture(scope="session")
def page(browser: Browser) -> Page:
    """The only page: another takes longer than a report does."""
    page = browser.new_page()
    page.set_default_timeout(LIMIT_MS)
    return page


@pytest.fixture
def open_report(page: Page, report: Callable[[str], Path]) -> Iterator[Callable[..., Page]]:
    """A function that opens a report, or that of a synthetic run, by file:// in place of the one before, and waits
    until it is shown."""
    opened: set[str] = set()
    problems: list[str] = []
    listeners = {
        "console": lambda message: problems.append(f"console: {message.text}"),
        "pageerror": lambda error: problems.append(f"error: {error}"),
        "request": lambda request: problems.append(request.url) if loads_more(request.url, opened) else None,
    }
    for event, listener in listeners.items():
        page.on(event, listener)  # type: ignore[call-overload]

    def open_kind(kind: str | Path, color_scheme: Literal["light", "dark"] = "light") -> Page:
        page.goto("about:blank")  # an address that differs by its fragment alone loads nothing
        page.set_viewport_size({"width": 1280, "height": 900})
        page.emulate_media(color_scheme=color_scheme)
        page.mouse.move(0, 0)
        address = (kind if isinstance(kind, Path) else report(kind)).as_uri()
        opened.add(address)
        page.goto(address)
        page.wait_for_selector("#report[data-ready]")
        return page

    yield open_kind
    page.goto("about:blank")
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    assert problems == []


def loads_more(url: str, opened: set[str]) -> bool:
    """Whether a page asks for more than its file."""
    return url not in opened and not url.startswith(("about:", "blob:", "data:"))
