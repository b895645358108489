"""The tables of the terminal: without lines, with bold headings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from assay.records.units import format_quantity


def plain_table(*texts: str, numbers: Iterable[str] = (), **options: Any) -> Table:
    """A table with columns of text, then columns of numbers, aligned on the right. ``options``: those of rich."""
    table = Table(box=None, pad_edge=False, header_style="bold", **options)
    for heading in texts:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def quantity_cell(value: float | None, unit: str) -> str:
    return "-" if value is None else format_quantity(value, unit)
