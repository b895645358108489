"""Median polish of a pair matrix: the effects of sending host, receiving host and shift on the bandwidth.

    log bandwidth(i to j) = transmit(i) + receive(j) + shift(j - i) + residual

Medians are insensitive to a minority of bad cells (J. W. Tukey, Exploratory Data Analysis, 1977). The shift term
removes what the schedule does to all hosts at once: a shift by half of the hosts crosses the top of the tree, and on
a healthy, oversubscribed network it is slower for all. 4096 x 4096 cells take seconds: the cells are grouped once,
and each step is one gather and one sort.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.explain.matrix import PairMatrix
from assay.records.statistics import robust_sigma

MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean, of normal values
SCALE_FLOOR = 0.005  # relative; no bandwidth is known more precisely
MAX_SAMPLE = 1 << 20  # values that give a spread with an error of 0.1 %
MIN_MEMBERS = 4  # members; fewer have no majority to compare with

Floats = NDArray[np.float32]


def sample(cells: int) -> slice:
    """Returns the slice of all cells, or of every k-th if there are millions: enough for medians and means."""
    return slice(None, None, cells // MAX_SAMPLE + 1)


def spread(value: Floats) -> float:
    """Returns a robust standard deviation of the values, from a sample if they are many."""
    return robust_sigma(value[sample(value.size)])


class Groups:
    """Medians by group for a fixed grouping of the cells, which the polish repeats."""

    def __init__(self, group: NDArray[np.integer], count: int) -> None:
        self.size: NDArray[np.int64] = np.bincount(group, minlength=count)
        self.count, self.width = count, int(self.size.max(initial=0))
        self.order: NDArray[np.integer] | slice = slice(None)
        if (group[1:] < group[:-1]).any():
            group_16bit = (
                group.astype(np.uint16) if count <= 1 << 16 else group
            )  # numpy sorts 16 bits by radix
            self.order = np.argsort(group_16bit, kind="stable").astype(np.int32)
        # The place of each sorted cell in the table of median(); None: all in order.
        self.place: NDArray[np.integer] | None = None
        if (self.size != self.width).any():
            start = np.cumsum(self.size) - self.size
            gap = np.arange(count) * self.width - start  # the free places before a group
            if count * self.width < 1 << 31:
                gap = gap.astype(np.int32)
            self.place = np.repeat(gap, self.size) + np.arange(group.size, dtype=gap.dtype)

    def median(self, value: Floats) -> Floats:
        """Returns one median for each group; NaN for a group without cells."""
        if self.place is None:
            table = value[self.order].copy()
        else:
            table = np.full(self.count * self.width, np.nan, np.float32)
            table[self.place] = value[self.order]
        table = table.reshape(self.count, self.width)
        table.sort(axis=1)  # NaN goes last
        row = np.arange(self.count)
        middle = (
            table[row, np.maximum(self.size - 1, 0) // 2]
            + table[row, np.minimum(self.size // 2, self.width - 1)]
        )
        return np.where(self.size > 0, middle / 2, np.float32(np.nan)).astype(np.float32)


@dataclass
class Fit:
    """The fitted effects, as natural logarithms of relative bandwidth.

    An effect has no absolute zero: compare it with the others of its ``component``.
    """

    value: Floats  # [cell], without the effect of the shift
    transmit: Floats  # [host], NaN for one that did not send
    receive: Floats  # [host], NaN for one that did not receive
    residual: Floats  # [cell]
    sigma: float  # standard deviation of a residual
    component: NDArray[np.int64]  # [2 x hosts]: the component of each sender, then of each receiver


def fit(matrix: PairMatrix) -> Fit:
    """Fits the matrix by median polish: at most six sweeps, until no effect changes by more than 0.2 %."""
    count = len(matrix.hosts)
    by_source, by_target = Groups(matrix.source, count), Groups(matrix.target, count)
    value = _without_shifts(matrix)
    transmit, receive = np.zeros(count, np.float32), np.zeros(count, np.float32)
    for _ in range(6):
        before = transmit
        transmit = np.nan_to_num(by_source.median(value - receive[matrix.target]))
        receive = np.nan_to_num(by_target.median(value - transmit[matrix.source]))
        if np.abs(transmit - before).max() < 0.002:
            break
    residual = value - transmit[matrix.source] - receive[matrix.target]
    parameters = int(np.count_nonzero(by_source.size) + np.count_nonzero(by_target.size)) - 1
    # Each fitted parameter makes residuals smaller than the errors.
    correction = np.sqrt(residual.size / max(residual.size - parameters, 1))
    sigma = max(spread(residual) * float(correction), SCALE_FLOOR)
    transmit[by_source.size == 0] = np.nan
    receive[by_target.size == 0] = np.nan
    return Fit(value, transmit, receive, residual, sigma, _components(matrix))


def _without_shifts(matrix: PairMatrix) -> Floats:
    """Subtracts the median of each shift, if most hosts take part in every shift."""
    count = len(matrix.hosts)
    if count < MIN_MEMBERS:
        return matrix.value
    shift = (matrix.target - matrix.source - 1) % count  # from 0; no host sends to itself
    groups = Groups(shift, count - 1)
    if ((groups.size > 0) & (groups.size * 2 <= count)).any():
        return matrix.value
    median = np.nan_to_num(groups.median(matrix.value))
    centred: Floats = matrix.value - median[shift]
    return centred


def _components(matrix: PairMatrix) -> NDArray[np.int64]:
    """Labels the senders and receivers that can be compared, by the smallest index reachable through cells.

    Clients that send to servers and servers that send to clients are different components.
    """
    count = len(matrix.hosts)
    label = np.arange(2 * count)
    while True:
        before = label.copy()
        senders, receivers = label[:count], label[count:]
        np.minimum.at(receivers, matrix.target, senders[matrix.source])
        np.minimum.at(senders, matrix.source, receivers[matrix.target])
        if (label == before).all():
            return label
