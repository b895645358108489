"""The time of a network run: a machine on which engines start slowly gives them less to measure with."""

from __future__ import annotations

import pytest

from assay.measure.network import LAUNCH_S, LEAST_S, ONE_SUSPECT_S, SWEEP_SHARE, Allowance

BUDGET = 30.0


@pytest.mark.parametrize("start", [0.3, 2.0, 4.0])
def test_the_budget_is_kept_within_a_fifth_whatever_an_engine_takes_to_start(start: float) -> None:
    """Sweep, each direction by itself, and the retest: each uses what it was given, and its start."""
    now = 0.0
    allowance = Allowance(BUDGET, lambda: now)
    given = SWEEP_SHARE * BUDGET
    now += start + given
    allowance.learn(given)
    assert allowance.launch == max(LAUNCH_S, start)
    now += start + allowance.next(allowance.launch + ONE_SUSPECT_S)
    now += start + allowance.next()
    assert now <= 1.2 * BUDGET
    assert now >= 0.9 * BUDGET or start > 1


def test_an_engine_has_some_time_however_late_it_is() -> None:
    now = 0.0
    allowance = Allowance(BUDGET, lambda: now)
    now = 2 * BUDGET
    assert allowance.next() == LEAST_S


def test_without_a_budget_there_is_no_limit() -> None:
    assert Allowance(0.0).next(5.0) == 0.0
