"""The types of a specification that has been read: criteria, limits, conditions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from assay.judge.inventory import Inventory
from assay.records.schema import Scalar, Subject
from assay.records.units import Quantity, format_as, format_quantity, format_share, format_size

STATISTICS = ("median", "min", "max", "p5", "p95", "p99")
SUBJECT_FIELDS = tuple(Subject.__struct_fields__)

Condition = Scalar | Quantity  # the required value of a parameter or of a field of the subject


@dataclass(frozen=True)
class Share:
    """A limit relative to another metric: ``share`` times the median of metric ``of``, over records that meet
    ``where``."""

    share: float
    of: str
    where: dict[str, Condition] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{format_share(self.share)} of {self.of}{format_conditions(self.where)}"


Limit = Quantity | Share


@dataclass(frozen=True)
class Criterion:
    """A criterion of a specification: a metric within bounds, a fact within bounds, or (``metric`` and ``fact`` empty)
    no finding of a rule."""

    metric: str = ""  # "network.all_to_all/bandwidth"; "*" stands for any text
    where: dict[str, Condition] = field(default_factory=dict)  # conditions on parameters and subject
    statistic: str = "median"
    min: Limit | None = None
    max: Limit | None = None
    limit_units: tuple[str, str] = ("", "")  # of min and max, as written: "Gbit/s"
    rule: str = ""  # without a metric: the rule that must find nothing; empty means any
    fact: str = ""  # instead of a metric: "cpu.governor"
    equals: tuple[Scalar, ...] = ()  # accepted values of the fact
    absent: str = ""  # "pass" if a machine without this fact passes
    fix: str = ""  # the command that would fix it; {device} stands for the device
    title: str = ""
    hosts: str = ""  # "one" or "several": the criterion is skipped in runs on another number of hosts
    line: int = 0

    def __str__(self) -> str:
        """The text that a verdict shows."""
        if self.title:
            return self.title
        if self.fact:
            return f"{self.fact}{format_conditions(self.where)} {_format_bounds(self)}"
        if not self.metric:
            return f"no fault found by {self.rule}" if self.rule else "no fault found"
        statistic = "" if self.statistic == "median" else f" {self.statistic}"
        return f"{self.metric}{statistic}{format_conditions(self.where)} {_format_bounds(self)}"


@dataclass(frozen=True)
class Vocabulary:
    """The names that a specification may use. None: the names are not checked; a criterion on an unknown name never
    passes."""

    metrics: Mapping[str, str] | None = None  # "measurement/metric" -> its unit
    rules: Collection[str] | None = None  # names of the rules that find causes
    facts: Mapping[str, str] | None = None  # name -> its unit, "" for text
    parameters: Mapping[str, Mapping[str, str]] | None = None  # measurement -> parameter -> its unit


@dataclass(frozen=True)
class Specification:
    """The criteria of one file, all of them checked, and the inventory that each host must have."""

    name: str
    criteria: list[Criterion]
    title: str = ""
    parameters: dict[str, dict[str, Scalar]] = field(default_factory=dict)  # of each measurement to run
    inventory: Inventory = Inventory()  # noqa: RUF009 - frozen


def format_conditions(where: Mapping[str, Condition]) -> str:
    """Formats conditions as " op=send size=1 MiB", with the leading space; empty for none."""
    return "".join(f" {key}={_format_condition(value)}" for key, value in where.items())


def _format_condition(value: Condition) -> str:
    if not isinstance(value, Quantity):
        return str(value)
    return format_size(int(value.value)) if value.unit == "B" else format_quantity(*value)


def _format_bounds(criterion: Criterion) -> str:
    bounds = [f"is {' or '.join(map(str, criterion.equals))}"] if criterion.equals else []
    limits = (criterion.min, criterion.max)
    for sign, bound, unit in zip((">=", "<="), limits, criterion.limit_units, strict=True):
        if bound is not None:
            bounds.append(f"{sign} {format_limit(bound, unit)}")
    return " and ".join(bounds)


def format_limit(limit: Limit, unit: str = "") -> str:
    if not isinstance(limit, Quantity):
        return str(limit)
    return format_as(limit.value, unit) if unit else format_quantity(*limit)
