"""The verdict of a platform's validation, from errors, their uncertainties and waived points."""

from __future__ import annotations

import pytest

from assay.model.compare import verdict
from assay.records.schema import Comparison

LIMIT = 0.05


def point(error: float | None, uncertainty: float = 0.0, waived: str = "") -> Comparison:
    simulated = None if error is None else 1.0 + error
    return Comparison(
        curve="time of a message", axis="message size", x=512, unit="s", measured=1.0, simulated=simulated,
        error=error, uncertainty=uncertainty, waived=waived,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("points", "outcome"),
    [
        ([point(0.04)], "PASS"),
        ([point(0.06)], "FAIL"),
        ([point(0.09, 0.1)], "PASS"),  # within the measurement's own uncertainty
        ([point(0.12, 0.1)], "FAIL"),
        ([point(2.0, 2.5)], "INCONCLUSIVE"),  # too uncertain to excuse an error
        ([point(0.01, 2.5)], "INCONCLUSIVE"),  # too uncertain to confirm a small error
        ([point(0.01), point(0.01, 0.16)], "INCONCLUSIVE"),
        ([point(0.01)] * 2 + [point(0.1, 0.16)], "PASS"),  # enough points are certain
        ([point(0.01)] * 9 + [point(3.0, 2.5)], "FAIL"),  # beyond even this uncertainty
        ([point(0.06), point(0.01, 2.5)], "FAIL"),  # an uncertain point hides no other error
        ([point(0.01), point(None)], "INCONCLUSIVE"),
        ([point(2.0, waived="a bucket")], "INCONCLUSIVE"),
        ([], "INCONCLUSIVE"),
    ],
)
def test_the_outcome_follows_from_errors_and_uncertainties(points: list[Comparison], outcome: str) -> None:
    result = verdict(points, LIMIT)
    assert result.outcome == outcome
    assert result.reason or result.outcome != "INCONCLUSIVE"


def test_a_verdict_counts_the_times_that_are_too_uncertain() -> None:
    result = verdict([point(0.01)] * 5 + [point(0.1, 0.2)], LIMIT)
    assert result.outcome == "PASS" and result.observed == pytest.approx(0.01)
    assert "1 times are known too badly to prove anything" in result.required_text
