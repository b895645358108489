"""What the records of a run say of event building: one ``Building`` for each set of parameters that was run.

The ledger counts what became of every fragment of every event. The engine's BUs report what they built, its RUs what
they produced, and its event manager compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from assay.records.schema import AnyRecord, Measurement, Scalar
from assay.records.units import format_size

BUILD, SLICES, ALLTOALL, TUNE = "events.build", "events.slices", "events.alltoall", "events.tune"
# Parameters that tell records of one building apart; all others tell buildings apart.
OF_A_RECORD = {"direction", "lost", "returned", "stayed", "waiting_for"}
OF_RANKS = ("rank_throughput", "backpressure")
WRONG = ("fragments_corrupt", "fragments_duplicate", "fragments_unaccounted")  # never, whatever is asked
LEDGER = (
    "events_built",
    "events_incomplete",
    "events_reassigned",
    "fragments_built",
    "fragments_partial",
    "fragments_lost",
    *WRONG,
)


@dataclass(frozen=True)
class Slice:
    """One part of the time. ``slowest`` moved ``slowest_rate``; empty and NaN where the engine named none."""

    t: float  # s since the start, of its begin
    end: float
    rate: float  # B/s of all
    p50: float  # of an event's latency, s
    p99: float
    slowest: str = ""
    slowest_rate: float = math.nan
    ids: tuple[int, ...] = ()


@dataclass
class Building:
    """All records of one set of parameters."""

    params: dict[str, Scalar]
    totals: dict[str, Measurement] = field(default_factory=dict)  # metrics without a subject
    ranks: list[Measurement] = field(default_factory=list)  # rank_throughput, backpressure: one for each rank
    resumes: list[Measurement] = field(default_factory=list)  # one for each death
    slices: list[Slice] = field(default_factory=list)

    def count(self, metric: str) -> float | None:
        """The median of a figure; None where it was not measured."""
        record = self.totals.get(metric)
        if record is None or record.status != "ok" or record.summary is None:
            return None
        return record.median

    @property
    def throughput(self) -> float:
        """B/s of all builder units, as a median over the slices; NaN without one."""
        return self._rate("throughput")

    @property
    def network_throughput(self) -> float:
        """The part of it that came from other ranks."""
        return self._rate("network_throughput")

    def _rate(self, metric: str) -> float:
        value = self.count(metric)
        return math.nan if value is None else value

    @property
    def label(self) -> str:
        """ "push, shift, 512 KiB": what the parameters are in words."""
        return describe(self.params)


def buildings(records: Iterable[AnyRecord]) -> list[Building]:
    """Groups the records of ``events.build`` by their parameters, in the order in which they came.

    Slices carry no parameters: they belong to the building whose other records come after them. Those of a run that
    was cut short have a building of their own, without any parameters.
    """
    found: dict[tuple[tuple[str, str], ...], Building] = {}
    pending: dict[tuple[float, float], list[Measurement]] = {}
    for record in records:
        if not isinstance(record, Measurement):
            continue
        if record.name == SLICES:
            begin = float(record.params.get("t", math.nan))
            span = float(record.params.get("span", math.nan))
            pending.setdefault((begin, begin + span), []).append(record)
        elif record.name == BUILD:
            building = _building_of(record, found)
            _add(building, record)
            # Deaths are written while slices still come.
            if record.metric != "resume" and pending:
                building.slices += _slices(pending)
                pending = {}
    if pending:
        found[()] = Building({}, slices=_slices(pending))
    return list(found.values())


def _building_of(record: Measurement, found: dict[tuple[tuple[str, str], ...], Building]) -> Building:
    params = {key: value for key, value in record.params.items() if key not in OF_A_RECORD}
    key = tuple(sorted((name, str(value)) for name, value in params.items()))
    return found.setdefault(key, Building(params))


def _add(building: Building, record: Measurement) -> None:
    if record.metric == "resume":
        building.resumes.append(record)
    elif record.metric in OF_RANKS:
        building.ranks.append(record)
    else:
        building.totals[record.metric] = record


def _slices(pending: dict[tuple[float, float], list[Measurement]]) -> list[Slice]:
    return [_slice(*times, pending[times]) for times in sorted(pending)]


def _slice(begin: float, end: float, records: Sequence[Measurement]) -> Slice:
    by_metric = {record.metric: record for record in records}
    rate, latency = by_metric.get("throughput"), by_metric.get("latency")
    slowest = by_metric.get("rank_throughput")
    times = latency.summary if latency else None
    return Slice(
        begin,
        end,
        rate.median if rate else math.nan,
        times.median if times else math.nan,
        times.p99 if times and times.p99 is not None else math.nan,
        str(slowest.subject.host or "") if slowest else "",
        slowest.median if slowest else math.nan,
        tuple(record.id for record in records),
    )


def describe(params: dict[str, Scalar]) -> str:
    """The parameters that were asked for most, in words."""
    parts = [str(params[name]) for name in ("protocol", "schedule") if name in params]
    if "fragment" in params:
        parts.append(format_size(int(params["fragment"])))
    for name, words in (("credits", "credits"), ("parallel", "parallel"), ("in_flight", "in flight")):
        if name in params:
            parts.append(f"{params[name]} {words}")
    return ", ".join(parts)
