"""Workload files: what COBALT's comes to, and one line for every mistake in one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.measure.workload import load_workload

OWN = """
title = "own"
stations = 2
[transpose]
chunk = "4 kB"
[[step]]
operation = "transpose"
block = "64 kB"
rate = "8 Mbit/s"
"""


def test_cobalt_moves_621_gbits() -> None:
    """As its document says of the ten steps; a copy and a transposition read and write."""
    workload = json.loads(load_workload("cobalt2"))
    assert (workload["stations"], len(workload["steps"])) == (18, 10)
    moved = sum(
        step["rate"] * (2 if step["operation"] in ("copy", "transpose") else 1) for step in workload["steps"]
    )
    assert moved * workload["stations"] * 8 == pytest.approx(621e9)


def test_what_the_engine_gets(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    assert json.loads(load_workload(str(tmp_path / "own.toml"))) == {
        "name": "own",
        "stations": 2,
        "steps": [{"operation": "transpose", "block": 64000, "rate": 1e6}],
        "chunk": 4000,
        "multiplier": 1,
    }


@pytest.mark.parametrize(
    ("was", "becomes", "line", "says"),
    [
        ("stations = 2", "stations = 0", 3, "'stations'"),
        ("stations = 2", "stations = true", 3, "'stations'"),
        ("stations = 2", "station = 2", 3, "station"),
        ('"transpose"', '"swap"', 7, "'swap'"),
        ('"64 kB"', "64000", 8, "'block'"),
        ('"64 kB"', '"64 kx"', 8, "64 kx"),
        ('"64 kB"', '"0 kB"', 8, "above zero"),
        ('"64 kB"', '"1e308 GB"', 8, "too large"),
        ('"8 Mbit/s"', '"8 Mbit"', 9, "B/s"),
        ('[transpose]\nchunk = "4 kB"\n', "", 5, "without chunks"),
        ("[[step]]", "[[steps]]", 6, "steps"),
    ],
)
def test_mistakes_are_refused_with_their_line(
    was: str, becomes: str, line: int, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN.replace(was, becomes))
    with pytest.raises(UserError) as refused:
        load_workload(str(path))
    assert says in str(refused.value)
    assert f"own.toml:{line}" in str(refused.value)


def test_there_is_none_of_that_name() -> None:
    with pytest.raises(UserError, match="no-such"):
        load_workload("no-such")
