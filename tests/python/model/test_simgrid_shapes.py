"""Studies of networks that SimGrid makes: what is called measured is a link of the platform, within 1 %."""

from __future__ import annotations

from pathlib import Path

import pytest
from simgrid_shapes import SHAPES, Shape

from assay.cli import main
from assay.launch import simulator
from assay.records.run import Run
from assay.records.schema import Capacity

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(simulator.unavailable() is not None, reason=str(simulator.unavailable())),
]
GATE = [("cluster", 1), ("fat tree", 2), ("rows", 1), ("cross traffic", 1)]
HIDDEN = [
    (kind, seed)
    for kind, number in (("cluster", 14), ("fat tree", 13), ("rows", 13))
    for seed in range(100, 100 + number)
]


ONE_CABLE = 19  # a fat tree of five leaves, each with one cable to the only spine
TWO_CABLES = 2  # of three leaves


def capacities(shape: Shape, folder: Path) -> list[Capacity]:
    """What a study of the platform finds."""
    platform = shape.write(folder / "platform.xml")
    assert main(["simulate", str(platform), "--", "saturate", "-o", str(folder / "run")]) == 0
    return [c for c in Run.load(folder / "run").records if isinstance(c, Capacity) and c.level != "network"]


def false_capacities(kind: str, seed: int, folder: Path) -> list[str]:
    """The capacities that the study calls measured and that the platform does not have."""
    shape = SHAPES[kind](seed)
    measured = [c for c in capacities(shape, folder) if c.state == "measured"]
    assert any(c.level == "host" for c in measured)
    return [
        f"{c.level} {c.resource} {c.direction}: {c.value:.4g}, {c.reason}"
        for c in measured
        if not any(
            c.value == pytest.approx(true, rel=0.01) for true in shape.true.get((c.level, c.direction), ())
        )
    ]


@pytest.mark.parametrize(("kind", "seed"), GATE)
def test_only_links_of_the_platform_are_measured(kind: str, seed: int, tmp_path: Path) -> None:
    assert false_capacities(kind, seed, tmp_path) == []


@pytest.mark.parametrize(
    ("seed", "state", "leaves"), [(ONE_CABLE, "measured", 5), (TWO_CABLES, "at_least", 3)]
)
def test_the_up_link_of_a_leaf_is_found(seed: int, state: str, leaves: int, tmp_path: Path) -> None:
    """Of parallel cables a flow uses one, so what was seen to be carried is no more than a lower limit."""
    shape = SHAPES["fat tree"](seed)
    (trunk,) = shape.true["cabinet", "up"]
    found = [c for c in capacities(shape, tmp_path) if c.level == "cabinet" and c.direction in ("up", "down")]
    assert [c.state for c in found] == [state] * 2 * leaves
    assert [c.value for c in found] == pytest.approx([trunk] * 2 * leaves, rel=0.01)


@pytest.mark.acceptance("model")
@pytest.mark.parametrize(("kind", "seed"), HIDDEN)
def test_only_links_of_hidden_platforms_are_measured(kind: str, seed: int, tmp_path: Path) -> None:
    assert false_capacities(kind, seed, tmp_path) == []
