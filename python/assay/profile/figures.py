"""Figures of a metric by function, by line or whatever else is asked for, from a tree of calls.

Each node is looked at a few times, however deep the stacks are: what is below it is added up once, and counts for a
function where that stands on the stack for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.profile.heap import Node, Place

Key = Callable[["Place"], object]


@dataclass
class Figures:
    """Of one function or line: ``own`` is what it asked for itself, most of it at ``place``; ``total`` with all that it
    called."""

    place: Place
    own: int = 0
    total: int = 0


class Grouping:
    """The nodes of a tree by a key of their places; ``nodes`` have their parents before them, -1 for none."""

    def __init__(self, places: Sequence[Place], nodes: Sequence[Node], key: Key) -> None:
        numbers: dict[object, int] = {}
        self.group = [numbers.setdefault(key(place), len(numbers)) for place in places]
        self.places = places
        self.parent = [node.parent for node in nodes]
        self.place = [node.place for node in nodes]
        self.is_outermost = self._find_outermost()
        self.asker = self._find_askers()

    def _find_outermost(self) -> list[bool]:
        """Of each node, whether its group is on its stack for the first time."""
        children: dict[int, list[int]] = {}
        for number, parent in enumerate(self.parent):
            children.setdefault(parent, []).append(number)
        groups = [self.group[place] for place in self.place]
        found = [False] * len(groups)
        on_stack = [0] * len(self.group)
        todo = children.get(-1, [])
        while todo:
            number = todo.pop()
            if number < 0:  # all below it has been seen
                on_stack[groups[~number]] -= 1
                continue
            group = groups[number]
            found[number] = on_stack[group] == 0
            if below := children.get(number):
                on_stack[group] += 1
                todo.append(~number)
                todo += below
        return found

    def _find_askers(self) -> list[int]:
        """Of each node, the place that is to be told: the innermost that does not merely hand requests on."""
        found: list[int] = []
        told: list[int] = []
        hands_on = [place.hands_on for place in self.places]
        for parent, place in zip(self.parent, self.place, strict=True):
            one = (found[parent] if parent >= 0 else -1) if hands_on[place] else place
            found.append(one)
            told.append(one if one >= 0 else place)
        return told

    def figures(self, values: Sequence[int]) -> list[Figures]:
        """Of these values, one a node; most first."""
        below = list(values)
        own: dict[int, int] = {}  # by place
        totals: dict[int, int] = {}  # by group
        for number in range(len(below) - 1, -1, -1):
            value = below[number]
            if not value:
                continue
            place = self.place[number]
            if values[number]:
                own[self.asker[number]] = own.get(self.asker[number], 0) + values[number]
            if (parent := self.parent[number]) >= 0:
                below[parent] += value
            if self.is_outermost[number]:
                totals[self.group[place]] = totals.get(self.group[place], 0) + value
        any_place = {self.group[number]: place for number, place in enumerate(self.places)}
        found = {group: Figures(any_place[group], total=total) for group, total in totals.items()}
        for place in sorted(own, key=lambda place: -own[place]):
            one = found[self.group[place]]
            one.place = one.place if one.own else self.places[place]
            one.own += own[place]
        return sorted(found.values(), key=lambda one: (-one.own, -one.total))
