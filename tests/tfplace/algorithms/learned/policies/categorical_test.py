"""Tests of tfplace.algorithms.learned.post."""

import numpy as np
import tensorflow as tf

from tfplace.algorithms.learned.policies.distributions import log_prior
from tfplace.algorithms.learned.post import Categorical

ALLOWED = np.array([[True, True, False], [False, True, False]])


def test_it_starts_uniform_over_what_is_allowed():
    logs = Categorical(log_prior(ALLOWED)).log_distributions()
    np.testing.assert_allclose(tf.exp(logs), [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])


def test_assigned_frequencies_are_its_distributions():
    policy = Categorical(log_prior(ALLOWED))
    policy.assign(np.array([[0.25, 0.75, 0.0], [0.0, 1.0, 0.0]]))
    logs = policy.log_distributions()
    np.testing.assert_allclose(tf.exp(logs), [[0.25, 0.75, 0.0], [0.0, 1.0, 0.0]], atol=1e-6)


def test_samples_follow_the_frequencies():
    policy = Categorical(log_prior(ALLOWED))
    policy.assign(np.array([[0.25, 0.75, 0.0], [0.0, 1.0, 0.0]]))
    devices = policy.sample(np.random.default_rng(0), 4000)
    assert abs((devices[:, 0] == 1).mean() - 0.75) < 0.03
    assert (devices[:, 1] == 1).all()
