"""Median polish of a pair matrix: what each host's sides, and each shift, do to the bandwidth.

    log bandwidth(i to j) = transmit(i) + receive(j) + shift(j - i) + residual

Medians, so that a minority of bad cells moves nothing (J. W. Tukey, Exploratory Data Analysis, 1977).
The shift term takes out what the schedule does to everybody at once: a shift by half of the hosts
crosses the top of the tree, and on a healthy, oversubscribed network it is slower for all. 4096 x 4096
cells take seconds: the cells are put into groups once, and each step is one gather and one sort.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.explain.matrix import PairMatrix
from assay.records.statistics import robust_sigma

SCALE_FLOOR = 0.005  # no bandwidth is known better than to half a percent
ENOUGH = 1 << 20  # values, to know their spread to a thousandth
FEWEST = 4  # members below which there is no majority to compare with

Floats = NDArray[np.float32]


def sample(cells: int) -> slice:
    """Every cell, or of many millions every so many-th: enough for a median, a spread, a mean of blocks."""
    return slice(None, None, cells // ENOUGH + 1)


def spread(value: Floats) -> float:
    """A robust standard deviation: scaled median absolute deviation from the median."""
    return robust_sigma(value[sample(value.size)])


class Groups:
    """Medians by group, for one fixed grouping of the cells: the step that the polish repeats."""

    def __init__(self, group: NDArray[np.integer], count: int) -> None:
        self.size: NDArray[np.int64] = np.bincount(group, minlength=count)
        self.count, self.width = count, int(self.size.max(initial=0))
        self.order: NDArray[np.integer] | slice = slice(None)
        if (group[1:] < group[:-1]).any():
            narrow = group.astype(np.uint16) if count <= 1 << 16 else group  # numpy sorts 16 bits by radix
            self.order = np.argsort(narrow, kind="stable").astype(np.int32)
        self.place: NDArray[np.int64] | None = None
        if (self.size != self.width).any():
            start = np.cumsum(self.size) - self.size
            slot = np.arange(group.size) - np.repeat(start, self.size)
            self.place = np.repeat(np.arange(count) * self.width, self.size) + slot

    def median(self, value: Floats) -> Floats:
        """One median a group; NaN for a group without cells."""
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
    """What the polish found, in logarithms.

    An effect has no zero of its own: compare it with the others of its ``component``.
    """

    value: Floats  # [cell], without the effect of the shift
    transmit: Floats  # [host], NaN for one that did not send
    receive: Floats  # [host], NaN for one that did not receive
    residual: Floats  # [cell]
    sigma: float  # standard deviation of a residual
    component: NDArray[np.int64]  # [2 x hosts]: of each as a sender, then of each as a receiver


def fit(matrix: PairMatrix) -> Fit:
    """Median polish of the matrix: a few sweeps, until no effect moves by more than 0.2 %."""
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
    # Every parameter makes a residual smaller than the error that it stands for.
    correction = np.sqrt(residual.size / max(residual.size - parameters, 1))
    sigma = max(spread(residual) * float(correction), SCALE_FLOOR)
    transmit[by_source.size == 0] = np.nan
    receive[by_target.size == 0] = np.nan
    return Fit(value, transmit, receive, residual, sigma, _components(matrix))


def _without_shifts(matrix: PairMatrix) -> Floats:
    """The cells less the median of their shift, where everybody takes part in every shift."""
    count = len(matrix.hosts)
    if count < FEWEST:
        return matrix.value
    shift = (matrix.target - matrix.source - 1) % count  # from 0; nobody sends to itself
    groups = Groups(shift, count - 1)
    if ((groups.size > 0) & (groups.size * 2 <= count)).any():
        return matrix.value
    median = np.nan_to_num(groups.median(matrix.value))
    centred: Floats = matrix.value - median[shift]
    return centred


def _components(matrix: PairMatrix) -> NDArray[np.int64]:
    """Which senders and receivers can be compared: the smallest index reachable through cells.

    Clients that send to servers and servers that send to clients have no level in common.
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
