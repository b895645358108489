"""A metric of a call tree, summed by function, by line or by any other key.

Each node is visited a few times, however deep the stacks are. Inclusive sums are built from the leaves to the roots,
and a recursive function counts once: at its outermost node on each stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.profile.tree import Location, Node

Key = Callable[[Location], object]


@dataclass
class Figures:
    """The values of one group (a function or a line): ``exclusive`` is what the group itself allocated, most of it at
    ``location``; ``inclusive`` adds what its callees allocated."""

    location: Location
    exclusive: int = 0
    inclusive: int = 0


class Grouping:
    """The nodes of a tree, grouped by a key of their locations. Parents come before their children."""

    def __init__(self, locations: Sequence[Location], nodes: Sequence[Node], key: Key) -> None:
        numbers: dict[object, int] = {}
        self.group = [numbers.setdefault(key(location), len(numbers)) for location in locations]
        self.locations = locations
        self.parent = [node.parent for node in nodes]
        self.location = [node.location for node in nodes]
        self.is_outermost = self._find_outermost()
        self.allocation_site = self._find_allocation_sites()

    def _find_outermost(self) -> list[bool]:
        """For each node: whether no caller of it belongs to the same group."""
        children: dict[int, list[int]] = {}
        for number, parent in enumerate(self.parent):
            children.setdefault(parent, []).append(number)
        groups = [self.group[location] for location in self.location]
        is_outermost = [False] * len(groups)
        on_stack = [0] * len(self.group)
        todo = children.get(-1, [])
        while todo:
            number = todo.pop()
            if number < 0:  # the subtree of ~number is done
                on_stack[groups[~number]] -= 1
                continue
            group = groups[number]
            is_outermost[number] = on_stack[group] == 0
            if below := children.get(number):
                on_stack[group] += 1
                todo.append(~number)
                todo += below
        return is_outermost

    def _find_allocation_sites(self) -> list[int]:
        """For each node: the innermost location that is no allocator frame, or its own location if there is none."""
        innermost: list[int] = []  # -1: only allocator frames so far
        sites: list[int] = []
        is_allocator_frame = [location.is_allocator_frame for location in self.locations]
        for parent, location in zip(self.parent, self.location, strict=True):
            inherited = innermost[parent] if parent >= 0 else -1
            site = inherited if is_allocator_frame[location] else location
            innermost.append(site)
            sites.append(site if site >= 0 else location)
        return sites

    def figures(self, values: Sequence[int]) -> list[Figures]:
        """The groups' sums of these values, one value a node; the largest exclusive sum first."""
        subtree = list(values)
        exclusive: dict[int, int] = {}  # by location
        inclusive: dict[int, int] = {}  # by group
        for number in range(len(subtree) - 1, -1, -1):
            value = subtree[number]
            if not value:
                continue
            if values[number]:
                site = self.allocation_site[number]
                exclusive[site] = exclusive.get(site, 0) + values[number]
            if (parent := self.parent[number]) >= 0:
                subtree[parent] += value
            if self.is_outermost[number]:
                group = self.group[self.location[number]]
                inclusive[group] = inclusive.get(group, 0) + value
        any_location = {self.group[number]: location for number, location in enumerate(self.locations)}
        by_group = {
            group: Figures(any_location[group], inclusive=total) for group, total in inclusive.items()
        }
        for number in sorted(exclusive, key=lambda number: -exclusive[number]):
            figures = by_group[self.group[number]]
            figures.location = figures.location if figures.exclusive else self.locations[number]
            figures.exclusive += exclusive[number]
        return sorted(by_group.values(), key=lambda figures: (-figures.exclusive, -figures.inclusive))
