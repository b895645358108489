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
        self.places, self.nodes = places, nodes
        self.is_outermost = self._find_outermost()
        self.asker = self._find_askers()

    def _find_outermost(self) -> list[bool]:
        """Of each node, whether its group is on its stack for the first time."""
        children: list[list[int]] = [[] for _ in self.nodes]
        roots: list[int] = []
        for number, node in enumerate(self.nodes):
            (children[node.parent] if node.parent >= 0 else roots).append(number)
        found = [False] * len(self.nodes)
        on_stack = [0] * len(self.group)
        todo = roots
        while todo:
            number = todo.pop()
            if number < 0:  # all below it has been seen
                on_stack[self.group[self.nodes[~number].place]] -= 1
                continue
            group = self.group[self.nodes[number].place]
            found[number] = on_stack[group] == 0
            on_stack[group] += 1
            todo.append(~number)
            todo += children[number]
        return found

    def _find_askers(self) -> list[int]:
        """Of each node, the place that is to be told: the innermost that does not merely hand requests on."""
        found: list[int] = []
        told: list[int] = []
        for node in self.nodes:
            hands_on = self.places[node.place].hands_on
            found.append((found[node.parent] if node.parent >= 0 else -1) if hands_on else node.place)
            told.append(found[-1] if found[-1] >= 0 else node.place)
        return told

    def figures(self, values: Sequence[int]) -> list[Figures]:
        """Of these values, one a node; most first."""
        found: dict[int, Figures] = {}
        below = list(values)
        own: dict[int, int] = {}  # by place
        for number in range(len(below) - 1, -1, -1):
            if values[number]:
                own[self.asker[number]] = own.get(self.asker[number], 0) + values[number]
            node = self.nodes[number]
            if below[number] and node.parent >= 0:
                below[node.parent] += below[number]
            if below[number] and self.is_outermost[number]:
                found.setdefault(self.group[node.place], Figures(self.places[node.place])).total += below[
                    number
                ]
        for place in sorted(own, key=lambda place: -own[place]):
            one = found[self.group[place]]
            one.place = one.place if one.own else self.places[place]
            one.own += own[place]
        return sorted(found.values(), key=lambda one: (-one.own, -one.total))
