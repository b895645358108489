"""The verdict of a platform's proof, from errors, their uncertainties, missing and waived points; how often it errs."""

from __future__ import annotations

import json

import pytest
from recorded_noise import LIMIT, RECORDED, simulate

from assay.model.proof import verdict
from assay.records.schema import Comparison


def point(error: float | None, uncertainty: float = 0.0, waived: str = "", curve: str = "time") -> Comparison:
    simulated = None if error is None else 1.0 + error
    return Comparison(
        curve=curve, axis="message size", x=512, unit="s", measured=1.0, simulated=simulated,
        error=error, uncertainty=uncertainty, waived=waived,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("points", "outcome"),
    [
        ([point(0.04)], "PASS"),
        ([point(0.06)], "FAIL"),
        ([point(0.06, 0.01)], "PASS"),  # within the limit and the measurement's own error
        ([point(0.08, 0.01)], "FAIL"),
        ([point(2.0, 2.5)], "INCONCLUSIVE"),  # too uncertain to excuse an error
        ([point(0.01, 2.5)], "INCONCLUSIVE"),  # too uncertain to confirm a small error
        ([point(0.01, 0.1)] * 40, "PASS"),  # no point alone, but their mean is certain
        ([point(0.09, 0.1)] * 40, "FAIL"),
        ([point(0.01)] * 9 + [point(0.5, 2.5)], "PASS"),  # the others of its curve are certain
        ([point(0.01)] * 9 + [point(0.5, 2.5, curve="rate")], "INCONCLUSIVE"),
        ([point(0.06), point(0.01, 2.5, curve="rate")], "FAIL"),  # an uncertain curve hides no other error
        ([point(0.01), point(None)], "INCONCLUSIVE"),
        ([point(None)], "INCONCLUSIVE"),
        ([point(0.52), point(None, curve="rate")], "FAIL"),  # a missing point hides no other error
        ([point(2.0, waived="a bucket")], "INCONCLUSIVE"),
        ([], "INCONCLUSIVE"),
    ],
)
def test_the_outcome_follows_from_errors_and_uncertainties(points: list[Comparison], outcome: str) -> None:
    result = verdict(points, LIMIT)
    assert result.outcome == outcome
    assert result.reason or result.outcome != "INCONCLUSIVE"


def test_a_point_among_many_is_allowed_more_than_alone() -> None:
    alone = verdict([point(0.01, 0.01)], LIMIT)
    among = verdict([point(0.01, 0.01, curve=str(i)) for i in range(100)], LIMIT)
    assert among.required > alone.required > LIMIT


def test_the_verdict_says_what_was_required() -> None:
    result = verdict([point(0.02), point(0.01), point(0.5, waived="a bucket")], LIMIT)
    assert "2 points and 1 curves together; 1 times are not judged: a bucket" in result.required_text
    assert result.observed_text.startswith("2 % at worst")


@pytest.mark.acceptance("model")
def test_errors_of_the_proof_with_recorded_noise() -> None:
    """`recorded_noise.py simulate` draws more studies, with other seeds."""
    outcomes = list(simulate(json.loads(RECORDED.read_text()), count=200, seed=1))
    right = [outcome for case, outcome in outcomes if case == "right"]
    off = [outcome for case, outcome in outcomes if case != "right"]
    assert right.count("PASS") >= 0.99 * len(right)
    assert off.count("FAIL") >= 0.99 * len(off) and "PASS" not in off
