"""The network's model in the report: the picture, what is unknown in it, and measured beside simulated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from assay.records.run import Run
from assay.records.schema import Capacity, Comparison
from assay.report.html import build_report

Open = Callable[..., Page]


@pytest.fixture
def modelled(tmp_path: Path) -> Path:
    run = Run.create("saturate", ["assay", "saturate"], path=tmp_path / "run")
    run.info.hosts = ["n1", "n2", "n3"]

    def add(
        level: str,
        resource: str,
        direction: str,
        value: float | None,
        state: str = "measured",
        cabinet: str = "",
        explanations: list[str] | None = None,
    ) -> None:
        run.append(
            Capacity(
                level=level,
                resource=resource,
                direction=direction,
                unit="B/s",
                state=state,
                value=value,
                low=value,
                high=value,
                cabinet=cabinet,
                reason="planted",
                explanations=explanations or [],
            )
        )

    for host, cabinet in (("n1", "left"), ("n2", "left"), ("n3", "right")):
        add(
            "host",
            host,
            "up",
            None if host == "n2" else 120e6,
            "unknown" if host == "n2" else "measured",
            cabinet,
        )
        add("host", host, "down", 120e6, cabinet=cabinet)
        add("host", host, "limiter", 187.5e6, cabinet=cabinet)
    for cabinet in ("left", "right"):
        limits = ["up link of left", "down link of right"]
        add("cabinet", cabinet, "up", 1.16e9, "at_least", explanations=limits if cabinet == "left" else None)
        add("cabinet", cabinet, "down", 1.16e9)
        add("inside", cabinet, "through", 2e9, "at_least")
    add("backbone", "", "through", 1.51e9)
    for x, measured, simulated in ((1, 120e6, 120e6), (2, 240e6, 228e6), (3, 340e6, None)):
        error = simulated / measured - 1 if simulated else None
        run.append(
            Comparison(
                curve="left: pairs, send",
                axis="pairs",
                x=x,
                unit="B/s",
                measured=measured,
                simulated=simulated,
                error=error,
            )
        )
    run.finish("complete")
    return build_report(run.path)


def test_the_picture_says_what_is_known_and_what_is_not(open_report: Open, modelled: Path) -> None:
    page = open_report(modelled)
    picture = page.locator("#model .platform").inner_html()
    assert "1.16 GB/s" in picture and "between cabinets: 1.51 GB/s" in picture
    assert "≥ 2 GB/s" in picture
    # Two limits explain what leaves the left cabinet: both are named, below it and once.
    texts = page.locator("#model .platform text").all_text_contents()
    assert " ".join(texts).count("(up link of left or down link of right)") == 1
    inside = page.locator("#model .platform").evaluate(
        """(svg) => [...svg.querySelectorAll("text")].every((text) => {
          const box = text.parentElement.querySelector("rect").getBBox();
          return text.getBBox().x + text.getBBox().width <= box.x + box.width;
        })"""
    )
    assert inside, "a text leaves its box"
    assert page.locator("#model .platform .host").count() == 3
    assert page.locator("#model .platform .host.unknown").count() == 1
    rows = page.get_by_role("table", name="Capacities").locator("tbody tr").all_inner_texts()
    assert any("n2" in row and "unknown" in row for row in rows)


def test_every_point_has_its_error_or_says_that_it_has_none(open_report: Open, modelled: Path) -> None:
    page = open_report(modelled)
    rows = page.get_by_role("table", name="Every point").locator("tbody tr").all_inner_texts()
    assert len(rows) == 3
    assert any("228 MB/s" in row and "5.0 %" in row for row in rows)
    assert any("not simulated" in row for row in rows)
    chart = page.get_by_role("img", name="pairs, send, measured and simulated")
    assert chart.locator("canvas").count() == 1
