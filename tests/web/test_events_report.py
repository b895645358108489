"""Event building in the report: the chart over time with its dips, the ledger, and the landscape of a search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from planted_events import PlantedEventRun
from playwright.sync_api import Page, expect

from assay.events.space import Axis, Space
from assay.events.tuner import Tuner
from assay.explain import explain
from assay.measure.events_tune import landscape_records
from assay.records.run import Run
from assay.report.html import build_report

Open = Callable[..., Page]
SPACE = Space((Axis("fragment", (1 << 18, 1 << 19, 1 << 20)), Axis("schedule", ("shift", "random"), False)))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = Run.create("eb", ["assay", "eb"], path=tmp_path_factory.mktemp("events") / "run")
    planted = PlantedEventRun(dips=[(range(20, 24), 0.4, "h3")], ledger={"fragments_lost": 1234.0})
    run.info.hosts = planted.hosts
    for record in planted.records():
        run.append(record)
    other = PlantedEventRun(params={"schedule": "random"}, seconds=10)
    for record in other.records():
        run.append(record)
    result = Tuner(SPACE, lambda point: float(int(point[0])) + 1e5 * (point[1] == "shift")).run()
    for record in landscape_records(result):
        run.append(record)
    for finding in explain(run.records, run.info.hosts):
        run.append(finding)
    run.finish("complete", "")
    return build_report(run.path)


def test_the_chart_over_time_says_how_low_it_was_and_how_often(open_report: Open, report: Path) -> None:
    page = open_report(report)
    chart = page.get_by_role("img", name="Throughput of all ranks in 60 slices of time")
    expect(chart).to_have_count(1)
    label = chart.get_attribute("aria-label")
    assert label is not None and label.endswith("1 dip.")
    assert "h3 slowed all down from 20 s to 24 s" in page.inner_text("body")


def test_the_ledger_has_every_count(open_report: Open, report: Path) -> None:
    page = open_report(report)
    row = page.locator("#events tr", has_text="fragments lost")
    expect(row).to_contain_text("1,234")


def test_another_building_can_be_chosen(open_report: Open, report: Path) -> None:
    page = open_report(report)
    page.locator("#events select").select_option(label="push, random, 512 KiB, 2 credits, 8 parallel")
    expect(page.get_by_role("img", name="Throughput of all ranks in 10 slices of time")).to_have_count(1)


def test_the_search_shows_a_chart_for_each_parameter_and_every_point(open_report: Open, report: Path) -> None:
    page = open_report(report)
    events = page.locator("#events")
    expect(
        events.get_by_role("img", name="Best and median throughput at each value of fragment.")
    ).to_have_count(1)
    expect(
        events.get_by_role("img", name="Best and median throughput at each value of schedule.")
    ).to_have_count(1)
    best = events.locator("tr", has_text="100 %").first
    expect(best).to_contain_text("1 MiB")
    expect(best).to_contain_text("shift")
