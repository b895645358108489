"""The median of samples with its 95 % interval, by bootstrap.

Medians are used because a shared network has outliers on one side only. The bootstrap assumes no
distribution. It is seeded, so a run gives the same figures each time it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 400
# Largest relative uncertainty of a time that is known well, and of a median that is accepted where no mean is.
MAX_UNCERTAINTY, ACCEPTED_UNCERTAINTY = 0.04, 0.1
# A mean that is known well is used where it and the median have this ratio, either way. Closer than that it matters
# little that a neighbouring size, or the same one at the other level, has the other of the two.
MEAN_RATIO = 1.04
RUN_LENGTH = 10  # consecutive messages of which a mean is taken
MIN_VISITS_FOR_INTERVAL = 6  # the range of 6 values contains their median with 95 %


@dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the interval's width, relative to the value."""
        return (self.high - self.low) / 2 / self.value if self.value > 0 else float("inf")

    @property
    def uncertainty(self) -> float:
        """The distance to the farther end of the interval, relative to the value."""
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
    """The 10 % quantile of times: a message may be delayed, but is never faster than its path."""
    return float(np.quantile(times, 0.1))


def estimate_of_visits(visits: Sequence[Sequence[float]]) -> Estimate:
    """The typical time from several visits; each visit is a sequence of times in s, in order.

    A disturbance lasts for a whole visit, so each visit counts as one value. Behind a token bucket some messages
    pass at once and others wait: the median of single messages is then bimodal, but the mean of consecutive
    messages hardly varies, unless fewer than one in RUN_LENGTH waits. How much it varies is known from
    MIN_VISITS_FOR_INTERVAL visits on. Until then, and where neither of the two is sure, the interval spans both.
    """
    single = estimate(float(np.median(samples)) for samples in visits)
    together = estimate(float(np.median(_means_of_runs(samples))) for samples in visits)
    is_enough = together.n >= MIN_VISITS_FOR_INTERVAL
    differ = single.uncertainty > MAX_UNCERTAINTY or not (
        single.value / MEAN_RATIO <= together.value <= single.value * MEAN_RATIO
    )
    if differ and is_enough and together.uncertainty <= MAX_UNCERTAINTY:
        return together
    # Means that vary more than this are of delays, not of a bucket.
    is_undecided = differ and (not is_enough or together.uncertainty <= ACCEPTED_UNCERTAINTY)
    if single.uncertainty <= ACCEPTED_UNCERTAINTY and not is_undecided:
        return single
    return Estimate(single.value, min(single.low, together.low), max(single.high, together.high), single.n)


def _means_of_runs(samples: Sequence[float]) -> NDArray[np.float64]:
    """Means of each RUN_LENGTH consecutive messages."""
    values = np.asarray(samples, dtype=np.float64)
    full = len(values) // RUN_LENGTH * RUN_LENGTH
    rows = values[:full].reshape(-1, RUN_LENGTH) if full else values[np.newaxis]
    return np.array([row.mean() for row in rows])


def summed(slices: Sequence[Sequence[float]]) -> list[float]:
    """The sum of several flows, slice by slice: flows that share a link take turns."""
    return [float(total) for total in np.sum(np.asarray(slices, dtype=float), axis=0)] if slices else []
