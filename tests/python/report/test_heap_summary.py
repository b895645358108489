"""The summary of a heap profile in the terminal."""

from __future__ import annotations

import io

import make_heap
import pytest
from rich.console import Console

from assay.profile.heap import HeapProfile
from assay.report.heap import show_profile


def summary(seconds: float) -> list[str]:
    made = make_heap.make_profile(50)
    profile = HeapProfile(**{field: getattr(made, field) for field in made.__struct_fields__})
    profile.process.seconds = seconds
    profile.totals.count = 500
    text = io.StringIO()
    show_profile(Console(file=text, width=200), profile)
    return text.getvalue().splitlines()


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, ""), (1e-7, ""), (0.004, ""), (2.0, ", 250 1/s")])
def test_a_time_that_rounds_to_nothing_gives_no_rate(seconds: float, shown: str) -> None:
    (line,) = [line for line in summary(seconds) if line.startswith("allocated  ") and "blocks" in line]
    assert line.endswith(f"in 500 blocks{shown}")
