"""A figure and how sure it is: the median of samples and its 95 % interval, by bootstrap.

Medians, because a shared network has outliers on one side; the bootstrap, because the samples' distribution
is nobody's business. Seeded, so that a run gives the same figures each time that it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 400
SURE, ALIKE = 0.04, 0.1  # relative: so near to each other are a time's figures; and with no bucket in sight
BUCKET = 0.02  # relative: so near to each other are a bucket's means
MORE = 1.2  # times as much is not only disturbed
IN_A_ROW = 10  # messages
ENCLOSING = 6  # values: so many enclose their median with 95 %


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    high: float
    n: int

    @property
    def doubt(self) -> float:
        """Half the interval's width, relative to the value."""
        return (self.high - self.low) / 2 / self.value if self.value > 0 else float("inf")

    @property
    def reach(self) -> float:
        """The interval's farther end, relative to the value."""
        return (
            max(self.high - self.value, self.value - self.low) / self.value
            if self.value > 0
            else float("inf")
        )


def estimate(samples: Iterable[float]) -> Estimate:
    values = np.fromiter(samples, dtype=float)
    middle = float(np.median(values))
    if len(values) < 2 or np.ptp(values) == 0:
        return Estimate(middle, middle, middle, len(values))
    picks = np.random.default_rng(1).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[picks], axis=1), (0.025, 0.975))
    return Estimate(middle, float(low), float(high), len(values))


def typical(times: Sequence[float] | NDArray[np.float64]) -> float:
    """A low quantile of times: a message may be held up, but none is faster than the way."""
    return float(np.quantile(times, 0.1))


def typical_of(visits: Sequence[Sequence[float]]) -> Estimate:
    """Of the visits' medians. What disturbs a visit lasts for all of it: so visits count whole. Behind a token bucket
    some messages pass at once and others wait for it to fill, and a median is of whichever are more; but what a few in
    a row take together hardly varies at all. Where neither is sure, it may be either."""
    single = estimate(float(np.median(samples)) for samples in visits)
    together = estimate(float(np.median(_in_a_row(samples))) for samples in visits)
    is_apart = together.value > MORE * single.value or single.reach > SURE
    may_be_bucket = is_apart and together.reach <= SURE and together.n >= ENCLOSING
    if may_be_bucket and together.reach <= BUCKET:
        return together
    if single.reach <= ALIKE and not may_be_bucket:
        return single
    return Estimate(single.value, min(single.low, together.low), max(single.high, together.high), single.n)


def _in_a_row(samples: Sequence[float]) -> NDArray[np.float64]:
    """Means of so many messages that follow each other."""
    values = np.asarray(samples, dtype=np.float64)
    whole = len(values) // IN_A_ROW * IN_A_ROW
    rows = values[:whole].reshape(-1, IN_A_ROW) if whole else values[np.newaxis]
    return np.array([row.mean() for row in rows])


def summed(slices: Sequence[Sequence[float]]) -> list[float]:
    """The samples of the sum of several flows: slice by slice, since flows that share a link take turns."""
    return [float(total) for total in np.sum(np.asarray(slices, dtype=float), axis=0)] if slices else []
