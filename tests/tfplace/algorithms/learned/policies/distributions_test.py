"""Distributions over devices as logarithms."""

import numpy as np
import tensorflow as tf

from tfplace.algorithms.learned.policies.distributions import (
    chosen_log_probs,
    gumbel_noise,
    log_prior,
)

ALLOWED = np.array([[True, True, False], [False, True, False]])


def test_log_prior_of_nothing_known_is_uniform_over_what_is_allowed():
    prior = log_prior(ALLOWED)
    assert prior.dtype == np.float32
    np.testing.assert_array_equal(prior, [[0.0, 0.0, -1e9], [-1e9, 0.0, -1e9]])


def test_log_prior_of_given_frequencies():
    prior = log_prior(ALLOWED, np.array([[0.25, 0.75, 0.0], [0.0, 1.0, 0.0]]))
    np.testing.assert_allclose(np.exp(prior), [[0.25, 0.75, 0.0], [0.0, 1.0, 0.0]])
    assert prior[1, 0] < -1e8


def test_the_largest_logit_with_noise_is_a_sample():
    logits = np.log([0.2, 0.8])
    noise = gumbel_noise(np.random.default_rng(0), (4000, 2))
    assert noise.dtype == np.float32
    assert abs((logits + noise).argmax(axis=1).mean() - 0.8) < 0.02


def test_chosen_log_probs():
    logs = tf.constant([[[-1.0, -2.0], [-3.0, -4.0]]])
    np.testing.assert_array_equal(chosen_log_probs(logs, tf.constant([[1, 0]])), [[-2.0, -3.0]])
