"""The median of samples with its 95 % interval, by bootstrap.

Medians are used because a shared network has outliers on one side only. The bootstrap assumes no
distribution. It is seeded, so a run gives the same figures each time it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.records.statistics import median

RESAMPLES = 400
Z95 = 1.96  # half of a normal distribution's 95 % interval, in standard deviations
# Largest relative uncertainty of a time that is known well; of a median that is accepted where the mean is worse.
MAX_UNCERTAINTY, ACCEPTED_UNCERTAINTY = 0.04, 0.1
# A mean that is known well replaces a median that differs from it by this factor or more. If they are closer, it
# matters little which of them a size or a level uses.
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
    def uncertainty(self) -> float:
        """The distance to the farther end of the interval, relative to the value."""
        return (
            max(self.high - self.value, self.value - self.low) / self.value
            if self.value > 0
            else float("inf")
        )

    @property
    def standard_error(self) -> float:
        """Relative to the value. The interval of a few values is their range, which counts as one standard error."""
        return self.uncertainty / (Z95 if self.n >= MIN_VISITS_FOR_INTERVAL else 1.0)


def estimate(samples: Iterable[float]) -> Estimate:
    values = np.fromiter(samples, dtype=float)
    middle = median(values)
    if len(values) < 2 or np.ptp(values) == 0:
        return Estimate(middle, middle, middle, len(values))
    indices = np.random.default_rng(1).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[indices], axis=1), (0.025, 0.975))
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
    of_messages = estimate(median(samples) for samples in visits)
    of_runs = estimate(median(_means_of_runs(samples)) for samples in visits)
    is_enough = of_runs.n >= MIN_VISITS_FOR_INTERVAL
    differ = of_messages.uncertainty > MAX_UNCERTAINTY or not (
        of_messages.value / MEAN_RATIO <= of_runs.value <= of_messages.value * MEAN_RATIO
    )
    if differ and is_enough and of_runs.uncertainty <= MAX_UNCERTAINTY:
        return of_runs
    # Means vary more than ACCEPTED_UNCERTAINTY because of delays, not because of a token bucket.
    is_undecided = differ and (not is_enough or of_runs.uncertainty <= ACCEPTED_UNCERTAINTY)
    if of_messages.uncertainty <= ACCEPTED_UNCERTAINTY and not is_undecided:
        return of_messages
    return Estimate(
        of_messages.value,
        min(of_messages.low, of_runs.low),
        max(of_messages.high, of_runs.high),
        of_messages.n,
    )


def _means_of_runs(samples: Sequence[float]) -> NDArray[np.float64]:
    """Means of each RUN_LENGTH consecutive messages."""
    values = np.asarray(samples, dtype=np.float64)
    full = len(values) // RUN_LENGTH * RUN_LENGTH
    rows = values[:full].reshape(-1, RUN_LENGTH) if full else values[np.newaxis]
    return np.array([row.mean() for row in rows])


def summed(slices: Sequence[Sequence[float]]) -> list[float]:
    """The sum of several flows, slice by slice: flows that share a link take turns."""
    return [float(total) for total in np.sum(np.asarray(slices, dtype=float), axis=0)] if slices else []
