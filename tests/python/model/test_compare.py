"""The proof of a platform: errors, doubts, and what proves nothing."""

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
        ([point(0.09, 0.1)], "PASS"),  # within what the measurement itself knows
        ([point(0.12, 0.1)], "FAIL"),
        ([point(2.0, 2.5)], "INCONCLUSIVE"),  # so large a doubt excuses nothing
        ([point(0.01, 2.5)], "INCONCLUSIVE"),  # nor does it confirm
        ([point(0.01), point(0.01, 0.16)], "INCONCLUSIVE"),
        ([point(0.01)] * 2 + [point(0.1, 0.16)], "PASS"),  # the others prove enough
        ([point(0.01)] * 9 + [point(3.0, 2.5)], "FAIL"),  # beyond every doubt
        ([point(0.06), point(0.01, 2.5)], "FAIL"),  # what is known badly hides no other error
        ([point(0.01), point(None)], "INCONCLUSIVE"),
        ([point(2.0, waived="a bucket")], "INCONCLUSIVE"),
        ([], "INCONCLUSIVE"),
    ],
)
def test_a_platform_passes_where_every_point_is_known_and_near(
    points: list[Comparison], outcome: str
) -> None:
    found = verdict(points, LIMIT)
    assert found.outcome == outcome
    assert found.reason or found.outcome != "INCONCLUSIVE"


def test_a_verdict_says_how_many_times_prove_nothing() -> None:
    found = verdict([point(0.01)] * 5 + [point(0.1, 0.2)], LIMIT)
    assert found.outcome == "PASS" and found.observed == pytest.approx(0.01)
    assert "1 times are known too badly to prove anything" in found.required_text
