"""Prices in numbers of shards that were not read: never above what they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.bounds.number_range import Prices, _is_convex

kernels = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 5.0]), st.floats(0, 3), st.floats(0, 3)),
    min_size=1,
    max_size=3,
)


def price(of: list[tuple[float, float, float]], entries: int) -> float:
    """Of kernels of a launch, a constant and a share of the entries each."""
    return sum(max(launch, fixed + each * entries) for launch, fixed, each in of)


def prices(entries: list[int], seconds: list[float]) -> Prices:
    known = np.array(seconds).reshape(-1, 1, 1)
    return Prices(entries, known, _is_convex(entries, known))


@given(kernels, st.sets(st.integers(1, 64), min_size=1, max_size=4), st.integers(1, 64))
def test_they_are_never_above(
    of: list[tuple[float, float, float]], read: set[int], at: int
) -> None:
    entries = sorted(read)
    known = prices(entries, [price(of, each) for each in entries])
    assert known.is_convex.all()
    least = float(known.least(at)[0, 0])
    assert least <= price(of, at) * (1.0 + 1e-12)
    if at in read:
        assert least == pytest.approx(price(of, at))


def test_a_constant_and_a_share_are_known_from_two() -> None:
    known = prices([8, 16], [3.0, 5.0])  # 1 + b / 4
    assert [float(known.least(b)[0, 0]) for b in (1, 4, 32)] == pytest.approx([1.25, 2.0, 9.0])
    # Between two, what is convex may lie below the line: no less than the first, 3, or 5 x 12 / 16.
    assert float(known.least(12)[0, 0]) == pytest.approx(3.75)
    assert float(prices([8], [3.0]).least(4)[0, 0]) == pytest.approx(1.5)


def test_what_is_not_convex_has_no_lines() -> None:
    known = prices([4, 8, 16], [1.0, 2.0, 2.5])
    assert not known.is_convex.any()
    assert float(known.least(2)[0, 0]) == pytest.approx(0.5)  # not 2 + 6 / 4 x (2.5 - 2) / 8 less
    assert float(known.least(32)[0, 0]) == pytest.approx(2.5)


def test_where_an_op_is_not_read_nothing_is_known() -> None:
    known = prices([4, 8], [np.nan, 2.0])
    assert float(known.least(4)[0, 0]) == pytest.approx(1.0)
    assert float(known.least(16)[0, 0]) == pytest.approx(2.0)
    assert float(prices([4], [np.nan]).least(4)[0, 0]) == 0.0
