"""Schedules of exchanges: in a step each rank sends and receives at most once, and every pair of ranks exchanges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import UserError
from assay.fabric import schedules


@settings(deadline=None)
@given(name=st.sampled_from(sorted(schedules.SCHEDULES)), ranks=st.integers(1, 40))
def test_a_step_sends_to_a_rank_at_most_once(name: str, ranks: int) -> None:
    schedule = schedules.find(name, ranks)
    assert len(list(schedule)) == schedule.steps
    for step in schedule:
        sent = step[step >= 0]
        assert step.shape == (ranks,)
        assert len(set(sent.tolist())) == len(sent)
        assert ((sent >= 0) & (sent < ranks)).all()


@settings(deadline=None)
@given(name=st.sampled_from(["shift", "xor", "circle"]), ranks=st.integers(1, 40))
def test_every_pair_exchanges_exactly_once(name: str, ranks: int) -> None:
    pairs = [
        (src, int(dst)) for step in schedules.find(name, ranks) for src, dst in enumerate(step) if dst >= 0
    ]
    expected = {(a, b) for a in range(ranks) for b in range(ranks) if a != b}
    between = [pair for pair in pairs if pair[0] != pair[1]]
    assert set(between) == expected
    assert len(between) == len(expected)


@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_circle_pairs_send_to_each_other(ranks: int) -> None:
    for step in schedules.circle(ranks):
        active = np.flatnonzero(step >= 0)
        assert (step[step[active]] == active).all()


def test_a_random_schedule_is_reproducible() -> None:
    assert (schedules.random(20).array() == schedules.random(20).array()).all()
    assert (schedules.random(20, 1).array() != schedules.random(20, 2).array()).any()


def test_a_schedule_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_text("# two steps\n1 0 -1\n\n2 -1 0  # the second\n")
    assert schedules.read(path, 3).array().tolist() == [[1, 0, -1], [2, -1, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0 2\n1 0\n", ":2: 2 destinations for 3 ranks"),
        ("1 0 3\n", ":1: there is no rank 3 among 3"),
        ("1 0 -2\n", ":1: there is no rank -2"),
        ("1 0 x\n", ":1: not a list of ranks"),
        ("# nothing\n", "has no step"),
    ],
)
def test_a_wrong_schedule_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "steps"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        schedules.read(path, 3)
    assert message in str(error.value)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.one_of(st.binary(max_size=80), st.text("0123-# \n", max_size=80).map(str.encode)))
def test_any_file_is_a_schedule_or_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_bytes(content)
    try:
        schedule = schedules.read(path, 3)
    except UserError as error:
        assert str(path) in str(error)
        return
    assert ((schedule.array() >= -1) & (schedule.array() < 3)).all()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UserError, match="no schedule 'shft'"):
        schedules.find("shft", 3)
