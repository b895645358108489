"""What has changed between two heap profiles, by function or line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.profile.heap import HeapProfile, Place


@dataclass
class Change:
    """Of one function or line: what it has asked for itself, before and after."""

    place: Place
    before: int = 0
    after: int = 0

    @property
    def difference(self) -> int:
        return self.after - self.before


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
    for one in before.by(metric, key):
        found.setdefault(key(one.place), Change(one.place)).before = one.own
    for one in after.by(metric, key):
        found.setdefault(key(one.place), Change(one.place)).after = one.own
    return sorted(
        (one for one in found.values() if one.difference),
        key=lambda one: (-abs(one.difference), one.place.function),
    )
