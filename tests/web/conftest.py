"""Fixtures that open reports from disk in Chromium. A test fails if its page writes to the console, throws an error, or
requests anything from a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

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


@pytest.fixture
def open_report(browser: Browser, report: Callable[[str], Path]) -> Iterator[Callable[..., Page]]:
    """A function that opens a report, or that of a synthetic run, by file:// and waits until it is shown. Keyword
    arguments go to the browser context."""
    problems: list[str] = []
    contexts = []

    def open_kind(kind: str | Path, **options: object) -> Page:
        path = kind if isinstance(kind, Path) else report(kind)
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(LIMIT_MS)
        page = context.new_page()
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on(
            "request",
            lambda request: problems.append(request.url) if loads_from_network(request.url, path) else None,
        )
        page.goto(path.as_uri())
        page.wait_for_selector("#report[data-ready]")
        return page

    yield open_kind
    for context in contexts:
        context.close()
    assert problems == []


def loads_from_network(url: str, report: Path) -> bool:
    return url != report.as_uri() and not url.startswith(("data:", "blob:"))
