"""The sub-verbs of ``assay heap``: how arguments select one, and the messages for spellings of earlier versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.commands.heap import Heap
from assay.errors import UserError


def test_a_program_without_a_sub_verb_is_recorded() -> None:
    assert Heap().complete(["--", "ls", "-l"]) == ["record", "--", "ls", "-l"]
    assert Heap().complete(["-o", "x", "--", "show"]) == ["record", "-o", "x", "--", "show"]
    assert Heap().complete(["record", "--", "ls"]) == ["record", "--", "ls"]
    assert Heap().complete(["show", "x"]) == ["show", "x"]


@pytest.mark.parametrize(
    ("typed", "current"),
    [
        ("--attach 4711", "assay heap attach PID"),
        ("--attach=4711 -o x", "assay heap attach PID"),
        ("compare a b", "assay heap diff a b"),
        ("RUN", "assay heap show RUN"),
        ("RUN --all", "assay heap show RUN --all"),
        ("RUN --export pprof", "assay heap export RUN FORMAT"),
        ("./program", "assay heap -- ./program"),
        ("", "assay heap -- ./program"),
    ],
)
def test_earlier_spellings_name_the_current_ones(typed: str, current: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    arguments = [str(tmp_path) if word == "RUN" else word for word in typed.split()]
    with pytest.raises(UserError) as raised:
        Heap().complete(arguments)
    assert current.replace("RUN", str(tmp_path)) in raised.value.fix


def test_a_misspelt_sub_verb_is_corrected() -> None:
    with pytest.raises(UserError, match="did you mean 'show'"):
        Heap().complete(["shwo", "x"])
