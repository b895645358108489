"""The chaos test of event building with a fixed set of seeds, and tests of its checker. events_chaos.py runs other
seeds. What a death does to the events is tested in simulated time, too (tests/engines/events)."""

from __future__ import annotations

from collections import Counter

import pytest
from events_chaos import FAULTS, Result, check, make_plan, report, run_plan
from planted_events import PlantedEventRun

from assay.lab import Lab
from assay.records.run import Run

SEEDS = range(1, 11)
HOSTS = 8


@pytest.fixture(scope="module")
def lab(make_lab) -> Lab:
    return make_lab(HOSTS, host_rate="400mbit")


@pytest.mark.acceptance("events")
@pytest.mark.parametrize("seed", SEEDS)
def test_building_goes_on_after_a_death_and_every_fragment_is_accounted_for(lab: Lab, seed: int) -> None:
    result = run_plan(make_plan(seed, HOSTS), lab)
    assert not result.violations, report(result)
    assert len(result.resumes) == 1 and result.built > 0


@pytest.mark.parametrize(
    ("fault", "heartbeat_ms"),
    [
        pytest.param("kill", 60_000, marks=pytest.mark.lab),  # its connections tell at once
        pytest.param("link", 300, marks=pytest.mark.acceptance("events")),
        pytest.param("freeze", 300, marks=pytest.mark.acceptance("events")),
    ],
)
def test_a_rank_that_was_lost_comes_back_and_takes_part(make_lab, fault: str, heartbeat_ms: int) -> None:
    """The end of a fault and of the run wait for what is recorded, not for a time."""
    plan = make_plan(3, 4, fault=fault, heartbeat_ms=heartbeat_ms, returns=True)
    result = run_plan(plan, make_lab(4, host_rate="400mbit"))
    assert not result.violations, report(result)
    assert len(result.resumes) == len(result.returns) == 1


@pytest.mark.acceptance("events")
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_the_exchange_is_planned_anew_for_those_that_are_left_and_for_those_that_return(
    lab: Lab, seed: int
) -> None:
    result = run_plan(make_plan(seed, HOSTS, returns=True, planned=True), lab)
    assert not result.violations, report(result)
    # One plan for those that are left, unless the rank is back before it; one for all.
    assert len(result.returns) == 1 and 1 <= len(result.replans) <= 2


def test_the_seeds_have_every_fault_and_never_the_manager() -> None:
    plans = [make_plan(seed, HOSTS) for seed in SEEDS]
    assert {plan.deaths[0].fault for plan in plans} == set(FAULTS)
    assert all(0 < plan.deaths[0].rank < HOSTS for plan in plans)
    assert len(Counter(plan.protocol for plan in plans)) == 2


def test_with_several_deaths_each_host_dies_once_and_the_first_death_stays_the_same() -> None:
    for seed in SEEDS:
        plan = make_plan(seed, HOSTS, deaths=5)
        ranks = [death.rank for death in plan.deaths]
        assert len(set(ranks)) == 5 and 0 not in ranks
        assert plan.deaths[:1] == make_plan(seed, HOSTS).deaths


def check_planted(tmp_path, planted: PlantedEventRun | None) -> Result:
    """The checker's result for a planted run in which h3 should have died; None: a run without records."""
    run = Run.create("eb", ["assay", "eb"], path=tmp_path / "run")
    for record in planted.records() if planted else []:
        run.append(record)
    run.finish("complete", "")
    result = Result(make_plan(1, HOSTS))
    check(tmp_path / "run", ["h3"], result)
    return result


def test_the_checker_accepts_a_death_that_is_accounted_for(tmp_path) -> None:
    result = check_planted(tmp_path, PlantedEventRun(seconds_to_resume={3: 0.12}))
    assert result.violations == [] and result.resumes == [0.12]


@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        (PlantedEventRun(), "the death of h3 is not reported"),
        (PlantedEventRun(seconds_to_resume={3: 0.1, 5: 0.1}), "reported dead, and was not: h5"),
        (
            PlantedEventRun(seconds_to_resume={3: 0.1}, ledger={"fragments_corrupt": 1.0}),
            "fragments_corrupt: 1",
        ),
        (
            PlantedEventRun(seconds_to_resume={3: 0.1}, ledger={"fragments_duplicate": 2.0}),
            "fragments_duplicate: 2",
        ),
        (PlantedEventRun(seconds_to_resume={3: 0.1}, ledger={"events_built": 0.0}), "no event was built"),
        (None, "no ledger was written"),
    ],
)
def test_the_checker_finds_planted_violations(
    tmp_path, planted: PlantedEventRun | None, expected: str
) -> None:
    assert expected in check_planted(tmp_path, planted).violations
