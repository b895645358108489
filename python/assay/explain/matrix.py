"""The pair matrix of a run: the bandwidth between each measured pair of hosts.

A "host" here is a rank: its host, or host:0, host:1 if a host has several (a server with two adapters). Ranks of the
same host have no cell, since no network is between them.

All-to-all and client/server share one index of hosts. The matrix is sparse, a list of cells (source, target,
logarithm of the bandwidth), so ten shifts of 10,000 hosts need little memory. Cells are relative to the median of
their message size and operation: several sizes and operations of a run are then comparable, and their mean is less
noisy.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assay.records.matrices import cells_of
from assay.records.schema import AnyRecord, Matrix, Pairs, Scalar
from assay.records.statistics import median

# Bytes. Bandwidth limits messages of this size on all known networks; latency limits shorter ones.
BANDWIDTH_SIZE = 64 * 1024
ONE_WAY = "network.one_way"  # measured without traffic in the other direction; never mixed with the sweep
MAX_SIZE_RATIO = 8  # message sizes within this factor of the largest are combined

Row = Pairs | Matrix  # a row, or a whole matrix
Layer = tuple[str, Scalar, Scalar]  # measurement, operation, size
Cells = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]  # source, target, logarithm


@dataclass(frozen=True)
class PairMatrix:
    """Directed pairs of ``hosts`` (in rank order): cell k is from ``source[k]`` to ``target[k]``.

    ``value`` is the natural logarithm of the bandwidth over the median bandwidth, so -0.69 is half. ``typical`` is that
    median in B/s, of the layer where it is highest.
    ``layers`` says what was combined; ``rows`` has the ids of the records, by sending host.
    """

    hosts: list[str]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    value: NDArray[np.float32]
    layers: list[Layer] = field(default_factory=list)
    rows: dict[str, list[int]] = field(default_factory=dict)
    typical: float = math.nan

    @classmethod
    def from_records(
        cls,
        records: Iterable[AnyRecord],
        name: str,
        size: Scalar,
        op: Scalar,
        hosts: Sequence[str] = (),
    ) -> PairMatrix:
        """Builds the matrix of one measurement, size (B) and operation; ``hosts`` is the rank order."""
        rows = [row for row in _bandwidth_rows(records) if _layer(row) == (name, op, size)]
        return _combine({(name, op, size): rows} if rows else {}, hosts)

    @classmethod
    def of_bandwidth(cls, records: Iterable[AnyRecord], hosts: Sequence[str] = ()) -> PairMatrix:
        """Builds the matrix of a run's large messages in both directions at once, all operations combined.

        It has no hosts if the run has no pair matrix or all its ranks are on one host.
        """
        layers = _layers(row for row in _bandwidth_rows(records) if row.name != ONE_WAY)
        largest = max((_bytes(layer) for layer in layers), default=0.0)
        smallest = min(largest, max(BANDWIDTH_SIZE, largest / MAX_SIZE_RATIO))
        return _combine({layer: rows for layer, rows in layers.items() if _bytes(layer) >= smallest}, hosts)

    @classmethod
    def of_one_way(cls, records: Iterable[AnyRecord], hosts: Sequence[str]) -> PairMatrix:
        """Builds the matrix of what was measured one direction at a time; without hosts if nothing was."""
        return _combine(_layers(row for row in _bandwidth_rows(records) if row.name == ONE_WAY), hosts)

    @classmethod
    def from_dense(cls, bandwidth: NDArray[np.floating], hosts: Sequence[str]) -> PairMatrix:
        """Builds the matrix from a square array [source, target] in B/s; NaN and the diagonal are left out."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(bandwidth.astype(np.float32))
        np.fill_diagonal(logs, np.nan)
        source, target = np.nonzero(np.isfinite(logs))
        value = logs[source, target]
        value -= median(value) if value.size else 0
        return cls(list(hosts), source.astype(np.int32), target.astype(np.int32), value)


def _bandwidth_rows(records: Iterable[AnyRecord]) -> Iterable[Row]:
    return (
        record
        for record in records
        if isinstance(record, Pairs | Matrix)
        and record.metric == "bandwidth"
        and (isinstance(record, Matrix) or record.subject.host)
    )


def _layers(rows: Iterable[Row]) -> dict[Layer, list[Row]]:
    layers: dict[Layer, list[Row]] = defaultdict(list)
    for row in rows:
        layers[_layer(row)].append(row)
    return layers


def _layer(row: Row) -> Layer:
    return row.name, row.params.get("op", ""), row.params.get("size", 0)


def _bytes(layer: Layer) -> float:
    return float(layer[2]) if isinstance(layer[2], int | float) else 0.0


def host_of(label: str) -> str:
    """Returns the host of a rank: "server2" of "server2:1" and of "server2"."""
    name, _, number = label.rpartition(":")
    return name if name and number.isdigit() else label


def _combine(layers: dict[Layer, list[Row]], order: Sequence[str]) -> PairMatrix:
    """Averages each cell over the layers that measured it, relative to the layer's median."""
    rows = [row for layer in layers.values() for row in layer]
    senders = [sender for row in rows for sender in _senders(row)]
    # Senders in the given order, else in that of their rows; then those that only receive.
    rank = {host: number for number, host in enumerate(order)}
    first = sorted(
        dict.fromkeys(senders), key=lambda host: rank.get(host, rank.get(host_of(host), len(rank)))
    )
    index = defaultdict(itertools.count(len(first)).__next__, {host: n for n, host in enumerate(first)})
    cells = [_cells(layer, index) for layer in layers.values()]
    machine = np.unique([host_of(label) for label in index], return_inverse=True)[1]
    cells = [cells_between for layer in cells if (cells_between := _between(layer, machine))[2].size]
    centres = [median(value) for _, _, value in cells]
    if not cells:
        return PairMatrix([], np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
    source, target = (np.concatenate([layer[end] for layer in cells]) for end in (0, 1))
    value = np.concatenate(
        [layer[2] - np.float32(centre) for layer, centre in zip(cells, centres, strict=True)]
    )
    key, value = _mean_by(source * np.int64(len(index)) + target, value, len(index) ** 2)
    ids: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        for host in _senders(row):
            ids[host].append(row.id)
    source, target = (end.astype(np.int32) for end in np.divmod(key, len(index)))
    return PairMatrix(list(index), source, target, value, list(layers), dict(ids), math.exp(max(centres)))


def _senders(row: Row) -> list[str]:
    if isinstance(row, Pairs):
        return [str(row.subject.host)]
    return [row.hosts[i] for i in np.unique(cells_of(row)[0])]


def _cells(rows: Iterable[Row], index: dict[str, int]) -> Cells:
    """Returns the cells of a layer, with hosts as their numbers in ``index``."""
    parts = [_cells_of_row(row, index) for row in rows]
    source, target, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    is_usable = np.isfinite(value) & (value > 0)
    return source[is_usable], target[is_usable], np.log(value[is_usable])


def _cells_of_row(row: Row, index: dict[str, int]) -> Cells:
    if isinstance(row, Matrix):
        source, target, value = cells_of(row)
        number = np.fromiter(map(index.__getitem__, row.hosts), np.int32, len(row.hosts))
        return number[source], number[target], np.asarray(value)
    target = np.fromiter(map(index.__getitem__, row.peers), np.int32, len(row.peers))
    return (
        np.full(len(target), index[str(row.subject.host)], np.int32),
        target,
        np.asarray(row.values, np.float32),
    )


def _between(cells: Cells, machine: NDArray[np.integer]) -> Cells:
    """Keeps the cells between different machines. ``machine``: by host."""
    is_between = machine[cells[0]] != machine[cells[1]]
    return cells[0][is_between], cells[1][is_between], cells[2][is_between]


def _mean_by(
    key: NDArray[np.int64], value: NDArray[np.float32], cells: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Returns the ascending distinct keys and the mean value of each."""
    if key.size * 4 < cells:  # sparse: sorting the keys is cheaper than counting all possible ones
        distinct, which = np.unique(key, return_inverse=True)
        return distinct, (np.bincount(which, value) / np.bincount(which)).astype(np.float32)
    count = np.bincount(key, minlength=cells)
    sums = np.bincount(key, value, minlength=cells)
    distinct = np.flatnonzero(count)
    return distinct, (sums[distinct] / count[distinct]).astype(np.float32)
