"""Collects the records of event building in a run: one ``Building`` for each set of parameters.

Readout units (RUs) produce fragments, builder units (BUs) assemble them to events. The ledger counts the outcome of
every fragment: BUs report the fragments that they built, RUs those that they produced, and the event manager compares
the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from assay.records.schema import AnyRecord, Measurement, Scalar
from assay.records.series import SLICES
from assay.records.units import format_size

BUILD, ALLTOALL, TUNE = "events.build", "events.alltoall", "events.tune"
# Parameters that differ between records of one ``Building``; all others identify it.
RECORD_PARAMS = {"direction", "lost", "returned", "stayed", "steps", "waiting_for"}
BETWEEN_SLICES = ("resume", "return", "replan")
RANK_METRICS = ("rank_throughput", "backpressure", "packets_sent", "packets_resent")
WRONG_FRAGMENTS = (
    "fragments_corrupt",
    "fragments_duplicate",
    "fragments_unaccounted",
)  # always 0 in a correct run
LEDGER = (
    "events_built",
    "events_incomplete",
    "events_reassigned",
    "fragments_built",
    "fragments_partial",
    "fragments_lost",
    *WRONG_FRAGMENTS,
)


@dataclass(frozen=True)
class Slice:
    """An interval of the run's time."""

    t: float  # start of the slice, s since the start of the run
    end: float  # s since the start of the run
    rate: float  # B/s of all ranks together
    p50: float  # latency of an event, s
    p99: float
    slowest: str = ""  # host of the slowest rank; "" where the engine named none
    slowest_rate: float = math.nan  # B/s
    ids: tuple[int, ...] = ()  # of the records


@dataclass
class Gone:
    """When a lost rank was gone, in s since the start of the run, as far as the order of the records tells it: they are
    written at the resume and at the return, between slices that are at most two behind."""

    label: str
    start: float
    end: float = math.inf


@dataclass
class Building:
    """The event building with one set of parameters: all its records."""

    params: dict[str, Scalar]
    totals: dict[str, Measurement] = field(default_factory=dict)  # metrics without a subject
    ranks: list[Measurement] = field(default_factory=list)  # RANK_METRICS: one for each rank
    resumes: list[Measurement] = field(default_factory=list)  # one for each death
    returns: list[Measurement] = field(default_factory=list)  # one for each rank that came back
    replans: list[Measurement] = field(default_factory=list)  # one for each new plan that was followed
    slices: list[Slice] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)  # of each lost rank

    def count(self, metric: str) -> float | None:
        """The median of a figure; None where it was not measured."""
        record = self.totals.get(metric)
        if record is None or record.status != "ok" or record.summary is None:
            return None
        return record.median

    @property
    def lost(self) -> list[str]:
        """The labels of the lost ranks; of one without a record of its own it is not known when it was lost."""
        return list(dict.fromkeys(gone.label for gone in self.gone))

    def had_lost(self, interval: Slice) -> bool:
        """Whether some rank was gone in a part of the slice."""
        return any(gone.start < interval.end and interval.t < gone.end for gone in self.gone)

    def packets(self, metric: str) -> dict[str, float]:
        """``packets_sent`` or ``packets_resent`` by the label of the rank; empty where the transport does not count."""
        return {r.subject.host: r.median for r in self.ranks if r.metric == metric and r.subject.host}

    def rank_of(self, label: str) -> int | None:
        """None where the rank has reported nothing."""
        return next((r.subject.rank for r in self.ranks if r.subject.host == label), None)

    @property
    def throughput(self) -> float:
        """B/s of all builder units, as a median over the slices; NaN without one."""
        return self._rate("throughput")

    @property
    def network_throughput(self) -> float:
        """B/s of the fragments that came from other ranks; NaN without one."""
        return self._rate("network_throughput")

    def _rate(self, metric: str) -> float:
        value = self.count(metric)
        return math.nan if value is None else value

    @property
    def label(self) -> str:
        """The main parameters as text, such as "push, shift, 512 KiB"."""
        return describe(self.params)


def buildings(records: Iterable[AnyRecord]) -> list[Building]:
    """Groups the records of ``events.build`` by their parameters, in the order in which they came.

    Slices carry no parameters: they belong to the building whose other records follow. Slices at the end of a run that
    was cut short get a separate building without parameters.
    """
    by_params: dict[tuple[tuple[str, str], ...], Building] = {}
    pending: dict[tuple[float, float], list[Measurement]] = {}
    for record in records:
        if not isinstance(record, Measurement):
            continue
        if record.name == SLICES:
            start = float(record.params.get("t", math.nan))
            span = float(record.params.get("span", math.nan))
            pending.setdefault((start, start + span), []).append(record)
        elif record.name == BUILD:
            building = _building_of(record, by_params)
            _add(building, record)
            last = [(part.t, part.end) for part in building.slices[-1:]]
            _time_of_loss(building, record, max([*pending, *last], default=(0.0, 0.0)))
            # Records of deaths, returns and new plans come between slices; any other record ends them.
            if record.metric not in BETWEEN_SLICES and pending:
                building.slices += _slices(pending)
                pending = {}
    if pending:
        by_params[()] = Building({}, slices=_slices(pending))
    return list(by_params.values())


def _building_of(record: Measurement, by_params: dict[tuple[tuple[str, str], ...], Building]) -> Building:
    params = {key: value for key, value in record.params.items() if key not in RECORD_PARAMS}
    key = tuple(sorted((name, str(value)) for name, value in params.items()))
    return by_params.setdefault(key, Building(params))


def _add(building: Building, record: Measurement) -> None:
    if record.metric == "resume":
        building.resumes.append(record)
    elif record.metric == "return":
        building.returns.append(record)
    elif record.metric == "replan":
        building.replans.append(record)
    elif record.metric in RANK_METRICS:
        building.ranks.append(record)
    else:
        building.totals[record.metric] = record


def _time_of_loss(building: Building, record: Measurement, last: tuple[float, float]) -> None:
    """Notes when a rank was lost or came back. ``last``: start and end of the slice before the record."""
    lost = record.params.get("lost")
    begin, now = last
    if not isinstance(lost, str):
        return
    if record.metric == "resume":
        building.gone.append(Gone(lost, now - record.median if record.summary else 0.0))
    elif record.metric == "return":
        for gone in building.gone:
            if gone.label == lost:
                gone.end = min(gone.end, now + 2 * (now - begin))
    else:  # of a count: all ranks that were lost, also those of which no record of a resume tells
        building.gone += [Gone(label, 0.0) for label in lost.split(",") if label not in building.lost]


def _slices(pending: dict[tuple[float, float], list[Measurement]]) -> list[Slice]:
    return [_slice(*times, pending[times]) for times in sorted(pending)]


def _slice(start: float, end: float, records: Sequence[Measurement]) -> Slice:
    by_metric = {record.metric: record for record in records}
    rate, latency = by_metric.get("throughput"), by_metric.get("latency")
    slowest = by_metric.get("rank_throughput")
    times = latency.summary if latency else None
    return Slice(
        start,
        end,
        rate.median if rate else math.nan,
        times.median if times else math.nan,
        times.p99 if times and times.p99 is not None else math.nan,
        str(slowest.subject.host or "") if slowest else "",
        slowest.median if slowest else math.nan,
        tuple(record.id for record in records),
    )


def describe(params: dict[str, Scalar]) -> str:
    """The main parameters as text, such as "push, shift, 512 KiB"."""
    parts = [str(params[name]) for name in ("protocol", "schedule") if name in params]
    if "fragment" in params:
        parts.append(format_size(int(params["fragment"])))
    for name, unit_text in (("credits", "credits"), ("parallel", "parallel"), ("in_flight", "in flight")):
        if name in params:
            parts.append(f"{params[name]} {unit_text}")
    return ", ".join(parts)
