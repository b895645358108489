"""What has changed between two heap profiles, by function or line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.profile.heap import HeapProfile, Place


@dataclass
class Change:
    """Of one function or line: what it has asked for itself, and with all that it called, before and after."""

    place: Place
    own: tuple[int, int] = (0, 0)
    total: tuple[int, int] = (0, 0)

    @property
    def difference(self) -> int:
        return self.own[1] - self.own[0]


def without_object(place: Place) -> object:
    """The same function of another build is the same function; lines move, and so do objects."""
    return place.function, place.file


def changes(
    before: HeapProfile,
    after: HeapProfile,
    metric: str,
    key: Callable[[Place], object] = without_object,
) -> list[Change]:
    """The largest difference first; what has not changed is left out."""
    found: dict[object, Change] = {}
    for side, profile in enumerate((before, after)):
        for one in profile.by(metric, key):
            change = found.setdefault(key(one.place), Change(one.place))
            change.place = one.place
            own, total = list(change.own), list(change.total)
            own[side], total[side] = one.own, one.total
            change.own, change.total = (own[0], own[1]), (total[0], total[1])
    return sorted(
        (one for one in found.values() if one.difference),
        key=lambda one: (-abs(one.difference), one.place.function),
    )
