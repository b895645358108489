"""Merges the call trees of several processes into one, by location and stack; for every profiler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from assay.profile.columns import Numbers, index_column, pack_column, unpack_column
from assay.profile.tree import CallTree
from assay.records.profile import Column, Groups, Locations, Metric, Nodes, Stacks, Tree


class _Part(NamedTuple):
    """Figures of one process: ``rows`` are those of the merged table."""

    rows: Numbers
    figures: dict[str, Column]


class MergedTree:
    """A call tree to which processes are added. Metrics that are sums are added up; of the least and the largest value
    that of all processes counts. Peaks are added up, too: the sum is needed if all processes peak at once."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = [metric for metric in metrics if metric.fold != "mean"]
        self.location_numbers: dict[tuple[object, ...], int] = {}
        self.functions: dict[object, int] = {}
        self.lines: dict[object, int] = {}
        self.locations = Locations([], [], [], [], [], [], [], [])
        self.node_numbers: dict[tuple[int, int], int] = {}
        self.parts: dict[str, list[_Part]] = {
            name: []
            for name in (
                "nodes",
                "stacks",
                "line exclusive",
                "line inclusive",
                "function exclusive",
                "function inclusive",
            )
        }
        self.sites: dict[int, int] = {}  # by node, of all stacks

    def add(self, calls: CallTree) -> Numbers:
        """Returns the merged number of each location."""
        locations = np.array([self._location(calls, k) for k in range(len(calls.locations))], np.int64)
        nodes = self._nodes(calls, locations)
        tables = calls.tables
        stacks = nodes[calls.stack_node]
        self.sites |= dict(zip(stacks.tolist(), locations[calls.stack_site].tolist(), strict=True))
        self._add("nodes", nodes, tables.nodes.figures)
        self._add("stacks", stacks, tables.stacks.figures)
        for name, groups, ids in (
            ("line", tables.lines, self.locations.line_id),
            ("function", tables.functions, self.locations.function_id),
        ):
            first = locations[unpack_column(groups.location, groups.rows)]
            rows = np.array(ids, np.int64)[first]
            self._add(f"{name} exclusive", rows, groups.exclusive)
            self._add(f"{name} inclusive", rows, groups.inclusive)
        return locations

    def _add(self, name: str, rows: Numbers, figures: dict[str, Column]) -> None:
        self.parts[name].append(_Part(rows, figures))

    def _location(self, calls: CallTree, number: int) -> int:
        location = calls.locations[number]
        function = (location.function, location.module)
        place = (location.file, location.line)
        merged = self.location_numbers.setdefault((*function, *place), len(self.location_numbers))
        table = self.locations
        if merged == len(table.function):
            table.function.append(location.function)
            table.file.append(location.file)
            table.line.append(location.line)
            table.module.append(location.module)
            table.inlined.append(location.inlined)
            table.is_allocator_frame.append(location.is_allocator_frame)
            table.function_id.append(self.functions.setdefault(function, merged))
            # As in CallTree::location_number() of the analyser: a relative name may stand for several files.
            line = place if location.file.startswith("/") else (*function, *place)
            table.line_id.append(self.lines.setdefault(line, merged))
        return merged

    def _nodes(self, calls: CallTree, locations: Numbers) -> Numbers:
        numbers: list[int] = []
        of_location = locations[calls.location].tolist()
        for parent, location in zip(calls.parent.tolist(), of_location, strict=True):
            key = (numbers[parent] if parent >= 0 else -1, location)
            numbers.append(self.node_numbers.setdefault(key, len(self.node_numbers)))
        return np.array(numbers, np.int64)

    def tree(self) -> Tree:
        nodes = np.array(list(self.node_numbers), np.int64).reshape(-1, 2)
        stack_nodes = np.array(sorted(self.sites), np.int64)
        sites = np.array([self.sites[node] for node in stack_nodes.tolist()], np.int64)
        return Tree(
            locations=self.locations,
            nodes=Nodes(
                len(nodes),
                index_column(nodes[:, 0]),
                index_column(nodes[:, 1]),
                self._folded("nodes", np.arange(len(nodes))),
            ),
            stacks=Stacks(
                len(stack_nodes),
                index_column(stack_nodes),
                index_column(sites),
                self._folded("stacks", stack_nodes),
            ),
            lines=self._groups("line", self.locations.line_id),
            functions=self._groups("function", self.locations.function_id),
        )

    def _groups(self, name: str, ids: Iterable[int]) -> Groups:
        first = np.array(sorted(set(ids)), np.int64)
        exclusive, inclusive = (
            self._folded(f"{name} exclusive", first),
            self._folded(f"{name} inclusive", first),
        )
        return Groups(len(first), index_column(first), exclusive, inclusive)

    def _folded(self, name: str, rows: Numbers) -> dict[str, Column]:
        """The figures of all processes in the merged table's ``rows``, which are ascending."""
        return {
            metric.key: pack_column(self._fold(self.parts[name], metric, rows)) for metric in self.metrics
        }

    def _fold(self, parts: Sequence[_Part], metric: Metric, rows: Numbers) -> Numbers:
        if metric.fold == "least":
            least = np.full(len(rows), np.inf)
            for part in parts:
                values = unpack_column(part.figures[metric.key], len(part.rows)).astype(np.float64)
                known = unpack_column(part.figures[metric.known_by], len(part.rows)) > 0
                np.minimum.at(least, np.searchsorted(rows, part.rows[known]), values[known])
            return np.where(np.isinf(least), 0, least)
        folded = np.zeros(len(rows))
        join = np.maximum if metric.fold == "most" else np.add
        for part in parts:
            values = unpack_column(part.figures[metric.key], len(part.rows)).astype(np.float64)
            join.at(folded, np.searchsorted(rows, part.rows), values)
        return folded
