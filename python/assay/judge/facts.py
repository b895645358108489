"""Judges criteria on facts of hosts and devices.

Every host of the run must have the fact, on every device that the criterion selects; the worst value decides. A machine
without the fact (no frequency control, no such device) passes only with ``absent = "pass"``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from assay.judge.criteria import Condition, Criterion, format_conditions
from assay.records.devices import names_in_records
from assay.records.schema import AnyRecord, Context, Scalar, Verdict
from assay.records.units import Quantity, format_as, format_quantity


class _Check(NamedTuple):
    """A context checked against a criterion; ``slack`` is relative and positive within the limit."""

    slack: float
    is_within: bool
    context: Context
    required: Quantity | None
    limit_unit: str = ""  # the unit of the limit in the specification


def judge_fact(criterion: Criterion, records: Sequence[AnyRecord], hosts: Collection[str]) -> Verdict:
    # A peer that only sends to the hosts has contexts too, and is not judged.
    offered = set(names_in_records(records, hosts).values()) - {""}
    contexts = [
        context
        for context in records
        if isinstance(context, Context)
        and (not offered or context.subject.host in offered)
        and _meets_conditions(criterion, context)
    ]
    with_fact = [context for context in contexts if criterion.fact in context.facts]
    verdict = Verdict(criterion=str(criterion), outcome="INCONCLUSIVE", metric=criterion.fact)
    hosts_with_fact = {context.subject.host for context in with_fact}
    problems = [
        f"{host} has no {criterion.fact}{format_conditions(criterion.where)}"
        for host in sorted(set(hosts) - hosts_with_fact)
    ]
    # A host may have another name for its user than for itself, so only the number of hosts is compared.
    if len(hosts_with_fact) >= len(set(hosts)):
        problems = []
    if not with_fact and not problems:
        problems = [f"no host has {criterion.fact}{format_conditions(criterion.where)}"]
    if problems and criterion.absent == "pass" and any(isinstance(context, Context) for context in records):
        problems = []
        verdict.reason = "not on this machine, which the specification allows"
    checks = [_check(criterion, context) for context in with_fact]
    failed = [check for check in checks if not check.is_within]
    if checks:
        _fill_in(verdict, criterion, min(checks, key=lambda check: check.slack), len(checks))
    verdict.outcome = "FAIL" if failed else "INCONCLUSIVE" if problems else "PASS"
    if failed:
        devices = [check.context.subject.device for check in failed if check.context.subject.device]
        verdict.fix = _fix(criterion.fix, devices)
    elif problems:
        suffix = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        verdict.reason = problems[0] + suffix
    return verdict


def _fix(fix: str, devices: Sequence[str]) -> str:
    if "{device}" not in fix or not devices:
        return fix
    return "; ".join(fix.replace("{device}", device) for device in devices)


def _meets_conditions(criterion: Criterion, context: Context) -> bool:
    return all(_meets(context, key, condition) for key, condition in criterion.where.items())


def _meets(context: Context, key: str, condition: Condition) -> bool:
    value: Scalar | None = context.facts.get(key, getattr(context.subject, key, None))
    if isinstance(condition, Quantity):
        return isinstance(value, int | float) and math.isclose(float(value), condition.value, rel_tol=1e-9)
    if isinstance(condition, str) and isinstance(value, str):
        return fnmatchcase(value, condition)
    return value == condition


def _check(criterion: Criterion, context: Context) -> _Check:
    value = context.facts[criterion.fact]
    if criterion.equals:
        is_within = value in criterion.equals
        return _Check(0.0 if is_within else -math.inf, is_within, context, None)
    worst = _Check(math.inf, True, context, None)
    limits = (criterion.min, criterion.max)
    for bound, limit, limit_unit in zip(("min", "max"), limits, criterion.limit_units, strict=True):
        if not isinstance(limit, Quantity):
            continue
        if not isinstance(value, int | float):
            return _Check(-math.inf, False, context, limit)
        slack = value - limit.value if bound == "min" else limit.value - value
        # Shares are quotients: 0.9999999999 counts as 1.
        is_within = slack >= 0 or math.isclose(value, limit.value, rel_tol=1e-9)
        candidate = _Check(
            slack / abs(limit.value) if limit.value else slack, is_within, context, limit, limit_unit
        )
        worst = min(worst, candidate, key=lambda check: check.slack)
    return worst


def _fill_in(verdict: Verdict, criterion: Criterion, worst: _Check, device_count: int) -> None:
    value = worst.context.facts[criterion.fact]
    verdict.subject, verdict.evidence = worst.context.subject, [worst.context.id]
    verdict.required_text = " or ".join(map(str, criterion.equals))
    verdict.observed_text = str(value)
    if worst.required is not None and isinstance(value, int | float):
        verdict.unit = worst.required.unit
        verdict.observed, verdict.required = float(value), worst.required.value
        verdict.margin = worst.slack if worst.required.value else None
        verdict.observed_text = _format(float(value), worst.limit_unit, verdict.unit)
        verdict.required_text = _format(worst.required.value, worst.limit_unit, verdict.unit)
    if device_count > 1 and worst.context.subject.device:
        verdict.reason = f"the worst of {device_count}: {worst.context.subject.device}"


def _format(value: float, limit_unit: str, unit: str) -> str:
    if value >= 2**63:
        return "unlimited"
    return format_as(value, limit_unit) if limit_unit else format_quantity(value, unit)
