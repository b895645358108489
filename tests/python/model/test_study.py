"""How often a round is repeated until all flows ran at one time, on planted flows."""

from __future__ import annotations

from itertools import pairwise

import pytest

from assay.errors import UserError
from assay.model.rounds import REPLACES, Result, Round
from assay.model.study import Effort, Study, until_steady
from assay.records.schema import Flows

SIZE = 1 << 18
FLOWS = (("a", "b"), ("c", "d"))
STUDY = Study(["a", "b", "c", "d"], Effort(seconds=1e-3, messages=4))


def tries(started: float, slowest: float, seconds: float) -> tuple[list[Round], Result]:
    """The rounds until one is long enough, where all flows run from ``started`` (s) on, the slowest at that rate."""
    asked: list[Round] = []
    rounds = until_steady(STUDY, Round(FLOWS, SIZE, seconds, params={"experiment": "host"}))
    request = next(rounds)
    while True:
        asked.append(request)
        window = request.seconds - started
        flows = Flows(
            name="network.saturation", metric="rate", unit="B/s", params={"window_s": window},
            values=[2 * slowest, slowest] if window > 0 else [],
        )  # fmt: skip
        try:
            request = rounds.send(Result(flows))
        except StopIteration as ended:
            return asked, ended.value


def test_a_window_that_is_too_short_says_how_long_the_next_try_must_be() -> None:
    asked, result = tries(started=0.004, slowest=100e6, seconds=0.008)  # two messages take 5.2 ms
    assert len(asked) == 2
    assert asked[1].seconds == pytest.approx(0.004 + 1.1 * 2 * SIZE / 100e6)
    assert asked[1].params[REPLACES] == asked[0].key
    assert result.seconds == asked[1].seconds


@pytest.mark.parametrize("slowest", [100e6, 50e6])
def test_flows_that_did_not_run_at_one_time_have_their_start_to_go_by(slowest: float) -> None:
    asked, _ = tries(started=0.014, slowest=slowest, seconds=0.0075)
    assert len(asked) <= 3
    assert asked[-1].seconds < 3 * 0.014


def test_a_round_that_is_long_enough_is_not_repeated() -> None:
    asked, result = tries(started=0.001, slowest=1e9, seconds=0.008)
    assert [request.seconds for request in asked] == [0.008] == [result.seconds]


def test_estimates_that_never_hold_give_way_to_threefold_durations() -> None:
    """The start moves away with the duration, as that of a host that does not keep up."""
    rounds = until_steady(STUDY, Round(FLOWS, SIZE, 0.01, params={"experiment": "host"}))
    asked = [next(rounds)]
    with pytest.raises(UserError, match="did not run at one time"):
        while True:
            flows = Flows(name="", metric="", unit="", params={"window_s": -0.01 * asked[-1].seconds})
            asked.append(rounds.send(Result(flows)))
    ratios = [b.seconds / a.seconds for a, b in pairwise(asked)]
    assert ratios[2:] == [pytest.approx(3)] * 6
    assert all(1 < ratio <= 9 for ratio in ratios[:2])
