"""Lines through times: exact on a line, unmoved by outliers, never negative."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.measurement.calibration.line_fit import LineFit, fit_line

SIZES = np.array([64, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 25])

# Round trips of `tfplace calibrate --cluster=workers:2` on two EPYC cores, task 1 to task 0.
RECORDED = np.array([256, 297, 306, 320, 361, 583, 1531, 5913, 11881]) * 1e-6


def test_points_on_a_line():
    fit = fit_line([0, 1, 2, 3], [2.0, 2.5, 3.0, 3.5])
    assert fit == LineFit(2.0, 0.5, 0.0, 1.0)


def test_outliers_do_not_bend_it():
    seconds = 3e-4 + SIZES / 2e9
    seconds[[2, 5]] *= [5, 2]
    fit = fit_line(SIZES, seconds)
    assert fit.fixed_seconds == pytest.approx(3e-4)
    assert fit.seconds_per_unit == pytest.approx(5e-10)
    assert fit.median_relative_residual == pytest.approx(0, abs=1e-12)


def test_a_recorded_link():
    fit = fit_line(SIZES, RECORDED)
    assert fit.fixed_seconds == pytest.approx(297e-6, rel=0.02)
    assert 1 / fit.seconds_per_unit == pytest.approx(2.95e9, rel=0.03)
    assert fit.median_relative_residual < 0.05
    assert fit.r_squared > 0.99


def test_a_line_does_not_fall_nor_start_below_0():
    assert fit_line([1, 2], [2.0, 1.0]).seconds_per_unit == 0.0
    steep = fit_line([1, 2, 3], [1.0, 3.0, 5.0])
    assert steep.fixed_seconds == 0.0
    assert steep.seconds_per_unit == pytest.approx(1.5)


def test_one_point_is_a_constant():
    assert fit_line([100], [0.5]) == LineFit(0.5, 0.0, 0.0, 1.0)


@given(
    seconds=st.lists(st.floats(1e-6, 1e2), min_size=2, max_size=9),
    guess=st.tuples(st.floats(0, 1e2), st.floats(0, 1e-3)),
)
def test_no_line_is_better(seconds, guess):
    sizes, t = SIZES[: len(seconds)], np.array(seconds)
    fit = fit_line(sizes, t)

    def loss(fixed, slope):
        return (np.abs(t - fixed - slope * sizes) / t).sum()

    assert loss(fit.fixed_seconds, fit.seconds_per_unit) <= loss(*guess) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("sizes", "seconds"), [([], []), ([1], [0.0]), ([1, 2], [1.0]), ([1], [float("nan")])]
)
def test_no_line(sizes, seconds):
    with pytest.raises(ValueError, match="wanted as many of the ones as of the others"):
        fit_line(sizes, seconds)
