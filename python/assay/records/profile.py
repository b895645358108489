"""The parts of every profile: columns, locations, the call tree, figures by stack, line and function.

A profiler defines its metrics as a list of ``Metric`` and its profile as a ``Struct`` (assay.records.heap). From both
``python -m assay.records.generate`` makes the analyser's structs (engines/profile/analyse/*_schema.hpp) and the page's
types (web/src/data/*Profile.ts), so that no field is named twice.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Fold = Literal["sum", "least", "most", "peak", "mean"]


class Metric(Struct, frozen=True, omit_defaults=False):
    """A figure of stacks, lines and functions. ``fold``: how the figures of several stacks become one: their sum, the
    least or the largest; a peak is followed over time; a mean is the quotient of two other metrics."""

    key: str
    label: str
    unit: Literal["B", "1", "s"]
    fold: Fold
    dividend: str = ""  # of a mean
    divisor: str = ""
    known_by: str = ""  # of a least: the count that is 0 where the least is unknown; it is stored as 0 there
    listed: bool = False  # in the terminal, in comparisons and exports; sums alone
    shown: bool = True  # offered in the page


class Column(Struct):
    """Numbers, one for each row, in little-endian order. ``type``: "zero" (all are 0; no data), or unsigned integers
    (u1, u2, u4), signed integers (i4) or floating point numbers (f4, f8) with their size in bytes."""

    type: Literal["zero", "u1", "u2", "u4", "i4", "f4", "f8"]
    data: bytes


class Locations(Struct):
    """Lines of functions. Allocations of an allocator frame (malloc, operator new, std::...) count for its caller.
    ``function_id`` and ``line_id`` are the first location of the same function and of the same line of source."""

    function: list[str]
    file: list[str]
    line: list[int]
    module: list[str]
    inlined: list[bool]
    is_allocator_frame: list[bool]
    function_id: list[int]
    line_id: list[int]


class Stacks(Struct):
    """The stacks with exclusive figures: ``node`` is the innermost call, ``site`` the location that counts as their
    cause (the innermost one that is not an allocator frame). ``figures``: a column for each metric."""

    rows: int
    node: Column
    site: Column
    figures: dict[str, Column]


class Nodes(Struct):
    """The call tree, callers before their callees; ``parent`` is -1 for an outermost call. ``figures`` are those of a
    call with everything that it calls."""

    rows: int
    parent: Column
    location: Column
    figures: dict[str, Column]


class Groups(Struct):
    """Lines or functions by their first location. ``exclusive`` figures are those of the group itself; ``inclusive``
    ones add the functions that it called, where a recursive function counts once per stack."""

    rows: int
    location: Column
    exclusive: dict[str, Column]
    inclusive: dict[str, Column]


class Tree(Struct):
    locations: Locations
    nodes: Nodes
    stacks: Stacks
    lines: Groups
    functions: Groups


class Source(Struct):
    text: str
    changed: bool  # modified since the program was compiled or ran


class SourceProblem(Struct):
    """A source file that is not shown, or that may not be the recorded program's."""

    file: str
    problem: str
    fix: str
