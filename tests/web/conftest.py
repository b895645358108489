"""A real Chromium that looks at real reports, opened from disk, and lets nothing pass in silence: whatever
is said on the console, thrown, or asked of a network fails the test that saw it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import make_run
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

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
LIMIT = 60_000  # ms, for anything a page may take: a hang fails, a slow machine does not


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The report of one of the made runs, written once for all tests."""
    made: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in made:
            made[kind] = build_report(make_run.make(kind, tmp_path_factory.mktemp(kind) / "run"))
        return made[kind]

    return of


@pytest.fixture
def open_report(browser: Browser, report: Callable[[str], Path]) -> Iterator[Callable[..., Page]]:
    """Opens a report, or that of a made run, by file:// and waits until it is shown. Keyword arguments go to the
    browser context."""
    trouble: list[str] = []
    contexts = []

    def open_kind(kind: str | Path, **options: object) -> Page:
        path = kind if isinstance(kind, Path) else report(kind)
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)  # type: ignore[arg-type]
        contexts.append(context)
        context.set_default_timeout(LIMIT)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("request", lambda request: trouble.append(request.url) if loads(request.url, path) else None)
        page.goto(path.as_uri())
        page.wait_for_selector("#report[data-ready]")
        return page

    yield open_kind
    for context in contexts:
        context.close()
    assert trouble == []


def loads(url: str, report: Path) -> bool:
    return url != report.as_uri() and not url.startswith(("data:", "blob:"))
