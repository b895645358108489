"""The report in Chromium: verdict, findings, tables, curves, and the pair matrix under mouse and keyboard."""

# ruff: noqa: RUF001 - the page shows U+2212 (minus sign), so the expected texts contain it
from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page

Open = Callable[..., Page]


def count_colours(canvas: Locator) -> int:
    """The number of different colours in a canvas; a blank canvas has one."""
    return canvas.evaluate(
        """(canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size;
        }"""
    )


def hover_cell(page: Page, row: int, column: int, rows: int, columns: int) -> str:
    """Moves the mouse to the middle of a cell and returns the text of the tooltip.

    The cells fill the canvas from their origin to its lower right corner, less 2 pixels.
    """
    canvas = page.locator(".heatmap canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    left, top = plot_origin(page)
    page.mouse.move(
        box["x"] + left + (column + 0.5) * (box["width"] - 2 - left) / columns,
        box["y"] + top + (row + 0.5) * (box["height"] - 2 - top) / rows,
    )
    return page.locator(".heatmap-tip").inner_text()


def plot_origin(page: Page) -> tuple[float, float]:
    """The upper left corner of the cells, read from the outline of the first one."""
    canvas = page.locator(".heatmap canvas")
    canvas.focus()
    canvas.press("Escape")  # zooms out and selects no cell
    canvas.press("ArrowRight")  # selects the first cell
    left, top = page.locator(".heatmap-outline").evaluate("(e) => [e.style.left, e.style.top]")
    return float(left.removesuffix("px")), float(top.removesuffix("px"))


def table(page: Page, caption: str) -> Locator:
    return page.get_by_role("table", name=caption)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_verdict_and_culprit_come_first(open_report: Open, scheme: str) -> None:
    page = open_report("slow-transmit", color_scheme=scheme)
    assert page.locator("h1").inner_text().split() == ["✕", "FAIL"]
    assert (
        page.locator(".banner p").first.inner_text()
        == "1 of 4 criteria failed: slowest pair at 1 MiB >= 80 % of the median pair."
    )
    assert (
        page.locator(".banner .result").inner_text().startswith("Aggregate bandwidth 97.1 GB/s at 4 MiB send")
    )
    assert page.title().startswith("FAIL · ")
    finding = page.locator("#findings article")
    assert finding.count() == 1
    text = finding.inner_text()
    assert "transmit side" in text and "−49 %" in text and "98 %" in text and "Fix:" in text
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, background.removeprefix("rgb(").removesuffix(")").split(",")))
    assert (brightness > 384) == (scheme == "light")


def test_verdicts_show_observed_required_and_margin(open_report: Open) -> None:
    rows = table(open_report("slow-transmit"), "Criteria and verdicts").locator("[data-row]")
    assert rows.count() == 4
    assert rows.first.locator("td").all_inner_texts() == [
        "✕ FAIL",
        "slowest pair at 1 MiB >= 80 % of the median pair",
        "h3 → h5",
        "6.02 GB/s",
        "9.53 GB/s",
        "−37 %",
    ]


def test_evidence_cites_the_records(open_report: Open) -> None:
    page = open_report("slow-transmit")
    page.get_by_text("Evidence: 9 records").click()
    assert "from h3 to 7 peers" in page.locator(".evidence li").first.inner_text()


def test_a_long_sweep_scrolls_and_sorts(open_report: Open) -> None:
    page = open_report("slow-transmit")
    sweep = table(page, "The sweep, one row per message size and operation")
    assert sweep.get_attribute("aria-rowcount") == str(3 * 23 + 1)
    assert sweep.locator("[data-row]").count() < 69  # the rows in view and a few beyond
    first = sweep.locator("[data-row] td").first
    assert first.inner_text() == "1 B"
    size = sweep.get_by_role("columnheader", name="Size")
    size.get_by_role("button").click()
    size.get_by_role("button").click()
    assert size.get_attribute("aria-sort") == "descending"
    assert first.inner_text() == "4 MiB"
    page.locator("#sweep .table-box").evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    sweep.get_by_text("1 B", exact=True).last.wait_for()


def test_curves_are_drawn_and_change_with_the_chosen_metric(open_report: Open) -> None:
    page = open_report("slow-transmit")
    canvases = page.locator(".chart canvas")
    assert canvases.count() == 2
    assert count_colours(canvases.nth(0)) > 20 and count_colours(canvases.nth(1)) > 20
    before = canvases.nth(0).evaluate("(canvas) => canvas.toDataURL()")
    page.get_by_role("combobox", name="Bandwidth").select_option("client_bandwidth")
    page.get_by_text("Bandwidth per client", exact=True).wait_for()
    assert canvases.nth(0).evaluate("(canvas) => canvas.toDataURL()") != before


def test_hover_shows_the_pair_at_the_chosen_size(open_report: Open) -> None:
    page = open_report("slow-transmit")
    slow = hover_cell(page, 3, 5, 8, 8)
    assert slow.startswith("h3 → h5") and "6.0" in slow and "GB/s" in slow and "▼ −49 %" in slow
    healthy = hover_cell(page, 5, 3, 8, 8)
    assert healthy.startswith("h5 → h3") and "▼" not in healthy
    assert "not measured" in hover_cell(page, 2, 2, 8, 8)
    page.locator("#pairs").get_by_label("Size").select_option("8")
    small = hover_cell(page, 3, 5, 8, 8)
    assert small.startswith("h3 → h5") and "MB/s" in small


def test_arrow_keys_move_through_the_matrix(open_report: Open) -> None:
    page = open_report("slow-transmit")
    canvas = page.locator(".heatmap canvas")
    canvas.focus()
    for key in ["ArrowRight", "ArrowRight", "ArrowDown"]:
        canvas.press(key)
    page.locator(".heatmap-tip", has_text="h1 → h1").wait_for()
    assert count_colours(canvas) > 20


def test_suspects_are_listed_with_both_directions(open_report: Open) -> None:
    suspects = table(open_report("slow-transmit"), "Suspects").locator("tbody tr")
    assert suspects.count() == 1
    assert suspects.inner_text().split() == [
        "▶",
        "h3",
        "6.02",
        "GB/s",
        "−49",
        "%",
        "11.9",
        "GB/s",
        "−0.2",
        "%",
    ]


def test_client_server_is_a_rectangle_and_passes(open_report: Open) -> None:
    page = open_report("client-server")
    assert page.locator("h1").inner_text().split() == ["✓", "PASS"]
    assert "No cause of trouble was found." in page.locator("#findings").inner_text()
    assert hover_cell(page, 5, 3, 6, 4).startswith("client6 → server2:2")


def test_a_partial_run_is_labelled_partial(open_report: Open) -> None:
    page = open_report("partial")
    assert page.locator("h1").inner_text().split() == ["?", "INCONCLUSIVE"]
    assert (
        "This run is partial. rank 5 on h5 died after 9 of 23 sizes" in page.locator(".notice").inner_text()
    )
    assert "rank 5 on h5 died (signal 9)" in page.locator("#failures").inner_text()
    assert "before the run ended early" in page.locator("#findings").inner_text()
    assert "h2 → h6" in page.locator("#corruption").inner_text()
    assert table(page, "The sweep, one row per message size and operation").locator("[data-row]").count() == 9
    assert page.get_by_role("columnheader", name="Corrupted").count() == 1


def test_the_host_that_differs_is_marked(open_report: Open) -> None:
    page = open_report("slow-transmit")
    assert page.locator("#hosts").get_by_text("all 8", exact=True).count() == 8
    assert page.locator("#hosts .odd").all_inner_texts() == ["≠ h6"]
    assert page.locator("#hosts").get_by_text("8 different values").count() == 1


def bars(page: Page, title: str) -> Locator:
    return page.locator(".bars-plot").and_(page.get_by_role("table", name=title))


def test_devices_are_compared_with_their_limit(open_report: Open) -> None:
    ports = bars(open_report("compliance"), "node.rdma bandwidth, offered, write, 64 KiB")
    rows = ports.get_by_role("row")
    assert [row.split("\n")[0] for row in rows.all_inner_texts()] == ["mlx4_0:1", "slow mlx4_1:1"]
    sound, slow, limit = (
        box["x"] + box["width"]
        for locator in (ports.locator(".bars-bar").nth(0), ports.locator(".bars-bar").nth(1),
                        ports.locator(".bars-limit").first)
        if (box := locator.bounding_box())
    )  # fmt: skip
    assert slow < limit < sound + 4
    colours = ports.locator(".bars-bar").evaluate_all(
        "bars => bars.map((bar) => getComputedStyle(bar).backgroundColor)"
    )
    assert colours[0] != colours[1]
    assert "required: at least 6.25 GB/s" in ports.locator("xpath=..").inner_text()


def test_the_numa_matrix_marks_slow_remote_memory(open_report: Open) -> None:
    page = open_report("compliance")
    page.locator("#figures").get_by_role("combobox").first.select_option(index=1)
    local, remote = hover_cell(page, 0, 0, 2, 2), hover_cell(page, 1, 0, 2, 2)
    assert (local.startswith("cores 0 → memory 0") and "70." in local) or "69." in local
    assert remote.startswith("cores 1 → memory 0") and "▼" in remote


def test_lateness_is_shown_as_a_distribution_over_all_blocks(open_report: Open) -> None:
    rows = bars(open_report("compliance"), "Distribution of node.memory_paced lateness").get_by_role("row")
    texts = [" ".join(text.split()) for text in rows.all_inner_texts()]
    assert texts == [
        "under 10 µs 990 99.0 %",
        "10 µs – 100 µs 7 0.70 %",
        "100 µs – 1 ms 3 0.30 %",
    ]


def test_allocators_are_curves_over_the_size_of_a_block(open_report: Open) -> None:
    page = open_report("allocators")
    section = page.locator("#allocators")
    titles = section.locator("figcaption").all_inner_texts()
    assert titles == [
        "malloc, the clock around it alone",
        "malloc and one store a page, one clock around both",
        "First touch",
        "Touch again",
        "free",
        "Page faults at first touch",
        "Resident after free, 10 cycles on, at block size 1 MiB",
    ]
    charts = section.locator(".chart")
    for k in range(6):
        assert count_colours(charts.nth(k).locator("canvas")) > 20
    faults = charts.nth(5)
    label = faults.get_attribute("aria-label") or ""
    assert "maps, slow" in label and "keeps" not in label  # "keeps" has no page faults after the first cycle
    section.get_by_label("Blocks").select_option("first")
    section.locator('[aria-label^="Page faults"][aria-label*="keeps, maps, slow"]').wait_for()
    before = charts.nth(2).locator("canvas").evaluate("(canvas) => canvas.toDataURL()")
    section.get_by_label("Threads").select_option("2")
    page.wait_for_function(
        "(was) => document.querySelectorAll('#allocators .chart canvas')[2].toDataURL() !== was", arg=before
    )
    finding = page.locator("#findings article.advice")
    assert "Advice" in finding.inner_text() and "no clear winner" in finding.inner_text()


@pytest.mark.acceptance("report")
def test_512_hosts_are_shown_and_a_drag_zooms_in(open_report: Open) -> None:
    page = open_report("512")
    assert "261,632 pairs measured" in page.locator("#pairs").inner_text()
    assert hover_cell(page, 5, 170, 512, 512).startswith("node0005 → node0170")
    left, top = plot_origin(page)
    box = page.locator(".heatmap canvas").bounding_box()
    assert box
    page.mouse.move(box["x"] + left + 1, box["y"] + top + 1)
    page.mouse.down()
    page.mouse.move(box["x"] + left + 40, box["y"] + top + 40)
    page.mouse.up()
    show_all_button = page.get_by_role("button", name="Show all 512 × 512")
    show_all_button.click()
    show_all_button.wait_for(state="detached")


def test_printing_shows_every_row_in_light(open_report: Open) -> None:
    page = open_report("slow-transmit", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    sweep = table(page, "The sweep, one row per message size and operation")
    sweep.locator("[data-row]").nth(68).wait_for()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
