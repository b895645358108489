"""The HTML report holds the whole run and is written atomically; bad input is an error of one line."""

from __future__ import annotations

import base64
import gzip
import json
import math
from pathlib import Path

import make_run
import pytest

from assay.cli import main
from assay.errors import UserError
from assay.records.schema import Measurement, Pairs, Subject
from assay.report import html

PAGE = b'<script id="assay-data">@ASSAY_DATA@</script>'


@pytest.fixture(autouse=True)
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page small enough to read, in the place of the installed one."""
    path = tmp_path / "template" / "report.html"
    path.parent.mkdir()
    path.write_bytes(PAGE)
    monkeypatch.setattr(html, "_PACKAGED", path)
    monkeypatch.setattr(html, "_CHECKOUT", tmp_path / "no checkout" / "report.html")
    return path


def embedded(report: Path) -> list[dict]:
    before, after = PAGE.split(html.MARKER)
    page = report.read_bytes()
    assert page.startswith(before) and page.endswith(after)
    text = gzip.decompress(base64.b64decode(page[len(before) : -len(after)], validate=True))
    return [json.loads(line) for line in text.splitlines()]


def test_the_whole_run_is_embedded_run_first(tmp_path: Path) -> None:
    info, records = make_run.slow_transmit()
    run = make_run.write_run(tmp_path / "run", info, records)
    first, *rest = embedded(html.build_report(run))
    assert (first["id"], first["outcome"]) == (info.id, "FAIL")
    assert [line["id"] for line in rest] == [record.id for record in records]


def test_only_pair_values_are_rounded(tmp_path: Path) -> None:
    info, _ = make_run.partial()
    value = math.pi * 1e9
    sample = Measurement(id=1, name="node.memory", metric="bandwidth", unit="B/s", samples=[value])
    row = Pairs(
        id=2, name="x", metric="y", unit="B/s", subject=Subject(host="a"), peers=["b"], values=[value]
    )
    _, measurement, rounded = embedded(
        html.build_report(make_run.write_run(tmp_path / "run", info, [sample, row]))
    )
    assert measurement["samples"] == [value]
    assert rounded["values"] == [3.1416e9]


def test_matrices_beyond_the_limit_leave_their_heads_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run.make("slow-transmit", tmp_path / "run")
    monkeypatch.setattr(html, "PAIR_VALUES", 4 * 56)  # room for 4 of the 9: the 3 of 1 MiB, one of 64 KiB
    rows = [line for line in embedded(html.build_report(run)) if line.get("kind") == "pairs"]
    whole = [row["params"]["size"] for row in rows if "values" in row]
    assert len(rows) == 9 * 8
    assert sorted(whole, reverse=True) == [1048576] * 3 * 8 + [65536] * 8


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    run = make_run.make("partial", tmp_path / "run")
    whole = len(embedded(html.build_report(run)))
    with open(run / "records.jsonl", "ab") as lines:
        lines.write(b'{"kind":"measurement","name":"netw')
    assert len(embedded(html.build_report(run))) == whole


def test_the_same_run_gives_the_same_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    run = make_run.make("partial", tmp_path / "run")
    first = html.build_report(run).read_bytes()
    assert html.build_report(run).read_bytes() == first
    assert sorted(path.name for path in run.iterdir()) == ["records.jsonl", "report.html", "run.json"]


def test_the_report_is_of_the_newest_run_or_of_the_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run.make("partial", Path("runs/one"))
    assert main(["report"]) == 0
    assert capsys.readouterr().out == "runs/one/report.html\n"
    assert main(["report", "runs/one", "--html", "other.html"]) == 0
    assert Path("other.html").read_bytes() == Path("runs/one/report.html").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["report"], "no runs in runs/"),
        (["report", "nowhere"], "nowhere is not a run directory"),
        (["report", "run", "--html", "absent/report.html"], "cannot write absent/report.html"),
        (["report", "run", "--html", "run"], "cannot write run"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run.make("partial", Path("run"))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"assay: {expected}") and error.count("\n") == 1
    assert not list(tmp_path.rglob("*.part"))


def test_a_page_that_is_not_built_says_how_to_build_it(tmp_path: Path, template: Path) -> None:
    run = make_run.make("partial", tmp_path / "run")
    template.write_bytes(b"<html>no marker</html>")
    with pytest.raises(UserError, match=r"not a report template.*make setup"):
        html.build_report(run)
    template.unlink()
    with pytest.raises(UserError, match=r"not built.*make setup"):
        html.build_report(run)
