"""Tests of tfplace.algorithms.learned.learning.policy_gradient."""

import numpy as np

from tfplace.algorithms.learned.learning.policy_gradient import (
    close_to,
    elite_frequencies,
    elite_indices,
    mixed,
)


def test_elite_is_the_best_tenth_rounded_up():
    rewards = np.array([-3.0, -1.0, -2.0, -1.0] + [-9.0] * 11)
    np.testing.assert_array_equal(elite_indices(rewards, 0.1), [1, 3])


def test_elite_of_one():
    np.testing.assert_array_equal(elite_indices(np.array([-5.0]), 0.1), [0])


def test_frequencies_among_the_elite():
    devices = np.array([[0, 2], [1, 2], [0, 2], [0, 1]])
    np.testing.assert_array_equal(
        elite_frequencies(devices, 3), [[0.75, 0.25, 0.0], [0.0, 0.25, 0.75]]
    )


def test_mixing_spreads_over_allowed_devices_only():
    frequencies = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    allowed = np.array([[True, True, False], [False, False, True]])
    np.testing.assert_allclose(mixed(frequencies, 0.2, allowed), [[0.9, 0.1, 0.0], [0.0, 0.0, 1.0]])


def test_close_to_one_placement():
    allowed = np.array([[True, True, True], [False, True, True]])
    found = close_to(np.array([0, 2]), 0.3, allowed)
    np.testing.assert_allclose(found, [[0.8, 0.1, 0.1], [0.0, 0.15, 0.85]])
