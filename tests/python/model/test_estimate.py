"""The estimate of a message's time, from visits with planted delays and token buckets."""

from __future__ import annotations

import numpy as np
import pytest

from assay.model.estimate import MAX_UNCERTAINTY, estimate_of_visits

# A message's time without delays (s); the token bucket's rate (B/s) and size (B).
MESSAGE_S, RATE, BUCKET = 15e-6, 40e6, 16e3
MESSAGES = 400


def times_behind_token_bucket(
    size: int, pause_share: float, seed: int, pause_s: tuple[float, float] = (1e-4, 3e-4)
) -> list[float]:
    """One-way times (s) through a token bucket. A share of the messages starts after a pause, in which the bucket
    fills."""
    random = np.random.default_rng(seed)
    tokens, times = BUCKET, []
    for _ in range(MESSAGES):
        paused = random.uniform(*pause_s) if random.random() < pause_share else 0.0
        duration = MESSAGE_S + paused
        tokens = min(BUCKET, tokens + duration * RATE)
        wait = max(0.0, size - tokens) / RATE
        tokens += wait * RATE - size
        times.append(duration + wait)
    return times


@pytest.mark.parametrize("visits", [2, 6, 20])
def test_delays_of_single_messages_do_not_change_the_estimate(visits: int):
    random = np.random.default_rng(visits)
    samples = [
        MESSAGE_S * np.where(random.random(50) < 0.2, random.uniform(2, 20, 50), 1) for _ in range(visits)
    ]
    result = estimate_of_visits(samples)
    assert result.value == pytest.approx(MESSAGE_S)
    # Two visits cannot tell delays from a token bucket: the interval asks for more.
    assert (result.uncertainty < MAX_UNCERTAINTY) == (visits > 2)


@pytest.mark.parametrize("pause_share", [0.0, 0.05, 0.15])
def test_token_bucket_time_is_size_over_rate(pause_share: float):
    size = 2200
    assert size / RATE > 2 * MESSAGE_S
    result = estimate_of_visits([times_behind_token_bucket(size, pause_share, seed) for seed in range(20)])
    assert (
        result.value == pytest.approx(size / RATE, rel=MAX_UNCERTAINTY)
        and result.uncertainty <= MAX_UNCERTAINTY
    )


@pytest.mark.parametrize("pause_share", [0.05, 0.08, 0.1, 0.15])
def test_token_bucket_that_many_messages_find_full(pause_share: float):
    """With many pauses, the medians agree on a time that is shorter than size / RATE."""
    size = 1000
    assert size / RATE < 2 * MESSAGE_S
    result = estimate_of_visits(
        [times_behind_token_bucket(size, pause_share, seed, (3e-5, 12e-5)) for seed in range(20)]
    )
    assert (
        result.value == pytest.approx(size / RATE, rel=MAX_UNCERTAINTY)
        and result.uncertainty <= MAX_UNCERTAINTY
    )


def test_interval_spans_both_modes():
    """Half of the visits find a full bucket, half an empty one."""
    visits = [[MESSAGE_S] * 50, [2 * MESSAGE_S] * 50] * 4
    result = estimate_of_visits(visits)
    assert (
        result.low <= MESSAGE_S * 1.01
        and result.high >= MESSAGE_S * 1.99
        and result.uncertainty > MAX_UNCERTAINTY
    )


def test_equal_samples_have_no_uncertainty():
    assert estimate_of_visits([[MESSAGE_S] * 2]).uncertainty == 0
