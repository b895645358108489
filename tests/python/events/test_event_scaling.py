"""docs/event_scaling.py: the rounds of its schedules on recorded fabrics, and its picture."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import event_scaling

    yield event_scaling
    sys.modules.pop("event_scaling", None)


@pytest.mark.parametrize(("nodes", "shift"), [(36, 36), (45, 62), (64, 98), (512, 971)])
def test_the_rounds_are_those_of_the_recorded_tables(scaling, nodes: int, shift: int) -> None:
    by_schedule = {point["schedule"]: point for point in scaling.points(nodes)}
    assert by_schedule["barrel shift"]["rounds"] == shift
    planned = by_schedule["without conflicts"]
    assert planned["rounds"] == planned["steps"] == nodes - 1 and planned["share"] == 1.0


def test_the_picture_is_written(scaling, tmp_path: Path) -> None:
    scaling.draw(scaling.points(36) + scaling.points(45), tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
