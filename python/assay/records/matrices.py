"""Pair matrices of many hosts: their cells in files of a run, and the rows of an engine collected into them.

As JSON a matrix of 1,000 hosts and 23 sizes takes 700 MB, and several times that in memory. These files take 100 MB;
they are mapped, so that only the parts that are read take memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import UserError
from assay.records.files import replace_file
from assay.records.schema import Matrix, Pairs, Subject

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Cells = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]  # source, target, value


class RowCollector:
    """Collects the rows of one matrix, and writes it to ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._first_row: Pairs | None = None
        self._number: dict[str, int] = {}
        self._sources: list[NDArray[np.int32]] = []
        self._targets: list[NDArray[np.int32]] = []
        self._values: list[NDArray[np.float32]] = []
        self._index: tuple[str, str] = ("", "")  # digest and file of the last index

    @property
    def is_empty(self) -> bool:
        return self._first_row is None

    def accepts(self, row: Pairs) -> bool:
        """Whether a row belongs to the matrix that is being collected."""
        first_row = self._first_row
        return first_row is None or (first_row.name, first_row.metric, first_row.unit, first_row.params) == (
            row.name, row.metric, row.unit, row.params,
        )  # fmt: skip

    def add(self, row: Pairs) -> None:
        self._first_row = self._first_row or row
        number = self._number
        ends = [number.setdefault(name, len(number)) for name in (str(row.subject.host), *row.peers)]
        self._sources.append(np.full(len(row.peers), ends[0], np.int32))
        self._targets.append(np.array(ends[1:], np.int32))
        self._values.append(np.array(row.values, np.float32))

    def write(self, identity: int) -> Matrix:
        """Writes the files of the matrix and forgets its rows. ``identity``: the record's id."""
        first_row = self._first_row
        assert first_row is not None
        hosts = list(self._number)
        index = np.concatenate([*self._sources, *self._targets]).astype("<i4").tobytes()
        digest = hashlib.sha256("\0".join(hosts).encode() + index).hexdigest()
        if digest != self._index[0]:
            self._index = (digest, f"pairs-{identity}.i32")
            replace_file(self._folder / self._index[1], index)
        values = np.concatenate(self._values).astype("<f4")
        file = f"pairs-{identity}.f32"
        replace_file(self._folder / file, values.tobytes())
        matrix = Matrix(
            id=identity, name=first_row.name, metric=first_row.metric, unit=first_row.unit, better=first_row.better,
            params=first_row.params, hosts=hosts, cells=len(values), index=self._index[1], values=file,
        )  # fmt: skip
        set_folder(matrix, self._folder)
        self._first_row = None
        self._sources, self._targets, self._values, self._number = [], [], [], {}
        return matrix


def set_folder(matrix: Matrix, folder: Path) -> None:
    """Sets the run's folder in which the record's files are."""
    vars(matrix)["folder"] = folder


def cells_of(matrix: Matrix) -> Cells:
    """Returns the cells of a matrix, mapped from its files. Raises UserError where these do not fit the record."""
    folder: Path = vars(matrix)["folder"]
    ends: NDArray[np.int32] = _map_file(folder, matrix.index, "<i4", 2 * matrix.cells)
    values: NDArray[np.float32] = _map_file(folder, matrix.values, "<f4", matrix.cells)
    if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= len(matrix.hosts)):
        raise UserError(
            f"{folder / matrix.index}: a host beyond the {len(matrix.hosts)} of the record",
            "was it edited by hand?",
        )
    return ends[: matrix.cells], ends[matrix.cells :], values


def _map_file(folder: Path, name: str, kind: str, count: int) -> NDArray[Any]:
    if not _FILE_NAME.fullmatch(name):
        raise UserError(f"{folder}: a matrix names the file {name[:100]!r}", "only files of the run are read")
    path = folder / name
    try:
        if path.is_symlink() or not path.is_file():
            raise UserError(f"{path}: missing, or no plain file", "copy the whole directory of the run")
        if path.stat().st_size != 4 * count:
            raise UserError(
                f"{path}: {path.stat().st_size} bytes, where its record has {count} values of 4 bytes",
                "copy the file again",
            )
        return np.memmap(path, kind, "r", shape=(count,)) if count else np.empty(0, kind)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def rows_of(matrix: Matrix) -> Iterator[Pairs]:
    """Yields the matrix as the rows that it stands for, with its id."""
    source, target, value = cells_of(matrix)
    order = np.argsort(source, kind="stable")
    ends = np.searchsorted(source[order], np.arange(len(matrix.hosts) + 1))
    for number, host in enumerate(matrix.hosts):
        cells = order[ends[number] : ends[number + 1]]
        if cells.size:
            yield Pairs(
                id=matrix.id, name=matrix.name, metric=matrix.metric, unit=matrix.unit, better=matrix.better,
                subject=Subject(host=host), params=matrix.params, peers=[matrix.hosts[i] for i in target[cells]],
                values=value[cells].tolist(),
            )  # fmt: skip
