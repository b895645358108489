"""What a message's time is taken for, from visits with planted disturbances."""

from __future__ import annotations

import numpy as np
import pytest

from assay.model.estimate import SURE, estimate_of_visits

RAW, RATE, BUCKET = 15e-6, 40e6, 16e3  # s, B/s, B
MESSAGES = 400


def behind_a_bucket(
    size: int, pauses: float, seed: int, pause: tuple[float, float] = (1e-4, 3e-4)
) -> list[float]:
    """Round trips' halves through a token bucket; before some of them the processor is away, and the bucket fills."""
    random = np.random.default_rng(seed)
    tokens, times = BUCKET, []
    for _ in range(MESSAGES):
        lost = random.uniform(*pause) if random.random() < pauses else 0.0
        taken = RAW + lost
        tokens = min(BUCKET, tokens + taken * RATE)
        waited = max(0.0, size - tokens) / RATE
        tokens += waited * RATE - size
        times.append(taken + waited)
    return times


@pytest.mark.parametrize("visits", [2, 6, 20])
def test_what_holds_single_messages_up_is_not_their_time(visits: int):
    random = np.random.default_rng(visits)
    samples = [RAW * np.where(random.random(50) < 0.2, random.uniform(2, 20, 50), 1) for _ in range(visits)]
    found = estimate_of_visits(samples)
    assert found.value == pytest.approx(RAW) and found.uncertainty < SURE


@pytest.mark.parametrize("pauses", [0.0, 0.05, 0.15])
def test_behind_a_token_bucket_it_is_what_the_rate_allows(pauses: float):
    size = 2200
    assert size / RATE > 2 * RAW
    found = estimate_of_visits([behind_a_bucket(size, pauses, seed) for seed in range(20)])
    assert found.value == pytest.approx(size / RATE, rel=SURE) and found.uncertainty <= SURE


@pytest.mark.parametrize("pauses", [0.05, 0.08, 0.1, 0.15])
def test_a_bucket_that_is_full_for_many_messages(pauses: float):
    """The more there are, the more do medians agree on a time that the rate does not allow."""
    size = 1000
    assert size / RATE < 2 * RAW
    found = estimate_of_visits([behind_a_bucket(size, pauses, seed, (3e-5, 12e-5)) for seed in range(20)])
    assert found.value == pytest.approx(size / RATE, rel=SURE) and found.uncertainty <= SURE


def test_what_may_be_either_is_not_called_sure():
    """Half of the visits behind a full bucket, half behind an empty one."""
    visits = [[RAW] * 50, [2 * RAW] * 50] * 4
    found = estimate_of_visits(visits)
    assert found.low <= RAW * 1.01 and found.high >= RAW * 1.99 and found.uncertainty > SURE


def test_a_simulator_has_no_uncertainty():
    assert estimate_of_visits([[RAW] * 2]).uncertainty == 0
