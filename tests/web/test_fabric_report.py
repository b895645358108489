"""The conflicts of a fabric in the report: the curve over steps, the switches by level, and the pairs of a cable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from assay.cli import main

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def conflicts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("fabric") / "run"
    assert main(["fabric", "conflicts", "--fat-tree", "radix=36,nodes=45", "-o", str(run)]) == 0
    return run / "report.html"


def test_the_worst_step_is_shown_first(open_report: Open, conflicts: Path) -> None:
    page = open_report(conflicts)
    fabric = page.locator("#fabric")
    assert "81 conflicts, 4.0 % of all pairs; 62 rounds, bound 45" in fabric.inner_text()
    assert fabric.locator(".fabric .switch").count() == 21
    assert fabric.locator(".fabric .shared").count() == 9
    assert fabric.locator(".fabric .free").count() == 3 * 18 - 9
    assert page.get_by_role("img", name="Conflicts of each of 45 steps; at worst step 27.").count() == 1
    assert fabric.locator("table.pairs tbody tr").count() == 9


def test_another_step_and_the_pairs_of_a_cable(open_report: Open, conflicts: Path) -> None:
    page = open_report(conflicts)
    fabric = page.locator("#fabric")
    fabric.get_by_role("slider").fill("28")
    expect(fabric.locator(".fabric .shared")).to_have_count(8)
    fabric.get_by_role("button", name="leaf1 and spine1: 2 flows on one link").press("Enter")
    expect(fabric.locator("table.pairs tbody tr")).to_have_count(1)
    (row,) = fabric.locator("table.pairs tbody tr").all_inner_texts()
    assert "leaf1[20] -> spine1[2]" in row
    assert "node20 → node37" in row and "node29 → node01" in row
    fabric.get_by_role("slider").fill("0")
    expect(fabric.get_by_text("No link carries two flows.")).to_be_visible()
    expect(fabric.locator(".fabric .shared")).to_have_count(0)


def test_switches_are_no_hosts(open_report: Open, conflicts: Path) -> None:
    page = open_report(conflicts)
    assert "fabric.above" not in page.inner_text("body")


def test_names_of_a_hostile_fabric_are_text(open_report: Open, tmp_path: Path) -> None:
    """Any adapter sends its own description; a script in it must not run in the report."""
    six = Path(__file__).parents[1] / "fixtures" / "fabric" / "six"
    topology = tmp_path / "net.txt"
    hostile = "</script><img/src=x/onerror=alert(1)>"
    topology.write_text((six / "topology.txt").read_text().replace('"leaf0"', f'"{hostile}"'))
    run = tmp_path / "run"
    arguments = ["--fabric", str(topology), "--tables", str(six / "fts.txt"), "--schedule", "random"]
    assert main(["fabric", "conflicts", *arguments, "-o", str(run)]) == 0
    page = open_report(run / "report.html")
    assert page.locator("#fabric .switch").count() == 5
    assert page.locator("img").count() == 0
    assert hostile[:10] in page.locator("#fabric").inner_html().replace("&lt;", "<").replace("&gt;", ">")
