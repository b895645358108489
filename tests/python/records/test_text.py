"""Foreign text for a terminal: no character of it acts, and none is dropped."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.records.text import json_line, name_text, one_line, printable

ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("n1", "n1"),
        ("[red]n1[/x]", "[red]n1[/x]"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\rb", r"a\rb"),
        ("exe\u202etxt", r"exe\u202etxt"),
        ("\udcff", r"\udcff"),
        ("5 µs ± 1 %\tof\n2", "5 µs ± 1 %\tof\n2"),
    ],
)
def test_acting_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_no_character_of_any_text_acts(text: str) -> None:
    assert not ACTING.search(printable(text))
    line = one_line(text)
    assert "\n" not in line and not ACTING.search(line)
    assert len(line.splitlines()) <= 1


def test_one_line_joins_lines() -> None:
    assert one_line("first\n\n  second:\tx \r\nthird\n") == "first; second: x; third"


@given(st.text(st.characters()))
def test_a_name_stays_on_its_line(text: str) -> None:
    name = name_text(text)
    assert not ACTING.search(name) and not re.search(r"[\n\t]", name)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_that_is_printed_stays_json(text: str) -> None:
    line = json_line({"name": text})
    assert not ACTING.search(line) and "\n" not in line
    assert json.loads(line) == {"name": text}
