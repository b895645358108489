"""Defines every record.

A record is one JSON line. Engines write records to standard output, a run directory keeps them in ``records.jsonl``,
and the report reads them in the browser. ``python -m assay.records.generate`` generates the JSON Schema
(``schema/records.schema.json``) and the TypeScript types (``web/src/data/records.ts``) from these structs; the tests
compare them.

All values are in SI base units: bytes, seconds, bytes per second. Only output is formatted.

The schema's version and the run's id are in ``run.json``, not in each line. An engine reports its version with
``--describe``; an engine of another version is refused before it measures.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from assay.records.decode import decoder

SCHEMA_VERSION = 4

LATE_FACT = "start.late_s"  # of the context of a host that the start waited for: seconds after most others

Scalar = str | int | float | bool
Status = Literal["ok", "waived", "error", "unfit"]


class Subject(Struct, omit_defaults=True, frozen=True):
    """The subject of a record. In a network it is a directed pair: bytes go from ``host`` to ``peer``."""

    host: str | None = None
    peer: str | None = None
    device: str | None = None
    numa: int | None = None
    rank: int | None = None


class Summary(Struct, omit_defaults=True, frozen=True):
    """Order statistics of ``n`` samples, in the unit of the measurement.

    ``mad`` is the median absolute deviation from the median, unscaled.
    """

    n: Annotated[int, Meta(ge=0)]
    median: float
    mad: float = 0.0
    min: float | None = None
    max: float | None = None
    p5: float | None = None
    p95: float | None = None
    p99: float | None = None


class Histogram(Struct, frozen=True):
    """``counts[k]`` samples lie from ``edges[k]`` up to ``edges[k + 1]``, in the unit of the measurement."""

    edges: list[float]
    counts: list[int]


class Record(Struct, tag_field="kind", omit_defaults=True, kw_only=True):
    """The base of all records: an ``id``, unique within its run, that the run directory assigns."""

    id: int = 0


class Measurement(Record, tag="measurement"):
    """One metric of one subject under one set of parameters.

    ``status``: "ok"; "waived", it cannot be measured here; "error", its measurement went wrong, and a value in
    ``summary`` is doubtful; "unfit", what should be measured is there and is not in order (down, degraded, without a
    partner or an address). All but "ok" have a ``reason``.
    """

    name: str  # of the measurement in the registry: "network.all_to_all"
    metric: str  # "bandwidth"
    unit: str  # "B/s", "s", "1/s", "B", "1"
    better: Literal["higher", "lower", "none"] = "none"
    subject: Subject = Subject()
    params: dict[str, Scalar] = {}
    summary: Summary | None = None
    samples: list[float] = []
    histogram: Histogram | None = None
    status: Status = "ok"
    reason: str | None = None

    @property
    def median(self) -> float:
        """The median in ``unit``; NaN without a summary."""
        return self.summary.median if self.summary else math.nan

    @property
    def mad(self) -> float:
        """The median absolute deviation in ``unit``; NaN without a summary."""
        return self.summary.mad if self.summary else math.nan


class Pairs(Record, tag="pairs"):
    """One row of a pair matrix: ``values[k]`` is the metric from ``subject.host`` to ``peers[k]``.

    A matrix of n hosts has n rows, so that a line has at most n values and a killed run keeps its complete rows. Pairs
    that were not measured are left out.
    """

    name: str
    metric: str
    unit: str
    better: Literal["higher", "lower", "none"] = "none"
    subject: Subject = Subject()
    params: dict[str, Scalar] = {}
    peers: list[str] = []
    values: list[float] = []


class Matrix(Record, tag="matrix", dict=True):
    """A pair matrix of many hosts, whose cells are in files beside ``records.jsonl``; it replaces the rows (``pairs``)
    that an engine sent.

    ``index``: file of ``cells`` sources, then ``cells`` targets, as positions in ``hosts`` (int32, little-endian).
    Matrices with the same pairs share one. ``values``: file of ``cells`` values (float32, little-endian).
    """

    name: str
    metric: str
    unit: str
    better: Literal["higher", "lower", "none"] = "none"
    params: dict[str, Scalar] = {}
    hosts: list[str] = []
    cells: Annotated[int, Meta(ge=0)] = 0
    index: str = ""
    values: str = ""


class Flows(Record, tag="flows"):
    """Concurrent flows: ``values[k]`` is the rate from ``sources[k]`` to ``targets[k]``.

    ``slices[k]`` are the flow's rates in equal parts of the time in which all flows ran. Without such a time there are
    no values.
    """

    name: str
    metric: str
    unit: str
    better: Literal["higher", "lower", "none"] = "none"
    subject: Subject = Subject()
    params: dict[str, Scalar] = {}
    sources: list[str] = []
    targets: list[str] = []
    values: list[float] = []
    slices: list[list[float]] = []


class Capacity(Record, tag="capacity"):
    """One figure of the network's model, fitted to what was measured, with its 95 % interval.

    ``at_least``: ``value`` is a lower bound, because the link was never the limit, or because another link explains the
    measured rates as well; ``reason`` names it. ``unknown``: there is no value.
    """

    level: Literal["host", "inside", "cabinet", "backbone", "network"]
    resource: str  # the host or cabinet; empty where the level has one only
    direction: Literal["up", "down", "limiter", "through", "latency"]
    unit: str  # "B/s", "s"
    state: Literal["measured", "at_least", "unknown"]
    value: float | None = None
    low: float | None = None
    high: float | None = None
    cabinet: str = ""  # that a host stands in
    n: int = 0  # samples
    reason: str = ""  # the experiment that it comes from, or what prevents a measurement
    explanations: list[
        str
    ] = []  # of "at_least": the limits that each explain the figure, where there are several
    evidence: list[int] = []  # ids of the records that it was fitted to


class Comparison(Record, tag="comparison"):
    """One point of a curve, measured and simulated on the model. ``error`` is simulated / measured - 1."""

    curve: str  # "cabinet a: pairs, sendrecv"
    axis: str  # what x is: "pairs", "hosts", "message size"
    x: float
    unit: str
    measured: float
    simulated: float | None = None
    error: float | None = None
    uncertainty: float = 0.0  # of the measured value: half of its 95 % interval, relative
    label: str = ""  # of the point, where x is only its position on the axis
    waived: str = ""  # why the point is shown but not judged


class Corruption(Record, tag="corruption"):
    """A corrupted payload: the first wrong byte of a message."""

    name: str
    subject: Subject = Subject()
    params: dict[str, Scalar] = {}
    message: int = 0  # sequence number of the message between that pair
    offset: int = 0  # byte offset within the message
    expected: str = ""  # the 8 bytes around the offset, hexadecimal
    observed: str = ""


class Context(Record, tag="context"):
    """Facts about a host or a device, from each engine that ran there; equal ones are in a run once. Keys are dotted:
    "cpu.model", "mpi.library"."""

    subject: Subject = Subject()
    facts: dict[str, Scalar] = {}


class Failure(Record, tag="failure"):
    """A measurement that ended early, and why: a rank died, a host does not answer."""

    problem: str  # "rank 3 on h3 was ended by signal 9 (Killed)"
    fix: str = ""
    subject: Subject = Subject()
    primary: bool = False  # caused from outside, so never a consequence of another failure


class Verdict(Record, tag="verdict"):
    """The judgement of a criterion of a specification.

    ``margin`` is (observed - required) / required, positive when better than required.
    """

    criterion: str  # as text: "network.all_to_all/bandwidth size=1 MiB >= 1 GB/s"
    outcome: Literal["PASS", "FAIL", "INCONCLUSIVE"]
    specification: str = ""
    metric: str = ""
    where: dict[str, Scalar] = {}  # selects records of the metric: their parameters or subject
    unit: str = ""
    observed: float | None = None
    required: float | None = None
    margin: float | None = None
    observed_text: str = ""  # formatted in the unit of the specification; also for texts
    required_text: str = ""
    subject: Subject = Subject()  # of the worst record
    evidence: list[int] = []  # ids of the records that decided
    reason: str = ""
    fix: str = ""  # the command that fixes it, where the specification knows one


class Finding(Record, tag="finding"):
    """A cause: the subject at fault, its effect, confidence, evidence and fix."""

    rule: str  # name of the rule in assay.explain
    cause: str  # one sentence: "h3 sends at 51 % of its peers' rate"
    subject: Subject = Subject()
    side: Literal["transmit", "receive", "both", "pair", "block", "node", "none"] = "none"
    severity: Literal["fault", "warning", "advice"] = "fault"
    effect: float | None = None  # relative: -0.49 means 49 % slower than expected
    confidence: float | None = None  # 0..1
    evidence: list[int] = []
    details: list[str] = []  # the figures behind the cause, one line each
    fix: str = ""


AnyRecord = (
    Measurement
    | Pairs
    | Matrix
    | Flows
    | Capacity
    | Comparison
    | Corruption
    | Context
    | Failure
    | Verdict
    | Finding
)


class RunInfo(Struct, omit_defaults=True):
    """``run.json``: command, hosts, times and outcome of a run."""

    id: str
    command: list[str]
    assay: str  # version
    started: str  # ISO 8601, UTC
    schema: int = SCHEMA_VERSION
    ended: str | None = None
    state: Literal["running", "complete", "partial", "failed"] = "running"
    reason: str = ""  # why it is partial or failed
    outcome: Literal["PASS", "FAIL", "INCONCLUSIVE"] | None = None
    result: str = (
        ""  # the main figures in one line, with units; a run without criteria has this and no outcome
    )
    busy: str = ""  # other load on this machine during the run, if it was too high; else empty
    hosts: list[str] = []  # in rank order, not folded
    completed: list[str] = []  # measurements that ended; a resumed run skips them
    options: dict[str, Scalar | list[str] | None] = {}
    last_record: int = 0  # the id of an ended run's last record; 0 if it has none, or it is unknown


class ReportData(Struct):
    """A whole run as one value: what ``--json`` prints."""

    run: RunInfo
    records: list[AnyRecord]


# What engines send besides records: never stored.
class Hello(Struct, tag_field="kind", tag="hello"):
    """A rank has started; sent before MPI_Init, so that a missing rank can be named."""

    rank: int
    host: str


class Waiting(Struct, tag_field="kind", tag="waiting"):
    """The ranks that the start waits for, from rank 0; none: all are there."""

    ranks: list[int] = []


class Progress(Struct, tag_field="kind", tag="progress"):
    """``done`` is the completed share of the planned work, 0..1; ``left_s`` the estimated time left, -1 if unknown."""

    done: float
    label: str = ""
    left_s: float = -1.0


class Ready(Struct, tag_field="kind", tag="ready"):
    """A side that waits for its peer (a receiver, a server) can be reached now."""

    label: str = ""


class Machine(Struct):
    """A host of an engine's job: its host name (unique in the job), its other names and its addresses."""

    host: str
    names: list[str] = []
    addresses: list[str] = []


class Ranks(Struct, tag_field="kind", tag="ranks"):
    """The label of each rank in records ("h3", or "h3:0", "h3:1" for several of a host), and the index of its host in
    ``hosts``."""

    labels: list[str]
    host_index: list[int]
    hosts: list[Machine]


AnyLine = AnyRecord | Hello | Progress | Ready | Ranks | Waiting

encode = msgspec.json.Encoder().encode
decode_record = decoder(AnyRecord)
decode_line = decoder(AnyLine)
decode_run_info = decoder(RunInfo)
