"""When two values count as the same."""

import math

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rewrite import agreement as module
from rewrite.agreement import OutputAgreement, difference, grown, largest, most_apart

NAN, INF = math.nan, math.inf


@pytest.fixture(autouse=True, scope="module")
def two_elements_at_a_time():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", 2)
        yield


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
    assert most_apart(np.float32([1.0, np.nan]), np.float32([3.0, np.nan])) == 2.0
    assert most_apart(np.float32([np.inf]), np.float32([np.inf])) == 0.0
    assert most_apart(np.float32([1.0]), np.float32([np.nan])) == np.inf
    assert most_apart(np.float32([1.0]), np.float32([1.0, 2.0])) == np.inf
    assert most_apart(np.array([b"a"], object), np.array([b"b"], object)) == np.inf
    assert most_apart(np.int64([5]), np.int64([3])) == 2.0


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.5], 0.5),
        ([1.5, 2.0, 3.0], [1.0, 2.0, 3.0], 0.5),
        ([NAN, INF, -INF], [NAN, INF, -INF], 0.0),
        ([1.0, NAN, 3.0], [1.0, 2.0, 3.0], INF),
        ([INF, 2.0, 3.0], [-INF, 2.0, 3.0], INF),
        ([1.0, 2.0], [1.0, 2.0, 3.0], INF),
        ([1.0, 2.0], [1, 2], INF),
        ([3, 2**62 + 1], [3, 2**62], 1.0),
        ([3, 2**62], [3, 2**62], 0.0),
    ],
)
def test_the_largest_difference_of_parts(one, other, apart):
    assert most_apart(np.array(one), np.array(other)) == apart


def test_bfloat16_is_compared_as_a_float_and_whole_numbers_are_not():
    value = np.array([1.0, -2.0, 3.0], ml_dtypes.bfloat16)
    assert largest(value) == 3.0 and most_apart(value, value + 1) == 1.0
    assert largest(np.array([1.0, -INF, NAN])) == 1.0
    assert largest(np.array([5])) == 0.0


@pytest.mark.parametrize(
    ("whole", "other", "how"),
    [
        ([1.0, 100.0], [1.05, 100.0], ""),
        ([1.0, 100.0], [1.5, 100.0], "it differs by 0.5, where values are up to 100"),
        ([1.0, 2.0], [[1.0, 2.0]], "its shape is (1, 2), wanted (2,)"),
        ([1, 2], [1, 3], "its values differ"),
        ([b"a"], [b"b"], "its values differ"),
    ],
)
def test_how_two_arrays_differ(whole, other, how):
    assert difference(np.array(whole), np.array(other), 1e-3, []) == how


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
    assert most_apart(value, value.copy()) == 0.0


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
