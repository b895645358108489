"""Times of single messages between two hosts, pooled from several visits to each size.

A disturbance (another program, a processor that changes its frequency) lasts longer than a burst of messages of some
microseconds. Times within a visit then agree with each other, but not with those of the next visit. So each size is
visited more than once, and the spread of the visits is the uncertainty.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assay.model.estimate import Estimate, estimate_of_visits
from assay.model.rounds import Flow
from assay.records.schema import AnyRecord, Measurement
from assay.records.statistics import median

VISITS = 20  # to a size in the sweep, at most; what is timed again at a study's end is numbered from here
NEAR = 8  # sizes that differ by up to this factor have a common scatter
NORMAL_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
SMALL = 16  # B: the time of a message up to this size counts as latency


@dataclass
class MessageTimes:
    """The times of one pair's messages in ping-pong, in s (half a round trip). A visit is one record."""

    pair: Flow
    visits: dict[int, list[Measurement]] = field(default_factory=lambda: defaultdict(list))  # by size in B
    _estimates: dict[tuple[int, int], Estimate] = field(default_factory=dict)  # cache, by size and visits

    def add(self, latencies: Iterable[Measurement]) -> None:
        for latency in latencies:
            if latency.samples:
                self.visits[int(latency.params["size"])].append(latency)

    def time_of(self, size: int) -> Estimate:
        """The time of a message of that size, which has been visited at least once."""
        key = size, len(self.visits[size])
        if key not in self._estimates:
            self._estimates[key] = estimate_of_visits([latency.samples for latency in self.visits[size]])
        return self._estimates[key]

    def medians(self) -> list[tuple[int, list[float]]]:
        """Each size with the median of each of its visits."""
        return [
            (size, [median(latency.samples) for latency in visits]) for size, visits in self.visits.items()
        ]

    def change_of(self, size: int) -> float:
        """How far the sweep and the times at the end of the study lie from their mean, relative."""
        end = [int(latency.params.get("visit", 0)) >= VISITS for latency in self.visits[size]]
        return change([median(latency.samples) for latency in self.visits[size]], end)

    def small_sizes(self) -> list[int]:
        """The sizes whose times are the pair's latency."""
        return [size for size in self.visits if size <= SMALL] or [min(self.visits)]

    @property
    def latency(self) -> float:
        """In s."""
        return median([self.time_of(size).value for size in self.small_sizes()])


Deviations = list[tuple[int, NDArray[np.float64]]]  # by size in B


def deviations(visits: Iterable[tuple[int, Sequence[float]]]) -> Deviations:
    """How far each visit's time lies from the mean of its size, relative. ``visits``: sizes, and the times of each."""
    result: Deviations = []
    for size, times in visits:
        if len(times) > 1:
            values = np.asarray(times, dtype=np.float64)
            # The mean is drawn from the same visits, so deviations from it are too small.
            result.append((size, (values / values.mean() - 1) * math.sqrt(len(values) / (len(values) - 1))))
    return result


def scatter(pooled: Deviations, size: int) -> float:
    """The standard deviation of a single visit to sizes near ``size``.

    Sizes and levels are pooled, since the two or three visits to one size may agree by chance. The median absolute
    deviation leaves out what only a few visits have; their own sizes show it.
    """
    near = [values for other, values in pooled if size / NEAR <= other <= size * NEAR]
    return NORMAL_MAD * median(np.abs(np.concatenate(near))) if near else 0.0


def change(times: Sequence[float], at_end: Sequence[bool]) -> float:
    """Half the difference between the medians of two sessions, relative: the standard error of the mean of the two."""
    values, late = np.asarray(times, dtype=np.float64), np.asarray(at_end, dtype=bool)
    if late.all() or not late.any():
        return 0.0
    first, second = median(values[~late]), median(values[late])
    return float(abs(second - first) / (second + first))


def error_of_time(time: Estimate, pooled: Deviations, size: int, change: float) -> float:
    """The standard error of a time, relative: its own, and at least that of as many typical visits, and ``change``.

    Visits in a row share a disturbance, so two count as one. What changes within minutes shows in no single session.
    """
    return max(time.standard_error, scatter(pooled, size) * math.sqrt(2 / time.n), change)


def sweeps(records: Iterable[AnyRecord]) -> dict[str, MessageTimes]:
    """The message times of a run's sweeps over message sizes, by level: "inside" a cabinet, "between" two."""
    by_level: dict[str, MessageTimes] = {}
    for record in records:
        if isinstance(record, Measurement) and record.params.get("experiment") == "sweep":
            pair = str(record.subject.host), str(record.subject.peer)
            by_level.setdefault(str(record.params["level"]), MessageTimes(pair)).add([record])
    return by_level
