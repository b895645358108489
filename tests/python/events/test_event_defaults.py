"""Tests of the default credits and sends in flight over a network."""

from __future__ import annotations

import pytest

from assay.measure.events import network_credits, network_in_flight


@pytest.mark.parametrize(
    ("ranks", "credits", "in_flight"), [(2, 24, 4), (4, 16, 6), (8, 7, 14), (16, 4, 16), (200, 2, 16)]
)
def test_few_ranks_have_more_credits_and_fewer_sends(ranks: int, credits: int, in_flight: int) -> None:
    assert network_credits(ranks) == credits
    assert network_in_flight(ranks) == in_flight
