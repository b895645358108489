"""The views of a NUMA profile in Chromium, with recordings of a real program on emulated nodes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from assay.launch.engines import engines_folder

Open = Callable[..., Page]
ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests/fixtures/numa/placed.c"
LIMIT_S = 300
COUNT, REPEATS = 1 << 20, 10  # of placed.c: elements, and how often each is read and written

pytestmark = [
    pytest.mark.skipif(not (engines_folder() / "assay-numa").is_file(), reason="the engines are not built"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler for the planted programs"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has one node"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from a kind of recording to its report: "touch" (first touches), "exact" (counted accesses) or
    "applied" (with the advice of "exact")."""
    folder = tmp_path_factory.mktemp("numa")
    build = ["-g", "-O1", "-pthread", SOURCE, "-o"]
    subprocess.run(["gcc", *build, folder / "placed"], check=True, timeout=LIMIT_S)
    compiled = [ROOT / "assay", "numa", "cc", *build, folder / "counted"]
    subprocess.run(compiled, check=True, timeout=LIMIT_S, env={**os.environ, "CC": "gcc"})
    programs = {"touch": "placed", "exact": "counted", "applied": "counted"}

    def report_of(kind: str) -> Path:
        report = folder / kind / "report.html"
        if not report.exists():
            more = ["--apply", report_of("exact").parent] if kind == "applied" else []
            program = [folder / programs[kind], "serial", "2"]
            command = [ROOT / "assay", "numa", "--emulate", "2", *more, "-o", folder / kind, "--", *program]
            done = subprocess.run(command, capture_output=True, timeout=LIMIT_S)
            assert done.returncode == 7, done.stderr.decode()
        return report

    return report_of


def show(page: Page, view: str) -> str:
    page.get_by_role("tab", name=view, exact=True).click()
    return page.get_by_role("tabpanel").inner_text()


def choose(page: Page, label: str, option: str) -> None:
    page.locator(f"#numa label.choice:has(span:text-is('{label}')) select").select_option(label=option)


def table(page: Page, name: str) -> list[list[str]]:
    """The cells of a table's rows, below its headings."""
    shown = page.get_by_role("table", name=re.compile(f"^{name}"))
    rows = shown.get_by_role("row").all()[1:]
    return [[cell.strip() for cell in row.inner_text().split("\t")] for row in rows]


VIEWS = [
    "Summary", "Advice (1)", "Access matrix", "Allocation sites", "First touch", "Threads", "Functions", "Source",
    "Call tree", "Flame graph", "Stacks", "Over time", "Findings (1)", "Run",
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [("touch", "light"), pytest.param("exact", "dark", marks=pytest.mark.acceptance("report"))],
)
def test_every_view_opens(open_report: Open, recorded: Callable[[str], Path], kind: str, scheme: str) -> None:
    page = open_report(recorded(kind), color_scheme=scheme)
    assert page.get_by_role("tab").all_inner_texts() == VIEWS
    for view in VIEWS:
        assert show(page, view).strip(), view


def test_the_headline_and_the_tabs_come_first(open_report: Open, recorded: Callable[[str], Path]) -> None:
    page = open_report(recorded("exact"))
    headline = page.locator(".headline").inner_text()
    # Half of the array's uses and half of the accesses to the variable that points to it.
    assert "Remote accesses\n48.4 %" in headline and "allocate placed.c:" in headline
    assert "2 emulated" in headline
    tabs, window = page.get_by_role("tablist").bounding_box(), page.viewport_size
    assert tabs and window and tabs["y"] + tabs["height"] < window["height"] / 4
    page.locator(".headline").get_by_role("button").click()
    assert page.get_by_role("tab", name="Source", exact=True).get_attribute("aria-selected") == "true"


def test_a_profile_of_first_touches_claims_no_accesses(
    open_report: Open, recorded: Callable[[str], Path]
) -> None:
    page = open_report(recorded("touch"))
    headline = page.locator(".headline").inner_text()
    assert "Remote first touches" in headline and "later accesses were not counted" in headline
    text = show(page, "Run")
    assert page.locator(".banner").inner_text() == "NUMA profile"
    assert "Accesses: loads and stores were not counted" in text
    assert "Time line of the remote share:" not in text
    show(page, "Over time")
    assert page.get_by_role("img", name="Share of remote first touches over time").is_visible()
    rows = table_of_touches(page)
    array = [row for row in rows if row[0] == "8 MiB"]
    assert array and array[0][1].startswith("allocate") and array[0][2].startswith("initialise placed.c:")
    assert array[0][4] == "default"


def table_of_touches(page: Page) -> list[list[str]]:
    show(page, "First touch")
    return table(page, "First touches by object, line and thread")


def test_access_matrices_of_the_process_an_object_and_a_thread(
    open_report: Open, recorded: Callable[[str], Path]
) -> None:
    page = open_report(recorded("exact"))
    show(page, "Access matrix")
    whole = counts(page)
    # Half of the array's uses, a read and a write, and half of the reads of its pointer, wherever that lies.
    assert whole[0][1] + whole[1][0] == pytest.approx(1.5 * COUNT * REPEATS, rel=0.001)
    option = page.locator("#numa select option", has_text="allocate").first.inner_text()
    choose(page, "Thread or object", option)
    array = counts(page)
    # It lies on node 0.
    assert array[1] == [pytest.approx(COUNT * REPEATS, rel=0.001), 0] and array[0][1] == 0
    assert array[0][0] == pytest.approx(COUNT * (REPEATS + 1), rel=0.001)
    choose(page, "Thread or object", page.locator("#numa select option", has_text="thread 0").inner_text())
    assert counts(page)[0][0] == pytest.approx(COUNT, rel=0.001)


def counts(page: Page) -> list[list[int]]:
    rows = table(page, ".*: nodes of threads by nodes of pages")
    return [[int(cell.split()[0].replace(",", "")) for cell in row[1:]] for row in rows]


def test_threads_with_their_binding_log(open_report: Open, recorded: Callable[[str], Path]) -> None:
    page = open_report(recorded("exact"))
    show(page, "Threads")
    rows = table(page, "Threads$")
    assert len(rows) == 5 and sum("processor 1" in row[-1] for row in rows) == 2
    bound = next(row[0] for row in rows if row[-1] == "processor 1")
    choose(page, "Thread", bound)
    log = table(page, "Binding log of thread")
    assert log[-1][1:3] == ["1", "default"]


def test_a_line_of_source_with_its_accesses(open_report: Open, recorded: Callable[[str], Path]) -> None:
    page = open_report(recorded("exact"))
    show(page, "Source")
    choose(page, "Metric", "accesses")
    line = page.locator(".line", has_text="values[i] += 1").first
    figure = int(line.locator(".figure").inner_text().replace(",", ""))
    # An element is read and written, and the pointer is read.
    assert figure == pytest.approx(3 * COUNT * REPEATS, rel=0.001)
    line.click()
    figures = {row[0]: row[1] for row in table(page, ".*all figures")}
    assert int(figures["stores"].replace(",", "")) == pytest.approx(COUNT * REPEATS, rel=0.001)
    choose(page, "Metric", "remote accesses to blocks allocated here")
    allocating = page.locator(".line", has_text="return malloc(bytes)").first
    remote = int(allocating.locator(".figure").inner_text().replace(",", ""))
    assert remote == pytest.approx(COUNT * REPEATS, rel=0.001)


def test_the_flame_graph_shows_remote_accesses(open_report: Open, recorded: Callable[[str], Path]) -> None:
    page = open_report(recorded("exact"))
    show(page, "Flame graph")
    boxes = page.locator(".flame > div")
    title = str(boxes.filter(has_text="work").first.get_attribute("title"))
    assert "of all" in title and page.get_by_role("img", name="remote accesses").count() == 1
    show(page, "Call tree")
    assert any("work" in row for row in page.get_by_role("treeitem").all_inner_texts())


def test_accesses_of_each_node_to_each_part_of_an_object(
    open_report: Open, recorded: Callable[[str], Path]
) -> None:
    page = open_report(recorded("exact"))
    show(page, "Allocation sites")
    cells = page.get_by_role("table", name="Parts of allocate").get_by_role("row").nth(1).get_by_role("cell")
    titles = [str(cell.get_attribute("title")) for cell in cells.all()]
    # Threads 1 and 3 of four run on node 1; the main thread's one touch of 21 comes from node 0.
    assert [": 95.2 % of" in title for title in titles] == ([False] * 4 + [True] * 4) * 2


def test_advice_and_its_measured_effect(open_report: Open, recorded: Callable[[str], Path]) -> None:
    page = open_report(recorded("exact"))
    text = show(page, "Advice (1)")
    assert "touch it first in parallel" in text and "47.6 %" in text and "2.4 %" in text
    page = open_report(recorded("applied"))
    views = page.get_by_role("tab").all_inner_texts()
    assert "Advice (0)" in views
    show(page, "Advice (0)")
    [row] = table(page, "Applied to this run: predicted and measured")
    assert row[1:4] == ["spread", "47.6 %", "2.4 %"]
    assert float(row[4].removesuffix(" %")) == pytest.approx(2.4, abs=2)


def test_memory_by_node_over_time(open_report: Open, recorded: Callable[[str], Path]) -> None:
    page = open_report(recorded("touch"))
    text = show(page, "Over time")
    assert "Memory by node" in text and "emulated" in text
    assert page.get_by_role("img", name="Resident memory of each node").count() == 1


def test_emulated_nodes_are_marked(open_report: Open, recorded: Callable[[str], Path]) -> None:
    page = open_report(recorded("touch"))
    for view in VIEWS:
        show(page, view)
        assert "nodes are emulated" in page.locator(".notice").first.inner_text()
        assert "2 emulated" in page.locator(".headline").inner_text()
    assert "(emulated nodes)" in show(page, "Findings (1)")


def test_a_missing_source_is_named_with_its_reason(open_report: Open, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    source = tmp_path / "src/gone.c"
    source.write_text(SOURCE.read_text())
    build = ["gcc", "-g", "-O1", "-pthread", "src/gone.c", "-o", "gone"]
    subprocess.run(build, cwd=tmp_path, check=True, timeout=LIMIT_S)
    source.unlink()
    record = [
        ROOT / "assay",
        "numa",
        "--emulate",
        "2",
        "-o",
        tmp_path / "run",
        "--",
        tmp_path / "gone",
        "serial",
        "2",
    ]
    done = subprocess.run(record, capture_output=True, text=True, timeout=LIMIT_S)
    assert f"not in the report: {source} (no such file on this machine)" in done.stderr
    page = open_report(tmp_path / "run/report.html")
    page.get_by_role("tab", name="Source", exact=True).click()
    choose(page, "File", "gone.c (not kept)")
    notice = page.get_by_role("tabpanel").locator(".notice").inner_text()
    assert f"{source} is not in this report: no such file on this machine; fix: put it back" in notice
