"""Tests of tfplace.algorithms.learned.learning.appraisal."""

import numpy as np

from tfplace.algorithms.learned.learning.appraisal import (
    MovingAverage,
    advantages,
    over_median,
    over_root_mean_square,
)


def test_moving_average_starts_at_the_first_median_and_follows():
    average = MovingAverage(decay=0.9).updated(np.array([-2.0, -3.0, -10.0]))
    assert average.value == -3.0
    assert average.updated(np.array([-1.0])).value == 0.9 * -3.0 + (1 - 0.9) * -1.0


def test_no_rewards_change_nothing():
    assert MovingAverage(-1.0).updated(np.array([])) == MovingAverage(-1.0)


def test_advantages():
    np.testing.assert_array_equal(advantages(np.array([-1.0, -3.0]), -2.0), [1.0, -1.0])


def test_over_root_mean_square_keeps_signs():
    values = over_root_mean_square(np.array([3.0, 1.0, -1.0, -1.0]))
    np.testing.assert_allclose(values, np.array([3.0, 1.0, -1.0, -1.0]) / 3**0.5)


def test_over_root_mean_square_is_clipped():
    assert over_root_mean_square(np.array([0.0] * 99 + [-1.0]), limit=3.0)[-1] == -3.0


def test_over_median_ignores_how_bad_a_failure_is():
    mild = over_median(np.array([0.5, -0.5, 1.0, -0.5, -9.0]))
    np.testing.assert_allclose(mild, [0.6745, -0.6745, 1.349, -0.6745, -3.0])
    np.testing.assert_array_equal(over_median(np.array([0.5, -0.5, 1.0, -0.5, -90.0])), mild)


def test_over_median_of_mostly_zeros_is_over_root_mean_square():
    np.testing.assert_array_equal(over_median(np.array([0.0, 0.0, 0.0, 2.0])), [0, 0, 0, 2.0])


def test_zeros_and_nothing_stay():
    for scaled in (over_median, over_root_mean_square):
        np.testing.assert_array_equal(scaled(np.zeros(2)), [0.0, 0.0])
        assert len(scaled(np.zeros(0))) == 0
