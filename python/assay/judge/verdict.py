"""Criteria held against the records of a run.

The rule above all others: what was not measured does not pass. The worst matching record decides; one
that is missing, waived, in error or in another unit makes the criterion inconclusive, unless another
one has failed it already.
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
from assay.records.schema import (
    AnyRecord,
    Capacity,
    Comparison,
    Corruption,
    Failure,
    Finding,
    Measurement,
    Pairs,
    Verdict,
)
from assay.records.units import Quantity, describe_unit, format_as

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]


def judge(
    specification: Specification, records: Iterable[AnyRecord], hosts: Collection[str] = ()
) -> list[Verdict]:
    """One verdict a criterion, in the order of the specification.

    ``hosts`` are those of the run: a figure of a node has to be there for each of them.
    """
    records = list(records)
    verdicts = []
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
        verdict.specification = specification.name
        verdicts.append(verdict)
    return verdicts


def overall(verdicts: Iterable[Verdict]) -> Outcome:
    """FAIL if anything failed; else INCONCLUSIVE if anything was, or if there was nothing to judge."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if "FAIL" in outcomes:
        return "FAIL"
    return "PASS" if outcomes == {"PASS"} else "INCONCLUSIVE"


def _hosts(records: Iterable[AnyRecord], hosts: Collection[str]) -> set[str]:
    """The hosts of the run: those given, else those that the records speak of."""
    subjects = [item.subject for item in records if not isinstance(item, Verdict | Capacity | Comparison)]
    return set(hosts) or {name for item in subjects for name in (item.host, item.peer) if name}


class _Judged(NamedTuple):
    """One record held against one bound; ``slack`` is relative and positive when within it."""

    slack: float
    record: Measurement
    observed: float
    required: float
    is_within: bool
    source: list[int]  # records that a limit was taken from
    spelled: str  # the unit that the specification gives the limit in


def _judge_bounds(criterion: Criterion, records: Sequence[AnyRecord], hosts: Collection[str]) -> Verdict:
    matching = _matching(criterion.metric, criterion.where, records)
    problems = _missing(criterion, matching, hosts, records)
    judged: list[_Judged] = []
    for record in matching:
        observed = _value(record, criterion.statistic)
        if isinstance(observed, str):
            problems.append(f"{_describe(record)}: {observed}")
            continue
        limits = (criterion.min, criterion.max)
        for bound, limit, spelled in zip(("min", "max"), limits, criterion.spelled, strict=True):
            required, source = _required(limit, record, records) if limit else (math.nan, [])
            if isinstance(required, str):
                problems.append(required)
            elif limit:
                slack = observed - required if bound == "min" else required - observed
                relative = slack / abs(required) if required else slack
                judged.append(_Judged(relative, record, observed, required, slack >= 0, source, spelled))
    where = {key: one.value if isinstance(one, Quantity) else one for key, one in criterion.where.items()}
    verdict = Verdict(criterion=str(criterion), outcome="INCONCLUSIVE", metric=criterion.metric, where=where)
    if judged:
        worst = min(judged, key=lambda one: one.slack)
        verdict.outcome = "FAIL" if not worst.is_within else "INCONCLUSIVE" if problems else "PASS"
        verdict.observed, verdict.required = worst.observed, worst.required
        verdict.margin = worst.slack if worst.required else None
        if worst.spelled:
            verdict.observed_text = format_as(worst.observed, worst.spelled)
            verdict.required_text = format_as(worst.required, worst.spelled)
        verdict.subject, verdict.unit = worst.record.subject, worst.record.unit
        verdict.evidence = [worst.record.id, *worst.source]
        verdict.reason = _reason(criterion, worst, matching)
    elif isinstance(limit := criterion.min or criterion.max, Quantity):
        verdict.required, verdict.unit = limit.value, limit.unit
        verdict.required_text = format_as(limit.value, criterion.spelled[0] or criterion.spelled[1])
    if problems and verdict.outcome != "FAIL":
        suffix = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        verdict.reason = problems[0] + suffix
    return verdict


def _reason(criterion: Criterion, worst: _Judged, matching: Sequence[Measurement]) -> str:
    """What the reader cannot see from the figures: whose they are, and where a limit came from."""
    parts = []
    if len(matching) > 1:
        parts.append(f"the worst of {len(matching)}: {_describe(worst.record, matching)}")
    derived = [limit for limit in (criterion.min, criterion.max) if isinstance(limit, Share)]
    if derived and worst.source:
        parts.append(f"the limit is {derived[0]}")
    return "; ".join(parts)


def _unknown_keys(criterion: Criterion, records: Sequence[AnyRecord]) -> str:
    """Conditions on what no record of that metric has: most likely misspelled."""
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
    """Why the matching records are not all that there should be."""
    if not matching:
        return [
            f"nothing measured {criterion.metric}{format_conditions(criterion.where)}"
            + _unknown_keys(criterion, records)
        ]
    # Of a network, who has a figure depends on the pattern: a server that is only written to sends nothing.
    if not criterion.metric.startswith("node.") or "host" in criterion.where:
        return []
    measured = {record.subject.host for record in matching if record.subject.host}
    # A host may be known to its user by another name than to itself: its number is sure, its name a guess.
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
    if record.status == "waived" and key not in record.params and key not in SUBJECT_FIELDS:
        return True  # it stands for all that would have been measured
    value = record.params.get(key, getattr(record.subject, key, None))
    if isinstance(condition, Quantity):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isclose(float(value), condition.value, rel_tol=1e-9)  # type: ignore[arg-type]
    # True == 1 in Python; a truth value and a count are different things in a specification.
    return isinstance(value, bool) == isinstance(condition, bool) and value == condition


def _value(record: Measurement, statistic: str) -> float | str:
    """The figure of a record, or why it has none."""
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
    """The bound for one record in the record's unit, with the ids it was taken from; or why there is none.

    A share is of the same host's figure where that host has one, else of the median over all of them.
    """
    if isinstance(limit, Quantity):
        if limit.unit != record.unit:
            return (
                f"{_describe(record)} is in {describe_unit(record.unit)}, the limit in {describe_unit(limit.unit)}",
                [],
            )
        return limit.value, []
    sources = [one for one in _matching(limit.of, limit.where, records) if one.unit == record.unit]
    figures = [(one, value) for one in sources if not isinstance(value := _value(one, "median"), str)]
    used = [pair for pair in figures if pair[0].subject.host == record.subject.host] or figures
    if not used:
        return f"the limit needs {limit.of}{format_conditions(limit.where)}, which was not measured", []
    median = statistics.median(value for _, value in used)
    return limit.share * median, [one.id for one, _ in used]


def _describe(record: Measurement, among: Sequence[Measurement] = ()) -> str:
    """Which record it is: its subject and parameters, of several only those in which they differ."""
    subject = record.subject
    subject_parts = [
        part for part in (subject.host, subject.peer and f"to {subject.peer}", subject.device) if part
    ]
    params: dict[str, Condition] = {
        key: value
        for key, value in record.params.items()
        if not among or any(other.params.get(key) != value for other in among)
    }
    if isinstance(size := params.get("size"), int | float):
        params["size"] = Quantity(size, "B")
    return (" ".join(subject_parts) + format_conditions(params)).strip() or record.name


def _judge_findings(criterion: Criterion, records: Sequence[AnyRecord]) -> Verdict:
    """No fault among the findings; warnings do not fail. A run that was cut short proves nothing."""
    verdict = Verdict(criterion=str(criterion), outcome="PASS")
    findings = [one for one in records if isinstance(one, Finding) and criterion.rule in ("", one.rule)]
    faults = [finding for finding in findings if finding.severity == "fault"]
    failures = [one for one in records if isinstance(one, Failure)]
    measured = any(
        (isinstance(one, Measurement) and one.status == "ok") or isinstance(one, Pairs | Corruption)
        for one in records
    )
    if faults:
        first = max(faults, key=lambda finding: finding.confidence or 0.0)
        suffix = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        verdict.outcome, verdict.reason = "FAIL", first.cause + suffix
        verdict.subject = first.subject
    elif failures:
        verdict.outcome, verdict.reason = "INCONCLUSIVE", f"the run was cut short: {failures[0].what}"
    elif not measured:
        verdict.outcome, verdict.reason = "INCONCLUSIVE", "nothing was measured"
    verdict.observed, verdict.required, verdict.unit = float(len(faults)), 0.0, "1"
    verdict.evidence = [finding.id for finding in faults]
    return verdict
