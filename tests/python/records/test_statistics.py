"""Order statistics equal numpy's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from assay.records.statistics import median, median_and_mad


@given(
    arrays(
        st.sampled_from([np.float32, np.float64]),
        array_shapes(max_dims=2),
        elements=st.floats(-1e9, 1e9, width=32) | st.just(math.nan),
    )
)
def test_the_median_is_that_of_numpy(values: np.ndarray) -> None:
    before = values.copy()
    assert median(values) == pytest.approx(float(np.median(values)), rel=1e-6, nan_ok=True)
    np.testing.assert_array_equal(values, before)


def test_small_integers_do_not_overflow() -> None:
    assert median(np.array([200, 250], np.uint8)) == 225


def test_no_value_has_no_median() -> None:
    assert math.isnan(median([]))


def test_the_deviation_is_from_the_median() -> None:
    assert median_and_mad([1, 2, 3, 4, 100]) == (3.0, 1.0)
