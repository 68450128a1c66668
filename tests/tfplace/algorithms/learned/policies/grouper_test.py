"""Tests of tfplace.algorithms.learned.hierarchical."""

import numpy as np
import tensorflow as tf

from tfplace.algorithms.learned.config import GrouperConfig
from tfplace.algorithms.learned.hierarchical import Grouper

IDS = np.array([0, 1, 0, 2], dtype=np.int32)
FEATURES = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
CONFIG = GrouperConfig(num_groups=3, units=4, type_units=2, start_probability=0.9)


def test_it_starts_with_the_given_groups():
    grouper = Grouper(IDS, FEATURES, CONFIG, np.array([0, 1, 2, 2], dtype=np.int32), seed=0)
    expected = np.full((4, 3), 0.05)
    expected[np.arange(4), [0, 1, 2, 2]] = 0.9
    np.testing.assert_allclose(tf.exp(grouper.log_distributions()), expected, rtol=1e-5)
    np.testing.assert_allclose(
        grouper.log_probs(tf.constant([0, 1, 0, 2])), np.log([0.9, 0.9, 0.05, 0.9]), rtol=1e-5
    )


def test_without_them_it_is_uniform():
    grouper = Grouper(IDS, FEATURES, CONFIG, None, seed=0)
    np.testing.assert_allclose(tf.exp(grouper.log_distributions()), 1 / 3, rtol=1e-6)


def test_samples_invert_the_cumulative_distribution():
    grouper = Grouper(IDS, FEATURES, CONFIG, None, seed=0)
    groups = grouper.sample(tf.constant([0.0, 0.34, 0.6, 0.9999999]))
    np.testing.assert_array_equal(groups, [0, 1, 1, 2])


def test_one_group():
    config = GrouperConfig(num_groups=1, units=4, type_units=2)
    grouper = Grouper(IDS, FEATURES, config, np.zeros(4, dtype=np.int32), seed=0)
    np.testing.assert_array_equal(grouper.sample(tf.constant([0.0, 0.3, 0.6, 0.99])), [0] * 4)
