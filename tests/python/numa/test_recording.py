"""Recordings are checked when they are read; a damaged one is an error of one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.numa.recording import parse_recording, read_recording

ROWS: list[list[object]] = [
    ["process", 1, "touch", 10, 1, 4096, 2, "./a\x00b\x00", ""],
    ["node", 0, [0], 0, []],
    ["node", 1, [1], 0, []],
    ["module", 4096, 8192, 12288, "/bin/a"],
    ["thread", 0, 10, "a"],
    ["binding", 0, 5, [0], 0, []],
    ["stack", 1, [8200, 8300]],
    ["object", 0, "heap", "", 1, 8192, 1],
    ["touch", 0, 1, 0, 0, 0, 0, 2, 0],
    ["access", -1, 1, 0, 0, 1, 3, 4],
    ["part", 0, 15, 0, 0, 1, 7],
    ["placed", 0, 0, 2],
    ["moved", 0, 0, 1, 1],
    ["memory", 7, -1, 2],
    ["slice", 0, 1000, 3, 4, 0],
    ["slice", 1000, 1000, 0, 0, 1],
    ["sampling", "cpu/mem-loads/", 1000, 1, [3, 0, 0, 4, 0]],
    ["note", "nothing is missing"],
    ["end", 9, 0, 0],
]


def lines(rows: list[list[object]]) -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in rows]


def test_every_row_is_read() -> None:
    recording = parse_recording(lines(ROWS), "x")
    assert recording.process.pid == 10 and sorted(recording.nodes) == [0, 1]
    assert recording.touches[0].pages == 2 and recording.accesses[0].writes == 4
    assert recording.parts[0].part == 15 and recording.moved[0].target == 1
    assert [(row.local, row.remote) for row in recording.slices] == [(3, 4), (0, 0)]
    assert recording.sampling is not None and recording.sampling.samples_by_source[3] == 4
    assert recording.end is not None and recording.end.ns == 9


def test_a_truncated_file_is_read_up_to_its_end(tmp_path: Path) -> None:
    whole = b"".join(lines(ROWS))
    path = tmp_path / "1.0.numa"
    path.write_bytes(whole[:-5])
    recording = read_recording(path)
    assert recording.end is None and recording.notes == ["nothing is missing"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["touch", 5, 1, 0, 0, 0, 0, 2, 0], "object 5"),
        (["touch", 0, 9, 0, 0, 0, 0, 2, 0], "stack 9"),
        (["touch", 0, 1, 3, 0, 0, 0, 2, 0], "thread 3"),
        (["touch", 0, 1, 0, 7, 0, 0, 2, 0], "node 7"),
        (["touch", 0, 1, 0, 0, 0, 0, -2, 0], ">= 0"),
        (["part", 0, 16, 0, 0, 1, 7], "<= 15"),
        (["access", 4, 1, 0, 0, 1, 3, 4], "object 4"),
        (["object", 1, "cheese", "", 0, 1, 1], "kind of object"),
        (["module", 9, 8, 7, "x"], "module outside"),
        (["stack", 2, [1 << 70]], "not an address"),
        (["process", 1, "touch", 10, 1, 4096, 2, "", ""], "second process"),
        (["memory", 1, 0, 1, 1, 1], "at most length"),
        (["memory", 1.5, 0, 1], "int"),
        (["slice", 2000, 999, 1, 1, 1], "different widths"),
        (["sampling", "x", 1, 0, [1, 2]], "length"),
    ],
)
def test_a_row_that_is_wrong_names_its_line(row: list[object], message: str) -> None:
    with pytest.raises(UserError, match=f"x, line {len(ROWS)}: .*{message}"):
        parse_recording(lines([*ROWS[:-1], row]), "x")


@pytest.mark.parametrize(
    ("change", "message"),
    [({1: 2}, "version 2"), ({2: "psychic"}, "unknown mode"), ({5: 0}, ">= 1")],
)
def test_a_wrong_first_row_is_refused(change: dict[int, object], message: str) -> None:
    first = [change.get(k, value) for k, value in enumerate(ROWS[0])]
    with pytest.raises(UserError, match=f"line 1: .*{message}"):
        parse_recording(lines([first]), "x")


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(UserError, match="empty"):
        parse_recording([], "x")
