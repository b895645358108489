"""Rules for every test: signals as a shell in the foreground leaves them, markers by fixture, loud skips.

- A shell starts a program in the background with SIGINT ignored, and nohup does so with SIGHUP. Children of a test
  would inherit both, and a Ctrl-C that a test sends would be lost. So both are reset here.
- A test that uses a lab, a guest or the browser carries the marker of that name, by its fixtures.
- The last line says what was not tested here. In CI ($CI is set) a skipped test fails. Exempt are skips whose reason
  starts with "optional:": what no set-up installs, such as a second version of Python.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator

import acceptance
import pytest

MARKER_OF_FIXTURE = {"make_lab": "lab", "in_guest": "guest", "browser": "browser"}
KINDS = ("lab", "guest", "browser", "programs")  # markers that the last line counts by
OPTIONAL = "optional:"
SKIPPED = pytest.StashKey[Counter[tuple[str, str]]]()  # (kind of test, reason): how many

Report = pytest.TestReport | pytest.CollectReport


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.register(acceptance, "acceptance")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    config.stash[SKIPPED] = Counter()
    config.pluginmanager.register(SkipCounter(config.stash[SKIPPED]))


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in MARKER_OF_FIXTURE:
                item.add_marker(MARKER_OF_FIXTURE[fixture])
    # Files are run in this order, each in one process. One that boots a guest takes long, so that the other processes
    # would have nothing left to do at the end.
    boots = {item.path for item in items if item.get_closest_marker("guest")}
    items.sort(key=lambda item: item.path not in boots)


def skip_reason(report: Report) -> str:
    """Why a test was skipped; "" where it was not."""
    if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return ""
    return str(report.longrepr[2]).removeprefix("Skipped: ")


def refuse_in_ci(report: Report) -> None:
    reason = skip_reason(report)
    if reason and os.environ.get("CI") and not reason.startswith(OPTIONAL):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not accept: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_in_ci(report)
    return report


class SkipCounter:
    """Also of the tests that ran in other processes (pytest-xdist), whose reports come to the one that started them."""

    def __init__(self, skipped: Counter[tuple[str, str]]) -> None:
        self._skipped = skipped

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if reason := skip_reason(report):
            kind = next((f"{kind} test" for kind in KINDS if kind in report.keywords), "test")
            self._skipped[kind, reason] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if reason := skip_reason(report):
            self._skipped["module", reason] += 1


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line."""
    skipped = config.stash[SKIPPED]
    if skipped and not hasattr(config, "workerinput"):
        parts = [
            f"{count} {kind}{'s' if count > 1 else ''} ({reason})"
            for (kind, reason), count in sorted(skipped.items())
        ]
        print(f"not tested here: {', '.join(parts)}")
