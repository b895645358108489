"""The call tree of a profile, of any profiler: its locations, stacks, and figures by line and by function.

All figures were made by the analyser (engines/profile/analyse/tree_tables.hpp); here they are looked up and sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from assay.profile.columns import Numbers, unpack_column
from assay.records.profile import Column, Groups, Metric, Tree

Group = Literal["function", "line"]


def process_title(program: str, pid: int, rank: str) -> str:
    """Tells a process from the others of its run. ``pid`` 0: a merged profile, which ``program`` names."""
    if not pid:
        return program
    return f"{program} (rank {rank}, pid {pid})" if rank else f"{program} (pid {pid})"


class Location(NamedTuple):
    """A line of a function."""

    function: str
    file: str
    line: int
    module: str
    inlined: bool
    is_allocator_frame: bool  # malloc, operator new, std::...: its allocations count for its caller

    @property
    def is_python(self) -> bool:
        """A Python function has its file as its module."""
        return self.module == self.file != ""

    @property
    def source(self) -> str:
        """ "solver.cpp:42", or the object where no source is known."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line}" if name else self.module.rpartition("/")[2]

    @property
    def place(self) -> str:
        """ "solve (solver.cpp:42)"."""
        return f"{self.function} ({self.source})"


@dataclass(frozen=True)
class Figures:
    """A metric of a line or function: ``exclusive`` without, ``inclusive`` with the functions that it calls.
    ``location`` is the line itself; of a function the line with most of the metric."""

    location: Location
    exclusive: float
    inclusive: float


@dataclass(frozen=True)
class Stack:
    """A stack with figures of its own. ``site`` is the location that counts as its cause."""

    node: int
    site: int
    figures: Mapping[str, float]


class CallTree:
    """Looks figures up in a profile's tables. Raises ValueError for tables that contradict each other or lack a
    metric."""

    def __init__(self, tables: Tree, metrics: Sequence[Metric]) -> None:
        self.tables = tables
        self.metrics = {metric.key: metric for metric in metrics}
        names = {metric.key for metric in metrics if metric.fold != "mean"}
        nodes, stacks = tables.nodes, tables.stacks
        self.parent = unpack_column(nodes.parent, nodes.rows)
        self.location = unpack_column(nodes.location, nodes.rows)
        self.stack_node = unpack_column(stacks.node, stacks.rows)
        self.stack_site = unpack_column(stacks.site, stacks.rows)
        self._check(names)

    def _check(self, names: set[str]) -> None:
        table = self.tables.locations
        lists = (table.file, table.line, table.module, table.inlined, table.is_allocator_frame)
        count = len(table.function)
        if any(len(values) != count for values in (*lists, table.function_id, table.line_id)):
            raise ValueError("locations of different lengths")
        numbers = np.arange(count)
        for first in (table.function_id, table.line_id):
            _check_range(np.array(first, np.int64), 0, numbers + 1)
        _check_range(self.parent, -1, np.arange(len(self.parent)))
        for values, limit in (
            (self.location, count),
            (self.stack_node, len(self.parent)),
            (self.stack_site, count),
        ):
            _check_range(values, 0, limit)
        columns = [(self.tables.stacks.figures, self.tables.stacks.rows)]
        columns.append((self.tables.nodes.figures, self.tables.nodes.rows))
        for groups in (self.tables.lines, self.tables.functions):
            _check_range(unpack_column(groups.location, groups.rows), 0, count)
            columns += [(groups.exclusive, groups.rows), (groups.inclusive, groups.rows)]
        for figures, rows in columns:
            if set(figures) != names:
                raise ValueError(f"other metrics: {', '.join(sorted(set(figures) ^ names))}")
            for column in figures.values():
                unpack_column(column, rows)

    @cached_property
    def locations(self) -> list[Location]:
        table = self.tables.locations
        lists = (table.file, table.line, table.module, table.inlined, table.is_allocator_frame)
        return [Location(*row) for row in zip(table.function, *lists, strict=True)]

    def stack(self, node: int) -> Iterator[int]:
        """The nodes from this one to the outermost."""
        while node >= 0:
            yield node
            node = int(self.parent[node])

    def callers(self, node: int) -> list[Location]:
        """The locations from this node to the outermost."""
        return [self.locations[self.location[ancestor]] for ancestor in self.stack(node)]

    def column(self, columns: dict[str, Column], metric: str, rows: int) -> Numbers:
        """A metric as floating point numbers; of a mean 0 where nothing is counted."""
        described = self.metrics[metric]
        if described.fold != "mean":
            return unpack_column(columns[metric], rows).astype(np.float64)
        dividend: Numbers = self.column(columns, described.dividend, rows)
        divisor = self.column(columns, described.divisor, rows)
        quotient: Numbers = np.divide(dividend, divisor, out=np.zeros(rows), where=divisor > 0)
        return quotient

    def of_stacks(self, metric: str) -> Numbers:
        return self.column(self.tables.stacks.figures, metric, self.tables.stacks.rows)

    def exclusive_of_nodes(self, metric: str) -> Numbers:
        """The exclusive figure of each node; 0 where no stack ends."""
        values = np.zeros(len(self.parent))
        values[self.stack_node] = self.of_stacks(metric)
        return values

    @cached_property
    def stacks(self) -> list[Stack]:
        names = list(self.tables.stacks.figures)
        columns = [self.of_stacks(name).tolist() for name in names]
        rows = zip(*columns, strict=True) if columns else iter(())
        return [
            Stack(node, site, dict(zip(names, row, strict=True)))
            for node, site, row in zip(self.stack_node.tolist(), self.stack_site.tolist(), rows, strict=True)
        ]

    def lines_of(self, values: Numbers) -> list[Figures]:
        """Adds up values, one for each stack, by the line of the stack's site; the largest first."""
        table = self.tables.locations
        sums = np.zeros(len(table.function))
        if len(values):
            np.add.at(sums, np.array(table.line_id, np.int64)[self.stack_site], values)
        return [
            Figures(self.locations[line], float(sums[line]), float(sums[line]))
            for line in np.argsort(-sums, kind="stable").tolist()
            if sums[line]
        ]

    def exclusive(self, group: Group, metric: str) -> dict[int, float]:
        """The exclusive figures by the first location of each line or function."""
        groups = self._groups(group)
        values = self.column(groups.exclusive, metric, groups.rows)
        return dict(zip(unpack_column(groups.location, groups.rows).tolist(), values.tolist(), strict=True))

    def by(self, metric: str, group: Group) -> list[Figures]:
        """The figures of each line or function, in descending order of the exclusive figure."""
        groups = self._groups(group)
        first = unpack_column(groups.location, groups.rows)
        exclusive = self.column(groups.exclusive, metric, groups.rows)
        inclusive = self.column(groups.inclusive, metric, groups.rows)
        shown = self._hottest_lines(metric) if group == "function" else None
        order = np.lexsort((-inclusive, -exclusive))
        return [
            Figures(
                self.locations[first[row] if shown is None else shown[first[row]]],
                float(exclusive[row]),
                float(inclusive[row]),
            )
            for row in order.tolist()
            if exclusive[row] or inclusive[row]
        ]

    def _groups(self, group: Group) -> Groups:
        return self.tables.functions if group == "function" else self.tables.lines

    def _hottest_lines(self, metric: str) -> Numbers:
        """The location of each function's line with the largest exclusive figure, by the function's first location."""
        table, lines = self.tables.locations, self.tables.lines
        of_line = np.zeros(len(table.function))
        of_line[unpack_column(lines.location, lines.rows)] = self.column(lines.exclusive, metric, lines.rows)
        values = of_line[np.array(table.line_id, np.int64)] if table.line_id else of_line
        most = np.arange(len(values))
        order = np.lexsort(
            (-np.arange(len(values)), values)
        )  # of equal values the first comes last, and wins
        most[np.array(table.function_id, np.int64)[order]] = order
        return most


def _check_range(values: Numbers, low: int, high: int | Numbers) -> None:
    """``low <= values < high``, else ValueError."""
    if not (np.all(values >= low) and np.all(values < high)):
        raise ValueError("a row that names another which does not exist")
