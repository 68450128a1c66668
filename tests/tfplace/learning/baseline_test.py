"""Tests of tfplace.learning.baseline."""

import numpy as np

from tfplace.learning.baseline import MovingAverage, advantages, normalised


def test_moving_average_starts_at_the_first_mean_and_follows():
    average = MovingAverage(decay=0.9).updated(np.array([-2.0, -4.0]))
    assert average.value == -3.0
    assert average.updated(np.array([-1.0])).value == 0.9 * -3.0 + (1 - 0.9) * -1.0


def test_no_rewards_change_nothing():
    assert MovingAverage(-1.0).updated(np.array([])) == MovingAverage(-1.0)


def test_advantages():
    np.testing.assert_array_equal(advantages(np.array([-1.0, -3.0]), -2.0), [1.0, -1.0])


def test_normalised_has_unit_root_mean_square_and_keeps_signs():
    np.testing.assert_allclose(normalised(np.array([3.0, 1.0, -1.0, -1.0])) ** 2 * 3, [9, 1, 1, 1])


def test_normalised_is_clipped():
    values = normalised(np.array([0.0] * 99 + [-1.0]), limit=3.0)
    assert values[-1] == -3.0


def test_normalised_zero_is_zero():
    np.testing.assert_array_equal(normalised(np.zeros(2)), [0.0, 0.0])
