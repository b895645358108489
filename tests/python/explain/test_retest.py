"""The retest of suspects: which pairs are measured again, and how it tells hardware faults from congestion."""

import numpy as np
import pytest
from planted import TwoCabinets

from assay.explain import explain
from assay.explain.culprit import suspects
from assay.explain.matrix import PairMatrix
from assay.explain.retest import CONTROL_PAIRS, OWN_PAIRS, outcome_of, plan_retest, retested_pairs
from assay.records.schema import AnyRecord, Measurement, Subject, Summary


def uniform(count: int) -> np.ndarray:
    return np.full((count, count), 1e9)


def planned_pairs_of(bandwidth: np.ndarray) -> list[tuple[str, str]]:
    matrix = PairMatrix.from_dense(bandwidth, [f"h{i}" for i in range(len(bandwidth))])
    return plan_retest(suspects(matrix), matrix)


def test_without_suspects_no_retest_is_planned() -> None:
    assert planned_pairs_of(uniform(8)) == []
    empty = PairMatrix.of_bandwidth([])
    assert plan_retest(suspects(empty), empty) == []


@pytest.mark.parametrize(("axis", "end"), [(0, 0), (1, 1)])
def test_a_slow_side_is_measured_on_that_side_with_good_partners(axis: int, end: int) -> None:
    bandwidth = uniform(16)
    np.moveaxis(bandwidth, axis, 0)[[3, 4]] *= [[0.5], [0.4]]
    plan = planned_pairs_of(bandwidth)
    for bad, other in (("h3", "h4"), ("h4", "h3")):
        planned_pairs = [pair for pair in plan if pair[end] == bad]
        assert len(planned_pairs) == 8
        assert not [pair for pair in planned_pairs if other in pair]
    controls = [pair for pair in plan if pair[end] not in ("h3", "h4")]
    assert len(controls) == 12
    assert len(set(plan)) == len(plan) == 28
    few = plan_retest(suspects(PairMatrix.from_dense(bandwidth, [f"h{i}" for i in range(16)])), PairMatrix.from_dense(
        bandwidth, [f"h{i}" for i in range(16)]), own_pairs=4, control_pairs=8)  # fmt: skip
    assert len(few) == 16


def test_only_pairs_that_the_run_measured_are_planned() -> None:
    bandwidth = np.full((8, 8), np.nan)  # six clients, two servers
    bandwidth[:6, 6:] = 1e9
    bandwidth[2, 6:] = 4e8
    plan = planned_pairs_of(bandwidth)
    assert plan and all(target in ("h6", "h7") and source not in ("h6", "h7") for source, target in plan)


def test_without_a_healthy_pair_a_retest_has_no_outcome() -> None:
    bandwidth = np.array([[np.nan, 5e8], [1e9, np.nan]])
    matrix = PairMatrix.from_dense(bandwidth, ["h0", "h1"])
    suspected = suspects(matrix)
    assert plan_retest(suspected, matrix) == [("h0", "h1"), ("h1", "h0")] * 2
    assert plan_retest([*suspected, *suspected[:1]], matrix)
    assert outcome_of(suspected[0], suspected, {}) is None


def test_a_plan_for_many_suspects_stays_short() -> None:
    rng = np.random.default_rng(2)
    bandwidth = rng.lognormal(0, 0.02, (200, 200))
    bandwidth[::7] *= 0.5
    assert 0 < len(planned_pairs_of(bandwidth)) <= 40 * 8 + 12


def pair_record(host: str, peer: str, value: float, **changes: object) -> Measurement:
    fields: dict[str, object] = {
        "summary": Summary(n=1, median=value),
        "subject": Subject(host=host, peer=peer),
    }
    return Measurement(name="network.pairs", metric="bandwidth", unit="B/s", **(fields | changes))  # type: ignore[arg-type]


def test_records_of_retests_are_read_by_pair() -> None:
    records: list[AnyRecord] = [
        pair_record("a", "b", 1.0),
        pair_record("a", "b", 2.0, id=7),
        pair_record("b", "a", 0.0),
        pair_record("b", "c", 3.0, status="error"),
        pair_record("c", "b", 3.0, summary=None),
    ]
    assert [(pair, [r.id for r in found]) for pair, found in retested_pairs(records).items()] == [
        (("a", "b"), [0, 7])
    ]


@pytest.mark.parametrize(("remaining", "persists"), [(0.5, True), (0.85, True), (0.95, False), (1.0, False)])
def test_a_slowness_that_persists_alone_is_a_fault(remaining: float, persists: bool) -> None:
    lab = TwoCabinets(1, transmit={3: 0.5}, noise=0.05)
    matrix = PairMatrix.of_bandwidth(lab.rows(), lab.hosts)
    suspected = suspects(matrix)
    second = TwoCabinets(2, transmit={3: remaining}, noise_alone=0.01)
    outcome = outcome_of(
        suspected[0], suspected, retested_pairs(second.retest(plan_retest(suspected, matrix)))
    )
    assert outcome is not None
    assert outcome.persists == persists
    assert np.exp(outcome.effect) == pytest.approx(remaining, abs=0.04)
    assert outcome.suspected / outcome.control == pytest.approx(remaining, abs=0.04)
    assert (outcome.pairs, outcome.controls, len(outcome.evidence)) == (7, 12, 19)


@pytest.mark.parametrize(("rate", "own_pairs", "controls"), [(0.5, 4, 8), (0.6, 8, 12)])
def test_a_suspect_as_slow_as_the_controls_is_no_fault(rate: float, own_pairs: int, controls: int) -> None:
    """The retest's values scatter by a quarter, so a few pairs prove little."""
    lab = TwoCabinets(1, transmit={3: 0.5}, noise=0.05)
    matrix = PairMatrix.of_bandwidth(lab.rows(), lab.hosts)
    suspected = suspects(matrix)
    plan = plan_retest(suspected, matrix, own_pairs=own_pairs, control_pairs=controls)
    values = [1.0, 0.6] * len(plan)
    records: list[AnyRecord] = [
        pair_record(*pair, rate if pair[0] == "h3" else value)
        for pair, value in zip(plan, values, strict=False)
    ]
    outcome = outcome_of(suspected[0], suspected, retested_pairs(records))
    assert outcome is not None and not outcome.persists


def test_a_slow_side_with_varying_rates_is_found_by_many_pairs() -> None:
    lab = TwoCabinets(1, transmit={3: 0.5}, noise=0.05)
    matrix = PairMatrix.of_bandwidth(lab.rows(), lab.hosts)
    suspected = suspects(matrix)
    varying = iter([0.3, 0.9, 0.6, 0.4, 0.85, 0.35, 0.7, 0.5])
    records: list[AnyRecord] = [
        pair_record(*pair, next(varying) if pair[0] == "h3" else 1.0)
        for pair in plan_retest(suspected, matrix)
    ]
    outcome = outcome_of(suspected[0], suspected, retested_pairs(records))
    assert outcome is not None and outcome.persists


@pytest.mark.parametrize(("second_rate", "persists"), [(1.0, False), (0.6, True)])
def test_a_pair_is_measured_twice_and_one_disturbance_is_no_fault(second_rate: float, persists: bool) -> None:
    bandwidth = uniform(16)
    bandwidth[3, 9] = 4e8
    matrix = PairMatrix.from_dense(bandwidth, [f"h{i}" for i in range(16)])
    suspected = suspects(matrix)
    pair = next(suspect for suspect in suspected if suspect.side == "pair")
    plan = plan_retest(suspected, matrix)
    assert plan[0] == plan[-1] == ("h3", "h9")
    assert len(set(plan)) == len(plan) - 1
    records: list[AnyRecord] = [pair_record(*chosen, 1.0) for chosen in plan]
    records[0], records[-1] = pair_record("h3", "h9", 0.6), pair_record("h3", "h9", second_rate)
    outcome = outcome_of(pair, suspected, retested_pairs(records))
    assert outcome is not None and outcome.persists == persists


def test_with_time_for_one_retest_a_slow_pair_is_named_and_not_its_ends() -> None:
    for seed in range(40):
        lab = TwoCabinets(seed, noise=0.03, pairs={(6, 7): 0.47})
        rows = lab.rows()
        matrix = PairMatrix.of_bandwidth(rows, lab.hosts)
        suspected = suspects(matrix)
        assert {suspect.side for suspect in suspected} == {"transmit", "receive", "pair"}
        rows += lab.retest(plan_retest(suspected, matrix, 1, OWN_PAIRS, CONTROL_PAIRS))
        found = explain(rows, lab.hosts)
        assert [(f.rule, f.subject.host, f.subject.peer) for f in found] == [("slow_pair", "h6", "h7")], seed
