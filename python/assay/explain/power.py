"""The statistical power of a run's tests: how slow a host must be to be found.

A host is a fault if it is suspected and its retest confirms it. Both tests have a threshold and an error, so a slow
side is found with 95 % probability if its effect exceeds the threshold of each by 1.64 standard errors. The error of
a retest that was not needed is taken from the scatter of the pairs that were measured. Errors are themselves
estimates, from few values: thresholds that are multiples of them are taken a standard error higher.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from assay.explain.culprit import MIN_EFFECT, MIN_EFFECT_OF_FEW, SIDES, scaled_effects, threshold
from assay.explain.evidence import Evidence
from assay.explain.matrix import PairMatrix
from assay.explain.polish import MEDIAN_ERROR, MIN_MEMBERS, Fit, fit
from assay.explain.retest import (
    CONTROL_PAIRS,
    MIN_ONE_WAY_EFFECT,
    MIN_ONE_WAY_Z,
    MIN_Z,
    OWN_PAIRS,
    SCALE_FLOOR,
)
from assay.explain.retest import MIN_EFFECT as MIN_RETEST_EFFECT
from assay.explain.slow_network import describe_level
from assay.records.schema import Verdict
from assay.records.units import format_share

SIGMAS_95 = 1.645  # standard deviations: 95 % of a normal distribution are above
MAD_ERROR = 1.17  # relative standard error of a scaled MAD of n normal values, times the root of n
# A retest also requires that the fastest of four pairs of the suspect is below the lower quartile of the controls.
# The terms, in standard deviations: the 95 % quantile of the largest of four, the quartile's distance from the median,
# and the quartile's error from eight values.
RANK_MARGIN = 2.23 + 0.67 + 0.3


def detectable_share(matrix: PairMatrix, one_way: bool) -> float:
    """Returns the share of its peers' rate at which a slow side of any host is found with 95 % probability.

    It is the share for the host with the largest error. NaN where there are too few hosts to compare.
    """
    if len(matrix.hosts) < MIN_MEMBERS:
        return math.nan
    model = fit(matrix)
    scales = [scale for side in SIDES for _, _, scale in scaled_effects(matrix, model, side)]
    if not scales:
        return math.nan
    scale = float(np.max(np.concatenate(scales)))
    margin = 1 + MAD_ERROR / math.sqrt(len(matrix.hosts))
    suspected = min(MIN_EFFECT, threshold(model)[1] * scale * margin) - SIGMAS_95 * scale
    return math.exp(min(suspected, _confirmed(_scatter(matrix, model), one_way)))


def _scatter(matrix: PairMatrix, model: Fit) -> float:
    """Returns the standard deviation of a pair. Few cells for each parameter make many residuals of a median polish
    vanish, so that their median says little; their squares do."""
    hosts = len(matrix.hosts)
    shifts = len(np.unique((matrix.target - matrix.source) % hosts))
    freedom = max(1, model.residual.size - 2 * hosts + 1 - shifts)
    return max(model.sigma, float(np.sqrt(np.sum(np.square(model.residual)) / freedom)))


def _confirmed(scatter: float, one_way: bool) -> float:
    """Returns the logarithm of the rate that a retest confirms as slow. ``scatter``: of a pair, relative."""
    error = max(scatter, SCALE_FLOOR) * MEDIAN_ERROR * math.sqrt(1 / OWN_PAIRS + 1 / CONTROL_PAIRS)
    least, z = (MIN_ONE_WAY_EFFECT, MIN_ONE_WAY_Z) if one_way else (MIN_RETEST_EFFECT, MIN_Z)
    margin = 1 + MAD_ERROR / math.sqrt(CONTROL_PAIRS)
    return min(min(least, -z * margin * error) - SIGMAS_95 * error, -RANK_MARGIN * scatter)


def describe_power(evidence: Evidence) -> str:
    """Says which faults the run could have found; empty for a run without pairs of hosts."""
    count = len(evidence.matrix.hosts)
    if not evidence.matrix.value.size:
        return ""
    if count < MIN_MEMBERS:
        share = format_share(math.exp(MIN_EFFECT_OF_FEW))
        return f"of {count} hosts only pairs are compared: one at {share} of the fastest is suspected"
    one_way_share, both_ways = (
        detectable_share(evidence.one_way, True),
        detectable_share(evidence.matrix, False),
    )
    unseen = sorted(set(evidence.matrix.hosts) - set(evidence.one_way.hosts))
    if math.isnan(one_way_share):
        return (
            f"a host at {format_share(both_ways)} of its peers' rate in both directions would have been found; its "
            "directions were not measured one at a time, so a slow one may hide behind the other"
        )
    text = f"a host that sends or receives at {format_share(one_way_share)} of its peers' rate would have been found"
    return text + (f"; not measured one direction at a time: {', '.join(unseen[:8])}" if unseen else "")


def state_power(verdicts: Iterable[Verdict], evidence: Evidence) -> None:
    """Adds to the reason of each verdict "no fault" which faults the run could have found."""
    for verdict in verdicts:
        if _says_no_fault(verdict):
            texts = (verdict.reason, describe_power(evidence), describe_level(evidence))
            verdict.reason = "; ".join(text for text in texts if text)


def _says_no_fault(verdict: Verdict) -> bool:
    """Whether it is a passed verdict on the number of faults. Such a verdict has no metric."""
    return verdict.outcome == "PASS" and not verdict.metric and verdict.observed == 0 and verdict.unit == "1"
