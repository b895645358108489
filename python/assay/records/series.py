"""Records of slices of time, of a run that may take hours: a bounded number of them is kept in memory and in the page.

Of each stretch of time the slice with the lowest rate and the one with the highest stay, so that a short dip is never
lost. ``records.jsonl`` has all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from assay.records.schema import AnyRecord, Measurement

SLICES = "events.slices"
RATE = "throughput"  # the metric whose extremes are kept
MAX_SLICES = 4096  # more points than a screen has columns


@dataclass
class _Slice:
    """The records of one slice, by their positions."""

    t: float  # start, s
    rate: float = 0.0
    positions: list[int] = field(default_factory=list)


class KeptRecords:
    """All records but those of slices that were thinned out. They are the same whether they come one by one as they are
    measured, or from a file."""

    def __init__(self) -> None:
        self.records: list[AnyRecord] = []
        self._slices = 0
        self._t: float | None = None  # of the newest slice

    def append(self, record: AnyRecord) -> None:
        if isinstance(record, Measurement) and record.name == SLICES:
            t = _start(record)
            if t != self._t:  # the slices before are whole
                self._t = t
                self._slices += 1
                if self._slices > MAX_SLICES:
                    self.records, self._slices = _thinned(self.records)
                    self._slices += 1
        self.records.append(record)


def _start(record: Measurement) -> float:
    return float(record.params.get("t", 0))


def _thinned(records: Sequence[AnyRecord]) -> tuple[list[AnyRecord], int]:
    """The records without the slices between the extremes, and the number of slices that are left: about half of
    MAX_SLICES, shared by all series."""
    series = _series(records)
    stretches = max(1, MAX_SLICES // (4 * len(series)))  # of each series; two slices of each stay
    dropped: set[int] = set()
    count = 0
    for slices in series:
        kept = _extremes(slices, stretches)
        count += len(kept)
        dropped.update(p for each in slices if each.t not in kept for p in each.positions)
    return [record for position, record in enumerate(records) if position not in dropped], count


def _series(records: Sequence[AnyRecord]) -> list[list[_Slice]]:
    """The slices of each measurement in turn: time begins again where another measurement begins."""
    series: list[list[_Slice]] = []
    for position, record in enumerate(records):
        if not isinstance(record, Measurement) or record.name != SLICES:
            continue
        t = _start(record)
        if not series or t < series[-1][-1].t:
            series.append([_Slice(t)])
        elif t > series[-1][-1].t:
            series[-1].append(_Slice(t))
        newest = series[-1][-1]
        newest.positions.append(position)
        if record.metric == RATE and record.summary is not None:
            newest.rate = record.summary.median
    return series


def _extremes(slices: Sequence[_Slice], stretches: int) -> set[float]:
    """The starts of the first and the last slice, and of the lowest and the highest of each stretch of time."""
    begin, end = slices[0].t, slices[-1].t
    kept = {begin, end}
    if end > begin:
        for _, stretch in groupby(slices, lambda each: int((each.t - begin) / (end - begin) * stretches)):
            members = list(stretch)
            kept.add(min(members, key=lambda each: each.rate).t)
            kept.add(max(members, key=lambda each: each.rate).t)
    return kept
