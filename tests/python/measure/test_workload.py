"""Workload files: the total of the built-in cobalt2, reading a user's file, and one line for every mistake in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.measure.workload import load_workload

USER_WORKLOAD = """
title = "own"
stations = 2
[transpose]
chunk = "4 kB"
[[step]]
operation = "transpose"
block = "64 kB"
rate = "8 Mbit/s"
"""


def test_cobalt2_moves_621_gbit_per_second() -> None:
    """The total of its ten steps is that of the acceptance document. Copies and transpositions both read and write."""
    workload = json.loads(load_workload("cobalt2"))
    assert (workload["stations"], len(workload["steps"])) == (18, 10)
    moved = sum(
        step["rate"] * (2 if step["operation"] in ("copy", "transpose") else 1) for step in workload["steps"]
    )
    assert moved * workload["stations"] * 8 == pytest.approx(621e9)


def test_a_workload_is_passed_to_the_engine_as_json(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(USER_WORKLOAD)
    assert json.loads(load_workload(str(tmp_path / "own.toml"))) == {
        "name": "own",
        "stations": 2,
        "steps": [{"operation": "transpose", "block": 64000, "rate": 1e6}],
        "chunk": 4000,
        "multiplier": 1,
    }


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
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
    old: str, new: str, line: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(USER_WORKLOAD.replace(old, new))
    with pytest.raises(UserError) as refused:
        load_workload(str(path))
    assert message in str(refused.value)
    assert f"own.toml:{line}" in str(refused.value)


def test_an_unknown_workload_is_refused() -> None:
    with pytest.raises(UserError, match="no-such"):
        load_workload("no-such")
