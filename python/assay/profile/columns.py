"""Columns of a profile's tables as arrays, and arrays as columns (assay.records.profile.Column)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.records.profile import Column

Numbers = NDArray[Any]

_TYPES = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "i4": "<i4", "f4": "<f4", "f8": "<f8"}


def unpack_column(column: Column, rows: int) -> Numbers:
    """The ``rows`` numbers of a column. Raises ValueError for a column of another length, or with a value that is not
    finite."""
    if column.type == "zero":
        return np.zeros(rows, np.uint8)
    values = np.frombuffer(column.data, _TYPES[column.type])
    if len(values) != rows:
        raise ValueError(f"a column of {len(values)} rows in a table of {rows}")
    if not np.all(np.isfinite(values)):
        raise ValueError("a column with a value that is not finite")
    return values


def index_column(values: Numbers) -> Column:
    """A column of indices, -1 for none."""
    return Column("i4", values.astype("<i4").tobytes())


def pack_column(values: Numbers) -> Column:
    """A column in the narrowest type that holds the numbers; of numbers with fractions it keeps seven digits."""
    if not np.any(values):
        return Column("zero", b"")
    if np.min(values) < 0:
        return Column("i4", values.astype("<i4").tobytes())
    if np.any(values != np.floor(values)):
        return Column("f4", values.astype("<f4").tobytes())
    most = np.max(values)
    for kind, limit in (("u1", 2**8), ("u2", 2**16), ("u4", 2**32)):
        if most < limit:
            return Column(kind, values.astype(_TYPES[kind]).tobytes())  # type: ignore[arg-type]
    return Column("f8", values.astype("<f8").tobytes())
