"""Storage in the report: curves over transfer sizes and nodes, bars of one size, phases, raw against observed, a device
as a map."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import make_storage
from playwright.sync_api import Locator, Page

from assay.records.run import Run
from assay.records.schema import Measurement
from assay.report.html import build_report

Open = Callable[..., Page]


BLANK = """(canvas) => {
  const other = document.createElement("canvas");
  other.width = canvas.width;
  other.height = canvas.height;
  return canvas.toDataURL() === other.toDataURL();
}"""


def canvas_image(figure: Locator) -> str:
    """The image on the canvas of a chart, as a data URL. Fails for a blank canvas."""
    canvas = figure.locator("canvas").first
    assert not canvas.evaluate(BLANK)
    return str(canvas.evaluate("(canvas) => canvas.toDataURL()"))


def expect_tooltip(page: Page, figure: Locator, x: float) -> None:
    """Moves the mouse over the chart. The tooltip is part of the canvas, so a test can only see that the image
    changes, with the next frame."""
    before = canvas_image(figure)
    box = figure.locator("canvas").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + x * box["width"], box["y"] + box["height"] / 2)
    canvas = figure.locator("canvas").first.element_handle()
    page.wait_for_function("([canvas, was]) => canvas.toDataURL() !== was", arg=[canvas, before])


def test_bandwidth_over_transfer_sizes_and_nodes(open_report: Open) -> None:
    page = open_report("storage")
    section = page.locator("#storage-ior")
    titles = section.locator("figcaption").all_inner_texts()
    assert titles == ["Write", "Local read: one's own data", "Remote read: another node's data"]
    label = section.get_by_role("img").first.get_attribute("aria-label")
    assert label and "over transfer size for stock, accelerated" in label
    figure = section.locator("figure").first
    four_nodes = canvas_image(figure)
    section.get_by_role("combobox", name="Nodes").select_option("1")
    assert canvas_image(figure) != four_nodes
    section.get_by_role("combobox", name="Over").select_option("nodes")
    section.get_by_role("combobox", name="Transfer size").wait_for()
    over_nodes = section.get_by_role("img").first.get_attribute("aria-label")
    assert over_nodes and "over nodes for stock, accelerated" in over_nodes
    before = canvas_image(figure)
    section.get_by_role("combobox", name="Scale").select_option("log")
    assert canvas_image(figure) != before
    expect_tooltip(page, figure, 0.6)


def test_phases_are_stacked_and_rates_side_by_side(open_report: Open) -> None:
    page = open_report("storage")
    phases = page.locator("#storage-solver figure")
    label = phases.get_by_role("img").get_attribute("aria-label")
    assert (
        label
        and "compute, communication and write for stock, Open MPI 4.1.4, 4 nodes, view; accelerated" in label
    )
    canvas_image(phases)
    rates = page.locator("#storage-hdf5 figure")
    label = rates.get_by_role("img").get_attribute("aria-label")
    assert label and label.count("CONTIG, CONTIG") == 4
    canvas_image(rates)


def test_the_map_of_a_device_reads_the_planted_rate(open_report: Open) -> None:
    page = open_report("storage")
    section = page.locator("#storage-device")
    canvas_image(section.locator("figure").first)
    canvas = section.locator(".heatmap canvas")
    canvas.scroll_into_view_if_needed()
    canvas.focus()
    canvas.press("ArrowRight")  # the first key points at the first cell
    tip = section.locator(".heatmap-tip").inner_text()
    assert tip.startswith("1 thread → 4 KiB")
    planted = 4096 / (1e-6 + 4096 / 5e9)
    assert f"{planted / 1e9:.3g} GB/s" in tip
    read = (
        section.get_by_role("combobox", name="Measurement").locator("option", has_text="read, random").first
    )
    section.get_by_role("combobox", name="Measurement").select_option(read.get_attribute("value"))
    canvas.focus()
    canvas.press("ArrowLeft")
    assert f"{2 * planted / 1e9:.3g} GB/s" in section.locator(".heatmap-tip").inner_text()


def test_storage_is_not_shown_twice(open_report: Open) -> None:
    """Storage figures are not shown as bars of hosts; the table of all measurements has them."""
    page = open_report("storage")
    assert page.locator("#figures").count() == 0
    assert page.locator("#sweep").count() == 0
    count = len(make_storage.storage()[1])
    table = page.get_by_role("table", name="Measurements of hosts and pairs")
    assert table.get_attribute("aria-rowcount") == str(count + 1)


def test_one_transfer_size_is_bars_and_the_first_screen_has_rates_and_durability(
    open_report: Open, tmp_path: Path
) -> None:
    run = Run.create("io-ior", ["assay", "io", "bench", "ior"], path=tmp_path / "run")
    for record in make_storage.ior():
        assert isinstance(record, Measurement)
        if (record.params["transfer"], record.params["nodes"]) == (1 << 20, 4):
            run.append(record)
    run.finish("complete")
    page = open_report(build_report(run.path))
    tiles = page.locator(".tiles").inner_text()
    assert "Write\n47.6 GB/s" in tiles and "Read\n93.2 GB/s" in tiles
    assert "Durable when timed\nyes\nlevel file" in tiles
    assert page.locator("#storage-ior canvas").count() == 0
    bars = page.get_by_role("table", name="Write, at transfer size 1 MiB").locator(".bars-row")
    assert bars.all_inner_texts() == ["stock\n7.94 GB/s", "accelerated\n47.6 GB/s"]
