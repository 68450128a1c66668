"""When two values count as the same."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rewrite.agreement import OutputAgreement, grown, max_abs_diff


@pytest.mark.parametrize(
    ("value", "other", "is_within"),
    [
        (np.float32([1.0, 1e-9]), np.float32([1.0, 9e-6]), True),
        (np.float32([1.0, 1e-9]), np.float32([1.0, 2e-5]), False),
        (np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]), True),
        (np.float32([np.inf]), np.float32([-np.inf]), False),
        (np.float64([1.0]), np.float64([1.0 + 1e-9]), False),
        (np.float16([1.0]), np.float16([1.002]), True),
        (np.int32([1]), np.int32([2]), False),
        (np.float32([1.0]), np.float32([[1.0]]), False),
        (np.array([b"a"], object), np.array([b"a"], object), True),
        (np.array([b"a"], object), np.array([b"b"], object), False),
        (np.array([1.0], tf.bfloat16.as_numpy_dtype), np.array([1.5], np.float32), False),
        (
            np.array([1.0], tf.bfloat16.as_numpy_dtype),
            np.array([1.0078125], tf.bfloat16.as_numpy_dtype),
            True,
        ),
    ],
)
def test_tolerance(value, other, is_within):
    assert OutputAgreement().within(value, other) == is_within


def test_differences():
    assert max_abs_diff(np.float32([1.0, np.nan]), np.float32([3.0, np.nan])) == 2.0
    assert max_abs_diff(np.float32([np.inf]), np.float32([np.inf])) == 0.0
    assert max_abs_diff(np.float32([1.0]), np.float32([np.nan])) == np.inf
    assert max_abs_diff(np.float32([1.0]), np.float32([1.0, 2.0])) == np.inf
    assert max_abs_diff(np.array([b"a"], object), np.array([b"b"], object)) == np.inf
    assert max_abs_diff(np.int64([5]), np.int64([3])) == 2.0


def test_what_is_computed_in_bfloat16_is_no_more_exact_than_that():
    value, other = np.float32([3.0]), np.float32([3.02])
    assert not OutputAgreement.of([value]).within(value, other)
    assert OutputAgreement.of([value], "bfloat16").within(value, other)
    assert not OutputAgreement.of([value], "bfloat16").within(value, np.float32([3.1]))


def test_a_tensor_of_rounding_errors_may_have_others():
    weights, noise = np.float32([0.5, -4.0]), np.float32([1e-9, -2e-9])
    agreement = OutputAgreement.of([weights, noise, np.array([b"a"], object)])
    assert agreement.largest == 4.0
    assert agreement.within(noise, -noise)
    assert not agreement.within(noise, np.float32([1e-9, 1e-5]))
    assert not agreement.within(weights, np.float32([0.5, -4.001]))
    assert not OutputAgreement.of([noise]).within(noise, -noise)


VALUES = arrays.arrays(np.float32, arrays.array_shapes(), elements=st.floats(width=32))


@given(VALUES)
def test_every_value_agrees_with_itself(value):
    assert OutputAgreement().within(value, value.copy())
    assert max_abs_diff(value, value.copy()) == 0.0


@given(VALUES, st.floats(-1.0, 1.0))
def test_a_difference_within_the_tolerance_of_the_largest_value_agrees(value, share):
    """Numpy's own comparison is the oracle."""
    finite = np.abs(value[np.isfinite(value)]).max(initial=0.0).astype(np.float64)
    with np.errstate(over="ignore"):
        other = (value.astype(np.float64) + 2e-5 * share * finite).astype(np.float32)
    wide, other_wide = value.astype(np.float64), other.astype(np.float64)
    wanted = np.allclose(other_wide, wide, rtol=0.0, atol=1e-5 * finite, equal_nan=True)
    assert OutputAgreement().within(value, other) == wanted


def test_rounding_errors_lead_about_as_far_as_nudged_runs():
    value, nudged = np.float32([1.0, 2.0]), [np.float32([1.0, 2.01]), np.float32([1.0, 2.0])]
    assert grown(value, nudged, np.float32([1.0, 2.5]))
    assert not grown(value, nudged, np.float32([4.0, 2.0]))
    assert not grown(value, [value], np.float32([1.0, 2.1]))
    assert not grown(np.int32([1]), [np.int32([1])], np.int32([2]))
    assert grown(np.int32([1]), [np.int32([3])], np.int32([2]))


def test_a_nudge_is_one_rounding_error_of_the_narrowest_floats():
    value = np.float32([1.0, 0.0, -3.0])
    apart = OutputAgreement().nudged(value, 0) - value
    assert np.all(np.abs(apart[[0, 2]]) >= 1.1e-7) and np.all(np.abs(apart) < 1e-6)
    narrow = OutputAgreement.of([value], "bfloat16").nudged(value, 0) - value
    assert np.abs(narrow).max() > 1e-3
    assert OutputAgreement().nudged(np.int32([5]), 0) == [5]
