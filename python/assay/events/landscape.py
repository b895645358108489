"""How much each parameter of a search matters: its importance, and the best and the median figure at each of its
values.

Importance is that of PED-ANOVA (Watanabe, Bansal and Hutter, IJCAI 2023): how much the distribution of a parameter
among the best points differs from that among all. It suits a search, whose points are not spread evenly.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from assay.events.space import Point, Space
from assay.records.schema import Scalar

MIN_POINTS = 10  # points from which an importance is computed


@dataclass(frozen=True)
class Level:
    """The measured points with one value of a parameter: their number, their best figure and their median."""

    value: Scalar
    points: int
    best: float
    median: float


def levels(space: Space, values: Mapping[Point, float], name: str) -> list[Level]:
    """One parameter's values in order, those without a measured point left out."""
    index = space.names.index(name)
    levels_with_points = []
    for value in space.axes[index].values:
        figures = [figure for point, figure in values.items() if point[index] == value]
        if figures:
            levels_with_points.append(Level(value, len(figures), max(figures), statistics.median(figures)))
    return levels_with_points


def importances(space: Space, values: Mapping[Point, float]) -> dict[str, float]:
    """The importance of each parameter, all together 1; empty where there are too few points to tell."""
    if len(values) < MIN_POINTS or len(set(values.values())) < 2:
        return {}
    from assay.events.distributions import importance_of

    return importance_of(space, values)
