"""The differences between two profiles of one profiler, by function."""

from __future__ import annotations

from dataclasses import dataclass

from assay.profile.tree import CallTree, Location


@dataclass
class Change:
    """The exclusive figure of one function, before and after."""

    location: Location
    before: int = 0
    after: int = 0

    @property
    def difference(self) -> int:
        return self.after - self.before


def changes(before: CallTree, after: CallTree, metric: str) -> list[Change]:
    """The largest difference first; unchanged functions are left out. Functions of two builds are the same by name
    and file; line numbers and object paths may differ."""
    by_key: dict[object, Change] = {}
    for figures in before.by(metric, "function"):
        location = figures.location
        change = by_key.setdefault((location.function, location.file), Change(location))
        change.before += round(figures.exclusive)
    for figures in after.by(metric, "function"):
        location = figures.location
        change = by_key.setdefault((location.function, location.file), Change(location))
        change.after += round(figures.exclusive)
    return sorted(
        (change for change in by_key.values() if change.difference),
        key=lambda change: (-abs(change.difference), change.location.function),
    )
