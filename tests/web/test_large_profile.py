"""A call tree of 1.2 million calls in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import make_heap
import pytest
from playwright.sync_api import Page

from assay.report.html import build_report

NODES = 1_200_000


@pytest.mark.acceptance("report")
def test_a_tree_of_more_than_a_million_calls_is_shown(
    open_report: Callable[..., Page], tmp_path: Path
) -> None:
    """All of it: nothing is left out, and the planted stack is open in the tree with its share."""
    run = make_heap.make_run(tmp_path / "run", NODES)
    page = open_report(build_report(run.path))
    assert page.locator(".notice").count() == 0
    page.get_by_role("tab", name="Call tree", exact=True).click()
    planted = page.get_by_role("treeitem").filter(has_text=make_heap.PLANTED).inner_text()
    assert "50 %" in planted
    page.get_by_role("tab", name="Flame graph", exact=True).click()
    box = page.locator(".flame > div").filter(has_text=make_heap.PLANTED).bounding_box()
    frame = page.locator(".flame").bounding_box()
    assert box and frame and 0.49 < box["width"] / frame["width"] < 0.51
    page.get_by_role("tab", name="Stacks", exact=True).click()
    assert make_heap.PLANTED in page.locator(".stacks summary").first.inner_text()
