"""Times of single messages between two hosts, pooled from several visits to each size.

A disturbance (another program, a processor that changes its frequency) lasts longer than a burst of messages of some
microseconds. Times within a visit then agree with each other, but not with those of the next visit. So each size is
visited more than once, and the spread of the visits is the uncertainty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from assay.model.estimate import Estimate, estimate_of_visits
from assay.model.rounds import Flow
from assay.records.schema import AnyRecord, Measurement

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

    def small_sizes(self) -> list[int]:
        """The sizes whose times are the pair's latency."""
        return [size for size in self.visits if size <= SMALL] or [min(self.visits)]

    @property
    def latency(self) -> float:
        """In s."""
        return float(np.median([self.time_of(size).value for size in self.small_sizes()]))


def sweeps(records: Iterable[AnyRecord]) -> dict[str, MessageTimes]:
    """The message times of a run's sweeps over message sizes, by level: "inside" a cabinet, "between" two."""
    by_level: dict[str, MessageTimes] = {}
    for record in records:
        if isinstance(record, Measurement) and record.params.get("experiment") == "sweep":
            pair = str(record.subject.host), str(record.subject.peer)
            by_level.setdefault(str(record.params["level"]), MessageTimes(pair)).add([record])
    return by_level
