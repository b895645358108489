"""What changed between two heap profiles, by function or line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.profile.heap import HeapProfile
from assay.profile.tree import Location


@dataclass
class Change:
    """The exclusive figure of one function or line, before and after."""

    location: Location
    before: int = 0
    after: int = 0

    @property
    def difference(self) -> int:
        return self.after - self.before


def without_object(location: Location) -> object:
    """Functions of two builds are the same by name and file; line numbers and object paths may differ."""
    return location.function, location.file


def changes(
    before: HeapProfile,
    after: HeapProfile,
    metric: str,
    key: Callable[[Location], object] = without_object,
) -> list[Change]:
    """The largest difference first; unchanged functions are left out."""
    by_key: dict[object, Change] = {}
    for figures in before.by(metric, key):
        by_key.setdefault(key(figures.location), Change(figures.location)).before = figures.exclusive
    for figures in after.by(metric, key):
        by_key.setdefault(key(figures.location), Change(figures.location)).after = figures.exclusive
    return sorted(
        (change for change in by_key.values() if change.difference),
        key=lambda change: (-abs(change.difference), change.location.function),
    )
