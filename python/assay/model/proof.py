"""The verdict of a platform's proof: whether what it simulates is within the limit of the truth.

The limit bounds true errors. A measured error differs from the true one by the error of the measurement, and the worst
of a hundred points by more than a single one does. So each claim is allowed the limit and a margin: the quantile at
which a family of right claims fails in 1 of 100 proofs (Sidak 1967), times the claim's own standard error. The claims
are the points and the means of the curves, in which the errors of single points cancel.

A margin can be so wide that nothing fails. So the proof needs power: each curve must be known so well that it would
fail in 99 of 100 proofs if it were off by twice the limit. Where a curve is not, and nothing fails, nothing is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from assay.model.estimate import Z95
from assay.records.schema import Comparison, Verdict
from assay.records.units import format_share

FALSE_ALARM = 0.01  # share of right platforms that fail
MISSED = 0.01  # share of platforms with a curve that is off by twice the limit, and that does not fail


@dataclass(frozen=True)
class Claim:
    """A point, or the mean of a curve, whose true error is claimed to be within the limit. All figures are relative."""

    name: str
    error: float
    standard_error: float


def verdict(points: Sequence[Comparison], limit: float) -> Verdict:
    """PASS when all points and curves are simulated within ``limit`` (relative) of the truth.

    FAIL when a claim is refuted, whatever else is missing or uncertain. INCONCLUSIVE when none is, but a point was not
    simulated, or a curve is known too badly to fail at twice the limit.
    """
    judged = [point for point in points if not point.waived]
    singles = [_claim(point) for point in judged if point.error is not None]
    curves = _curves(judged)
    means = [_mean(curve, limit) for curve in curves if len(curve) > 1]
    claims = singles + means
    quantile = NormalDist().inv_cdf((1 - FALSE_ALARM) ** (1 / max(1, len(claims))))

    def allowed(claim: Claim) -> float:
        return limit + quantile * claim.standard_error

    def share(claim: Claim) -> float:
        """The error as a share of the allowed one."""
        return abs(claim.error) / allowed(claim)

    result = Verdict(
        criterion="simulated rates and times", specification="model", outcome="INCONCLUSIVE",
        metric="model/error", required=limit, required_text=_required(points, judged, len(means), limit),
    )  # fmt: skip
    if not claims:
        result.reason = f"{len(judged)} points were not simulated" if judged else "nothing to compare"
        return result
    worst = max(claims, key=share)
    result.observed, result.required, result.margin = abs(worst.error), allowed(worst), 1 - share(worst)
    observed, most = format_share(abs(worst.error)), format_share(allowed(worst))
    result.observed_text = f"{observed} at worst, of {most} allowed there: {worst.name}"
    power = NormalDist().inv_cdf(1 - MISSED)
    unproved = [
        claim
        for curve in curves
        if (quantile + power) * (claim := _mean(curve, limit)).standard_error > limit
    ]
    missing = len(judged) - len(singles)
    if share(worst) > 1:
        result.outcome = "FAIL"
        result.fix = "the report shows which curve parts; measure again when the network is quiet"
    elif missing:
        result.reason = f"{missing} points were not simulated"
    elif unproved:
        vaguest = max(unproved, key=lambda claim: claim.standard_error)
        result.reason = (
            f"{len(unproved)} of {len(curves)} curves are known too badly to prove anything, the worst within "
            f"{format_share(Z95 * vaguest.standard_error)}: {vaguest.name}"
        )
        result.fix = (
            "measure again when nothing else uses the hosts and their network, or with a smaller --confidence"
        )
    else:
        result.outcome = "PASS"
    return result


def _required(points: Sequence[Comparison], judged: Sequence[Comparison], means: int, limit: float) -> str:
    required = f"within {format_share(limit)} of measured, plus the measurement's own error at 99 % for all "
    required += f"{len(judged)} points" + (f" and {means} curves" if means else "") + " together"
    waived = [point for point in points if point.waived]
    if waived:
        required += f"; {len(waived)} times are not judged: {waived[0].waived}"
    return required


def _claim(point: Comparison) -> Claim:
    name = f"{point.curve}, {point.axis} {point.label or f'{point.x:g}'}"
    return Claim(name, point.error or 0.0, point.uncertainty / Z95)


def _curves(points: Sequence[Comparison]) -> list[list[Comparison]]:
    """The simulated points of each curve."""
    by_name: dict[str, list[Comparison]] = {}
    for point in points:
        if point.error is not None:
            by_name.setdefault(point.curve, []).append(point)
    return list(by_name.values())


def _mean(curve: Sequence[Comparison], limit: float) -> Claim:
    """The mean error of a curve. Points that are known much worse than the limit count less."""
    claims = [_claim(point) for point in curve]
    if len(claims) == 1:
        return claims[0]
    weights = [1 / (limit**2 + claim.standard_error**2) for claim in claims]
    total = math.fsum(weights)
    return Claim(
        f"{curve[0].curve}, mean of {len(curve)} points",
        math.fsum(w * claim.error for w, claim in zip(weights, claims, strict=True)) / total,
        math.sqrt(
            math.fsum((w * claim.standard_error) ** 2 for w, claim in zip(weights, claims, strict=True))
        )
        / total,
    )
