"""The conflicts of a fabric in the report: the curve over steps, the switches by level, and the pairs of a cable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from assay.cli import main
from assay.records.run import Run
from assay.records.schema import Measurement

Open = Callable[..., Page]


def make_report(folder: Path, *arguments: str) -> Path:
    """The report of ``assay fabric conflicts``."""
    assert main(["fabric", "conflicts", *arguments, "-o", str(folder / "run")]) == 0
    return folder / "run" / "report.html"


@pytest.fixture(scope="module")
def conflicts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_report(tmp_path_factory.mktemp("fabric"), "--fat-tree", "radix=36,nodes=45")


def loads(page: Page) -> dict[int, int]:
    """The number of cables in the picture by load; 4 stands for 4 or more."""
    lines = page.locator("#fabric .fabric line.cable")
    classes = lines.evaluate_all("lines => lines.map((line) => line.getAttribute('class'))")
    return dict(Counter(int(re.search(r"load-(\d)", text)[1]) for text in classes))


def test_the_worst_step_is_shown_first(open_report: Open, conflicts: Path) -> None:
    page = open_report(conflicts)
    assert page.locator("h1").inner_text() == "81 conflicts of shift among 45 ranks"
    assert page.locator("#findings, #verdicts").count() == 0
    assert "node[00-44]" in page.locator(".tiles").inner_text()
    fabric = page.locator("#fabric")
    assert "81 conflicts, 0.04 a pair of ranks; 62 rounds, bound 45" in fabric.inner_text()
    expect(fabric.locator(".fabric .switch")).to_have_count(21)
    assert page.get_by_role("img", name="Conflicts of each of 45 steps; at worst step 27.").count() == 1
    expect(fabric.locator("table.pairs tbody tr")).to_have_count(9)
    line_counts = loads(page)
    assert line_counts[2] == 9 and sum(line_counts.values()) == 3 * 18


def test_many_shared_links_scroll_in_a_box_and_fit_a_narrow_screen(open_report: Open, tmp_path: Path) -> None:
    page = open_report(make_report(tmp_path, "--fat-tree", "radix=12,nodes=72", "--schedule", "random"))
    page.set_viewport_size({"width": 400, "height": 800})
    page.locator("#fabric table.pairs tbody tr").nth(20).wait_for()
    box = page.locator("#fabric .table-box", has=page.locator("table.pairs")).bounding_box()
    assert box is not None and box["height"] <= 562
    assert page.evaluate("document.documentElement.scrollWidth") == 400


def test_choosing_another_step_and_a_cable_shows_its_pairs(open_report: Open, conflicts: Path) -> None:
    page = open_report(conflicts)
    fabric = page.locator("#fabric")
    expect(fabric.locator(".fabric .load-2")).to_have_count(9)
    fabric.get_by_role("slider").fill("28")
    expect(fabric.locator(".fabric .load-2")).to_have_count(8)
    fabric.get_by_role("button", name="leaf1 and spine1: 2 flows on one link").press("Enter")
    expect(fabric.locator("table.pairs tbody tr").filter(has_text="leaf1[20] -> spine1[2]")).to_have_count(1)
    (row,) = fabric.locator("table.pairs tbody tr", has_text="leaf1[20] -> spine1[2]").all_inner_texts()
    assert "node20 → node37" in row and "node29 → node01" in row
    fabric.get_by_role("slider").fill("0")
    expect(fabric.get_by_text("No link carries two flows.")).to_be_visible()
    expect(fabric.locator(".fabric .load-0")).to_have_count(3 * 18)


def test_a_click_on_a_line_shows_its_pairs(open_report: Open, conflicts: Path) -> None:
    page = open_report(conflicts)
    fabric = page.locator("#fabric")
    line = fabric.get_by_role("button", name="leaf1 and spine0: 2 flows on one link")
    expect(line).to_have_attribute("aria-pressed", "false")
    point = line.evaluate(
        "l => { const p = new DOMPoint((+l.getAttribute('x1') + 3 * l.getAttribute('x2')) / 4,"
        " (+l.getAttribute('y1') + 3 * l.getAttribute('y2')) / 4).matrixTransform(l.getScreenCTM());"
        " scrollTo(0, scrollY + p.y - 300);"
        " const q = new DOMPoint((+l.getAttribute('x1') + 3 * l.getAttribute('x2')) / 4,"
        " (+l.getAttribute('y1') + 3 * l.getAttribute('y2')) / 4).matrixTransform(l.getScreenCTM());"
        " return [q.x, q.y]; }"
    )
    page.mouse.click(*point)
    expect(line).to_have_attribute("aria-pressed", "true")
    expect(fabric.locator("table.pairs")).to_contain_text("node18 → node36")


@pytest.mark.parametrize("schedule", ["xor", "circle", "random"])
def test_loads_in_the_page_equal_the_recorded_ones(open_report: Open, tmp_path: Path, schedule: str) -> None:
    """The page computes loads from the tables; the records were counted in Python."""
    page = open_report(make_report(tmp_path, "--fat-tree", "radix=36,nodes=45", "--schedule", schedule))
    measured = {
        (r.metric, r.params["step"]): r.median
        for r in Run.load(tmp_path / "run").records
        if isinstance(r, Measurement) and "step" in r.params
    }
    for step in (3, 20, 40):
        page.get_by_role("slider").fill(str(step))
        most = min(int(measured["max_load", step]), 4)
        expect(page.locator(f"#fabric .fabric line.load-{most}").first).to_be_attached()
        assert max(loads(page)) == most
        rows = page.locator("#fabric table.pairs tbody tr td:nth-child(2)").all_inner_texts()
        assert sum(int(row) - 1 for row in rows) == measured["conflicts", step]


@pytest.mark.acceptance("report")
def test_648_hosts_are_usable(open_report: Open, tmp_path: Path) -> None:
    """Every switch and every cable is there, also of a fabric with a dead cable, and a step is chosen."""
    page = open_report(make_report(tmp_path, "--fat-tree", "radix=36,nodes=640"))
    fabric = page.locator("#fabric")
    expect(fabric.locator(".fabric .switch")).to_have_count(36 + 18)
    fabric.get_by_role("slider").fill("100")
    expect(fabric.locator(".fabric .load-2").first).to_be_attached()
    step = {
        r.params["step"]: r.median
        for r in Run.load(tmp_path / "run").records
        if isinstance(r, Measurement) and r.metric == "conflicts" and "step" in r.params
    }
    assert sum(loads(page).values()) == 36 * 18
    expect(fabric.get_by_text(f"{step[100]:.0f} conflicts.")).to_be_visible()
    rows = fabric.locator("table.pairs tbody tr td:nth-child(2)").all_inner_texts()
    assert sum(int(row) - 1 for row in rows) == step[100]


@pytest.mark.acceptance("report")
def test_parts_of_a_fabric_with_10000_hosts_can_be_opened(open_report: Open, tmp_path: Path) -> None:
    """31 pods below 18 parts of spines. A file of three steps: all shifts take a minute."""
    steps = tmp_path / "steps"
    steps.write_text("\n".join(" ".join(str((i - k) % 10000) for i in range(10000)) for k in (1, 18, 5000)))
    page = open_report(
        make_report(tmp_path, "--fat-tree", "radix=36,nodes=10000", "--schedule-file", str(steps))
    )
    fabric = page.locator("#fabric")
    expect(fabric.locator(".fabric .switch.part")).to_have_count(31 + 18)
    assert sum(loads(page).values()) == 31 * 18
    fabric.get_by_role("slider").fill("2")
    fabric.get_by_role("button", name="Open leaf18 …").press("Enter")
    expect(fabric.locator(".fabric .switch:not(.part)")).to_have_count(18 + 18)
    assert sum(loads(page).values()) == 18 * 18 + 18  # a middle switch has all its cables up to one part
    assert loads(page).get(1, 0) > 0
    fabric.locator(".fabric line.load-1[aria-label^='leaf18 and']").first.dispatch_event("click")
    expect(fabric.locator("table.pairs tbody tr").first).to_contain_text("leaf18[")
    fabric.get_by_role("button", name="Whole fabric").click()
    expect(fabric.locator(".fabric .switch.part")).to_have_count(31 + 18)


def test_the_picture_data_are_not_shown_as_a_fact_of_a_host(open_report: Open, conflicts: Path) -> None:
    page = open_report(conflicts)
    assert "fabric.picture" not in page.inner_text("body")


def test_names_of_a_hostile_fabric_are_text(open_report: Open, tmp_path: Path) -> None:
    """Any adapter sends its own description; a script in it must not run in the report."""
    six = Path(__file__).parents[1] / "fixtures" / "fabric" / "six"
    topology = tmp_path / "net.txt"
    hostile = "</script><img/src=x/onerror=alert(1)>"
    text = (six / "topology.txt").read_text().replace('"leaf0"', f'"{hostile}"')
    topology.write_text(re.sub(r'"node4\b[^"]*"', f'"{hostile}"', text))
    run = tmp_path / "run"
    arguments = ["--fabric", str(topology), "--tables", str(six / "fts.txt"), "--schedule", "random"]
    assert main(["fabric", "conflicts", *arguments, "-o", str(run)]) == 0
    page = open_report(run / "report.html")
    expect(page.locator("#fabric .switch")).to_have_count(5)
    assert page.locator("img").count() == 0
    assert hostile[:10] in page.locator("#fabric").inner_html().replace("&lt;", "<").replace("&gt;", ">")
