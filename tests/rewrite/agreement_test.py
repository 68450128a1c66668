"""When two values count as the same."""

import numpy as np
import pytest
import tensorflow as tf

from rewrite.agreement import OutputAgreement, max_abs_diff


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
