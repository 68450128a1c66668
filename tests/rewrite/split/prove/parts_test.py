"""Arrays are compared as floats where they are, in parts, and put together as their state says."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from rewrite.split.prove import parts as numpy_parts
from rewrite.split.prove.parts import difference, largest, most_apart, together
from rewrite.split.states import SUM, WHOLE, Sharded

NAN, INF = math.nan, math.inf


@pytest.fixture(autouse=True)
def two_elements_at_a_time(monkeypatch):
    monkeypatch.setattr(numpy_parts, "_CHUNK", 2)


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
        ([3, 2**62 + 1], [3, 2**62], INF),
        ([3, 2**62], [3, 2**62], 0.0),
    ],
)
def test_the_largest_difference(one, other, apart):
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


def test_parts_make_a_whole_as_their_state_says():
    parts = [np.array([1.0, 2.0]), np.array([3.0])]
    (joined,) = together(parts, Sharded(0), (2, 1), is_mean=False)
    assert joined.tolist() == [1.0, 2.0, 3.0]
    terms = [np.array([3.0]), np.array([6.0])]
    assert [each.tolist() for each in together(terms, SUM, (2, 1), is_mean=False)] == [[9.0]]
    assert [each.tolist() for each in together(terms, SUM, (2, 1), is_mean=True)] == [[4.0]]
    assert together(terms, WHOLE, (2, 1), is_mean=False) == terms
    with pytest.raises(ValueError, match="the parts have the shapes"):
        together(parts, Sharded(0), (1, 2), is_mean=False)
