"""The grid of a search: parameters (axes), each with its values in order. A point has one value of each axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assay.errors import UserError
from assay.records.schema import Scalar

Point = tuple[Scalar, ...]


@dataclass(frozen=True)
class Axis:
    """A parameter. ``ordered``: neighbouring values behave alike (sizes, counts); false for names, as of schedules."""

    name: str
    values: tuple[Scalar, ...]
    ordered: bool = True


@dataclass(frozen=True)
class Space:
    """The full grid over the axes."""

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        for axis in self.axes:
            if not axis.values:
                raise UserError(f"no value of {axis.name} to try", "give one at least")
            if len(set(axis.values)) < len(axis.values):
                raise UserError(f"{axis.name}: a value is given twice", "give each value once")

    @property
    def names(self) -> list[str]:
        return [axis.name for axis in self.axes]

    @property
    def size(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def points(self) -> Iterator[Point]:
        return itertools.product(*(axis.values for axis in self.axes))

    def params(self, point: Point) -> dict[str, Scalar]:
        return dict(zip(self.names, point, strict=True))

    def point(self, params: Mapping[str, Scalar]) -> Point:
        return tuple(params[name] for name in self.names)

    def neighbours(self, point: Point) -> list[Point]:
        """The points that differ in one axis: by a neighbouring value if it is ordered, else by any other value."""
        neighbours = []
        for index, axis in enumerate(self.axes):
            place = axis.values.index(point[index])
            for other, value in enumerate(axis.values):
                if other != place and (not axis.ordered or abs(other - place) == 1):
                    neighbours.append((*point[:index], value, *point[index + 1 :]))
        return neighbours
