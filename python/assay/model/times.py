"""Times of single messages between two hosts, pooled from several visits to each size.

What disturbs a message of some microseconds (another program, a processor that changes its frequency) lasts
longer than a burst of them: times of one visit agree with each other, and not with those of the next. So a
size is visited more than once, and how far the visits lie apart is how sure its time is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from assay.model.estimate import Estimate, typical_of
from assay.model.rounds import Flow
from assay.records.schema import AnyRecord, Measurement


@dataclass
class Times:
    """Of one pair: by size the records of its visits, in seconds a message."""

    pair: Flow
    visits: dict[int, list[Measurement]] = field(default_factory=lambda: defaultdict(list))
    _known: dict[tuple[int, int], Estimate] = field(default_factory=dict)  # by size and number of visits

    def add(self, echoes: Iterable[Measurement]) -> None:
        for one in echoes:
            if one.samples:
                self.visits[int(one.params["size"])].append(one)

    def at(self, size: int) -> Estimate:
        key = size, len(self.visits[size])
        if key not in self._known:
            self._known[key] = typical_of([one.samples for one in self.visits[size]])
        return self._known[key]


def sweeps(records: Iterable[AnyRecord]) -> dict[str, Times]:
    """What a run has of them, by level: inside a cabinet, between two."""
    found: dict[str, Times] = {}
    for one in records:
        if isinstance(one, Measurement) and one.params.get("experiment") == "sweep":
            pair = str(one.subject.host), str(one.subject.peer)
            found.setdefault(str(one.params["level"]), Times(pair)).add([one])
    return found
