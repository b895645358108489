"""Judges criteria against the records of a run.

A criterion whose metric was not measured does not pass. The worst matching record decides. A record that is missing,
waived, in error or in another unit makes the criterion inconclusive, unless another record fails it. A device that is
present but not in order (status "unfit") fails it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from assay.judge.criteria import (
    SUBJECT_FIELDS,
    Condition,
    Criterion,
    Limit,
    Share,
    Specification,
    format_conditions,
)
from assay.judge.facts import judge_fact
from assay.judge.inventory import judge_inventory
from assay.records.schema import (
    AnyRecord,
    Capacity,
    Comparison,
    Corruption,
    Failure,
    Finding,
    Matrix,
    Measurement,
    Pairs,
    Verdict,
)
from assay.records.units import Quantity, describe_unit, format_as

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]
MAX_NAMES_SHOWN = 4  # criteria that the reason of the outcome names
UNTESTED = ("slow_pair", "slow_block")  # a warning of these rules is a suspect without a retest


def judge(
    specification: Specification, records: Iterable[AnyRecord], hosts: Collection[str] = ()
) -> list[Verdict]:
    """Returns one verdict for each line of the inventory and for each criterion, in the order of the specification.

    ``hosts``: the run's hosts. Each must have a value of every node metric that a criterion judges.
    """
    records = list(records)
    verdicts = judge_inventory(specification.inventory, records, hosts)
    for criterion in specification.criteria:
        is_several = len(_hosts(records, hosts)) > 1
        if criterion.hosts == ("one" if is_several else "several"):
            continue
        if criterion.fact:
            verdict = judge_fact(criterion, records, hosts)
        elif criterion.metric:
            verdict = _judge_bounds(criterion, records, hosts)
        else:
            verdict = _judge_findings(criterion, records)
        if verdict.outcome == "FAIL" and not verdict.fix:
            verdict.fix = criterion.fix
        verdicts.append(verdict)
    for verdict in verdicts:
        verdict.specification = specification.name
    return verdicts


def overall(verdicts: Iterable[Verdict]) -> Outcome:
    """Returns FAIL if any verdict failed; else INCONCLUSIVE if any is, or if there are none; else PASS."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if "FAIL" in outcomes:
        return "FAIL"
    return "PASS" if outcomes == {"PASS"} else "INCONCLUSIVE"


def deciding_criteria(verdicts: Sequence[Verdict]) -> str:
    """Names the criteria that decided: those that failed, else those that could not be decided; "" if all passed. Where
    one reason leaves all undecided, it is that reason."""
    reasons = {(verdict.outcome, verdict.reason, verdict.fix) for verdict in verdicts}
    if len(verdicts) > 1 and len(reasons) == 1:
        ((outcome, reason, fix),) = reasons
        if outcome == "INCONCLUSIVE" and reason:
            return f"{reason}; fix: {fix}" if fix else reason
    for outcome, verb in (("FAIL", "failed"), ("INCONCLUSIVE", "could not be decided")):
        titles = [_title(verdict) for verdict in verdicts if verdict.outcome == outcome]
        if titles:
            more = f"; and {len(titles) - MAX_NAMES_SHOWN} more" if len(titles) > MAX_NAMES_SHOWN else ""
            count = f"{len(titles)} of {len(verdicts)} criteria" if len(verdicts) > 1 else "the one criterion"
            return f"{count} {verb}: {'; '.join(titles[:MAX_NAMES_SHOWN])}{more}"
    return ""


def _title(verdict: Verdict) -> str:
    """The title of a verdict's criterion; for a criterion on findings, the finding."""
    return verdict.criterion if verdict.metric or not verdict.reason else verdict.reason


def _hosts(records: Iterable[AnyRecord], hosts: Collection[str]) -> set[str]:
    """Returns the given hosts, else those of the records."""
    subjects = [
        record.subject
        for record in records
        if not isinstance(record, Verdict | Capacity | Comparison | Matrix)
    ]
    return set(hosts) or {name for subject in subjects for name in (subject.host, subject.peer) if name}


class _CheckedRecord(NamedTuple):
    """A record checked against a bound; ``slack`` is relative and positive within the bound."""

    slack: float
    record: Measurement
    observed: float
    required: float
    is_within: bool
    source: list[int]  # ids of the records that a relative limit was taken from
    limit_unit: str  # the unit of the limit in the specification


def _judge_bounds(criterion: Criterion, records: Sequence[AnyRecord], hosts: Collection[str]) -> Verdict:
    matching = _matching(criterion.metric, criterion.where, records)
    problems = _missing(criterion, matching, hosts, records)
    checks: list[_CheckedRecord] = []
    unfit = [record for record in matching if record.status == "unfit"]
    for record in matching:
        observed = _value(record, criterion.statistic)
        if isinstance(observed, str):
            problems.append(f"{_describe(record)}: {observed}")
            continue
        limits = (criterion.min, criterion.max)
        for bound, limit, limit_unit in zip(("min", "max"), limits, criterion.limit_units, strict=True):
            required, source = _required(limit, record, records) if limit else (math.nan, [])
            if isinstance(required, str):
                problems.append(required)
            elif limit:
                slack = observed - required if bound == "min" else required - observed
                relative = slack / abs(required) if required else slack
                checks.append(
                    _CheckedRecord(relative, record, observed, required, slack >= 0, source, limit_unit)
                )
    where = {
        key: condition.value if isinstance(condition, Quantity) else condition
        for key, condition in criterion.where.items()
    }
    verdict = Verdict(criterion=str(criterion), outcome="INCONCLUSIVE", metric=criterion.metric, where=where)
    if checks:
        worst = min(checks, key=lambda check: check.slack)
        verdict.outcome = "FAIL" if not worst.is_within else "INCONCLUSIVE" if problems else "PASS"
        verdict.observed, verdict.required = worst.observed, worst.required
        verdict.margin = worst.slack if worst.required else None
        if worst.limit_unit:
            verdict.observed_text = format_as(worst.observed, worst.limit_unit)
            verdict.required_text = format_as(worst.required, worst.limit_unit)
        verdict.subject, verdict.unit = worst.record.subject, worst.record.unit
        verdict.evidence = [worst.record.id, *worst.source]
        verdict.reason = _reason(criterion, worst, matching)
    elif isinstance(limit := criterion.min or criterion.max, Quantity):
        verdict.required, verdict.unit = limit.value, limit.unit
        verdict.required_text = format_as(limit.value, criterion.limit_units[0] or criterion.limit_units[1])
    if problems and verdict.outcome != "FAIL":
        suffix = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        verdict.reason = problems[0] + suffix
    if unfit:
        suffix = f" (and {len(unfit) - 1} more)" if len(unfit) > 1 else ""
        reason = f"{_describe(unfit[0])}: {unfit[0].reason}{suffix}"
        verdict.reason = f"{reason}; {verdict.reason}" if verdict.outcome == "FAIL" else reason
        verdict.outcome, verdict.subject = "FAIL", unfit[0].subject
        verdict.evidence = [record.id for record in unfit] + verdict.evidence
    return verdict


def _reason(criterion: Criterion, worst: _CheckedRecord, matching: Sequence[Measurement]) -> str:
    """Explains which record decided and where a relative limit comes from."""
    parts = []
    if len(matching) > 1:
        parts.append(f"the worst of {len(matching)}: {_describe(worst.record, matching)}")
    derived = [limit for limit in (criterion.min, criterion.max) if isinstance(limit, Share)]
    if derived and worst.source:
        parts.append(f"the limit is {derived[0]}")
    return "; ".join(parts)


def _unknown_keys(criterion: Criterion, records: Sequence[AnyRecord]) -> str:
    """Describes a condition on a parameter that no record of the metric has; "" if there is none."""
    same_metric = _matching(criterion.metric, {}, records)
    params = {key for record in same_metric for key in record.params}
    unknown = [key for key in criterion.where if key not in params and key not in SUBJECT_FIELDS]
    if not same_metric or not unknown:
        return ""
    return f": its records have no '{unknown[0]}', but {', '.join(sorted(params)) or 'no parameters'}"


def _missing(
    criterion: Criterion,
    matching: Sequence[Measurement],
    hosts: Collection[str],
    records: Sequence[AnyRecord] = (),
) -> list[str]:
    """Returns a message for each missing record."""
    if not matching:
        return [
            f"nothing measured {criterion.metric}{format_conditions(criterion.where)}"
            + _unknown_keys(criterion, records)
        ]
    # In network measurements not every host has a value: a server that only receives sends nothing.
    if not criterion.metric.startswith("node.") or "host" in criterion.where:
        return []
    measured = {record.subject.host for record in matching if record.subject.host}
    # A host may have another name for its user than for itself, so only the number of hosts is compared.
    if len(measured) >= len(set(hosts)):
        return []
    return [f"{host}: {criterion.metric} was not measured" for host in sorted(set(hosts) - measured)]


def _matching(metric: str, where: dict[str, Condition], records: Iterable[AnyRecord]) -> list[Measurement]:
    return [
        record
        for record in records
        if isinstance(record, Measurement)
        and fnmatchcase(f"{record.name}/{record.metric}", metric)
        and all(_holds(key, condition, record) for key, condition in where.items())
    ]


def _holds(key: str, condition: Condition, record: Measurement) -> bool:
    has_value = record.status == "ok" or record.summary is not None
    if not has_value and key not in record.params and key not in SUBJECT_FIELDS:
        return True  # a waived or failed record stands for all records of its measurement
    value = record.params.get(key, getattr(record.subject, key, None))
    if isinstance(condition, Quantity):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isclose(float(value), condition.value, rel_tol=1e-9)  # type: ignore[arg-type]
    # True == 1 in Python, but in a specification a boolean is not a count.
    return isinstance(value, bool) == isinstance(condition, bool) and value == condition


def _value(record: Measurement, statistic: str) -> float | str:
    """Returns the value of a record's statistic, or the reason why there is none."""
    if record.status != "ok":
        return f"{record.status}, {record.reason or 'no reason given'}"
    if record.summary is None or record.summary.n == 0:
        return "no value was measured"
    value: float | None = getattr(record.summary, statistic)
    if value is None or not math.isfinite(value):
        return f"it has no {statistic}"
    return value


def _required(
    limit: Limit, record: Measurement, records: Iterable[AnyRecord]
) -> tuple[float | str, list[int]]:
    """Returns the bound in the record's unit, or the reason why there is none, and the ids that it was taken from.

    A share refers to the value of the same host if there is one, else to the median of all hosts.
    """
    if isinstance(limit, Quantity):
        if limit.unit != record.unit:
            return (
                f"{_describe(record)} is in {describe_unit(record.unit)}, the limit in {describe_unit(limit.unit)}",
                [],
            )
        return limit.value, []
    sources = [
        source_record
        for source_record in _matching(limit.of, limit.where, records)
        if source_record.unit == record.unit
    ]
    figures = [
        (source_record, value)
        for source_record in sources
        if not isinstance(value := _value(source_record, "median"), str)
    ]
    used = [pair for pair in figures if pair[0].subject.host == record.subject.host] or figures
    if not used:
        return f"the limit needs {limit.of}{format_conditions(limit.where)}, which was not measured", []
    median = statistics.median(value for _, value in used)
    return limit.share * median, [source_record.id for source_record, _ in used]


def _describe(record: Measurement, others: Sequence[Measurement] = ()) -> str:
    """Describes a record by subject and parameters; with ``others``, only by the parameters that differ."""
    subject = record.subject
    subject_parts = [
        part for part in (subject.host, subject.peer and f"to {subject.peer}", subject.device) if part
    ]
    params: dict[str, Condition] = {
        key: value
        for key, value in record.params.items()
        if not others or any(other.params.get(key) != value for other in others)
    }
    if isinstance(size := params.get("size"), int | float):
        params["size"] = Quantity(size, "B")
    return (" ".join(subject_parts) + format_conditions(params)).strip() or record.name


def _judge_findings(criterion: Criterion, records: Sequence[AnyRecord]) -> Verdict:
    """Passes without a fault among the findings; warnings do not fail. A run that ended early is inconclusive, and one
    whose slow path was not measured again."""
    verdict = Verdict(criterion=str(criterion), outcome="PASS")
    findings = [
        record for record in records if isinstance(record, Finding) and criterion.rule in ("", record.rule)
    ]
    faults = [finding for finding in findings if finding.severity == "fault"]
    failures = [record for record in records if isinstance(record, Failure)]
    measured = any(
        (isinstance(record, Measurement) and record.status == "ok")
        or isinstance(record, Pairs | Matrix | Corruption)
        for record in records
    )
    if faults:
        first = max(faults, key=lambda finding: finding.confidence or 0.0)
        suffix = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        verdict.outcome, verdict.reason = "FAIL", first.cause + suffix
        verdict.subject = first.subject
    elif failures:
        verdict.outcome, verdict.reason = "INCONCLUSIVE", f"the run was cut short: {failures[0].problem}"
    elif not measured:
        verdict.outcome, verdict.reason = "INCONCLUSIVE", "nothing was measured"
    elif untested := [found for found in findings if found.rule in UNTESTED and found.severity == "warning"]:
        more = f" (and {len(untested) - 1} more)" if len(untested) > 1 else ""
        verdict.outcome, verdict.subject = "INCONCLUSIVE", untested[0].subject
        verdict.reason = f"{untested[0].cause}{more}; this was not measured again, so it may be congestion"
        verdict.fix = "give a longer --budget, and no --no-retest"
    verdict.observed, verdict.required, verdict.unit = float(len(faults)), 0.0, "1"
    verdict.evidence = [finding.id for finding in faults]
    return verdict
