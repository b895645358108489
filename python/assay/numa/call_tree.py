"""Makes the call tree of a profile from its stacks: the tables of assay.records.profile, with the figures of every
call, line and function added up. ``assay-heap analyse`` does the same for heap profiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from assay.numa.profile import Location
from assay.profile.columns import Numbers, index_column, pack_column
from assay.records.profile import Column, Groups, Locations, Metric, Nodes, Stacks, Tree


class TreeMaker:
    """Takes stacks and their figures; ``tree`` adds the figures up by call, line and function."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.names = [metric.key for metric in metrics]
        self.columns = {name: k for k, name in enumerate(self.names)}
        self.locations: list[Location] = []
        self._numbers: dict[Location, int] = {}
        self._nodes: dict[tuple[int, int], int] = {}  # (parent, location) to node
        self._stacks: dict[int, list[int]] = {}  # figures by node
        self._sites: dict[int, int] = {}  # location by node

    def location(self, location: Location) -> int:
        number = self._numbers.setdefault(location, len(self._numbers))
        if number == len(self.locations):
            self.locations.append(location)
        return number

    def stack(self, frames: Sequence[Location]) -> int:
        """The node of a stack, innermost frame first; it has no figures yet."""
        parent = -1
        numbers = [self.location(frame) for frame in frames]
        for number in reversed(numbers):
            parent = self._nodes.setdefault((parent, number), len(self._nodes))
        innermost = next((n for n in numbers if not self.locations[n].is_runtime), numbers[0])
        self._sites.setdefault(parent, innermost)
        return parent

    def site(self, node: int) -> int:
        return self._sites[node]

    def add(self, node: int, metric: str, amount: int) -> None:
        self._stacks.setdefault(node, [0] * len(self.names))[self.columns[metric]] += amount

    def tree(self) -> Tree:
        keys = np.array(list(self._nodes), np.int64).reshape(-1, 2)
        parent, location = keys[:, 0], keys[:, 1]
        nodes = np.array(sorted(self._stacks), np.int64)
        exclusive_figures = np.array([self._stacks[node] for node in nodes.tolist()], np.float64)
        exclusive_figures = exclusive_figures.reshape(-1, len(self.names))
        sites = np.array([self._sites[node] for node in nodes.tolist()], np.int64)
        table = self._table()
        return Tree(
            locations=table,
            nodes=Nodes(
                len(parent),
                index_column(parent),
                index_column(location),
                self._figures(_inclusive(parent, nodes, exclusive_figures)),
            ),
            stacks=Stacks(
                len(nodes), index_column(nodes), index_column(sites), self._figures(exclusive_figures)
            ),
            lines=self._groups(table.line_id, parent, location, nodes, sites, exclusive_figures),
            functions=self._groups(table.function_id, parent, location, nodes, sites, exclusive_figures),
        )

    def _table(self) -> Locations:
        locations = self.locations
        return Locations(
            function=[location.function for location in locations],
            file=[location.file for location in locations],
            line=[location.line for location in locations],
            module=[location.module for location in locations],
            inlined=[False] * len(locations),
            is_allocator_frame=[location.is_runtime for location in locations],
            function_id=_first_with_same_key(
                locations, lambda location: (location.function, location.module)
            ),
            line_id=_first_with_same_key(locations, _line_key),
        )

    def _groups(
        self,
        ids: list[int],
        parent: Numbers,
        location: Numbers,
        nodes: Numbers,
        sites: Numbers,
        exclusive_figures: Numbers,
    ) -> Groups:
        group = np.array(ids, np.int64)
        exclusive, inclusive = (
            np.zeros((len(ids), exclusive_figures.shape[1])),
            np.zeros((len(ids), exclusive_figures.shape[1])),
        )
        if len(nodes):
            np.add.at(exclusive, group[sites], exclusive_figures)
            rows, groups = _stack_group_pairs(parent, group[location], nodes)
            np.add.at(inclusive, groups, exclusive_figures[rows])
        first = np.array(sorted(set(ids)), np.int64)
        return Groups(
            len(first), index_column(first), self._figures(exclusive[first]), self._figures(inclusive[first])
        )

    def _figures(self, table: Numbers) -> dict[str, Column]:
        return {name: pack_column(table[:, k]) for name, k in self.columns.items()}


def _line_key(location: Location) -> tuple[object, ...]:
    """A line of source; of a relative file name, which may stand for several files, a line of the function."""
    place = (location.file, location.line)
    return place if location.file.startswith("/") else (location.function, location.module, *place)


def _first_with_same_key(locations: Sequence[Location], key: Callable[[Location], object]) -> list[int]:
    first: dict[object, int] = {}
    return [first.setdefault(key(location), number) for number, location in enumerate(locations)]


def _inclusive(parent: Numbers, nodes: Numbers, exclusive_figures: Numbers) -> Numbers:
    """The figures of each call with all that it calls: deepest calls first, each level is added to its callers."""
    sums = np.zeros((len(parent), exclusive_figures.shape[1]))
    if not len(parent):
        return sums
    sums[nodes] = exclusive_figures
    depth = np.zeros(len(parent), np.int64)
    for node, caller in enumerate(parent.tolist()):
        depth[node] = depth[caller] + 1 if caller >= 0 else 0
    for level in range(int(depth.max()), 0, -1):
        at_level = np.flatnonzero(depth == level)
        np.add.at(sums, parent[at_level], sums[at_level])
    return sums


def _stack_group_pairs(parent: Numbers, group: Numbers, nodes: Numbers) -> tuple[Numbers, Numbers]:
    """Pairs of a stack's row and a group that it passes through; each pair once, also for a recursive function."""
    rows, node = np.arange(len(nodes)), nodes
    pairs = []
    while len(node):
        pairs.append(np.stack([rows, group[node]]))
        caller = parent[node]
        rows, node = rows[caller >= 0], caller[caller >= 0]
    both = np.unique(np.concatenate(pairs, axis=1), axis=1)
    return both[0], both[1]
