"""Tests of the learning rules, worked by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tfplace.algorithms.learned.learning import policy_gradient
from tfplace.algorithms.learned.learning.policy_gradient import mean_entropy, policy_gradient_loss

LOG2, LOG3, LOG4 = math.log(2), math.log(3), math.log(4)


def test_policy_gradient_loss():
    log_probs = tf.constant([[-1.0, -2.0], [-0.5, -0.5]])
    # -((2 · -3) + (-4 · -1)) / 2 = 1
    assert float(policy_gradient_loss(log_probs, tf.constant([2.0, -4.0]))) == pytest.approx(1.0)


def test_policy_gradient_raises_what_did_better():
    logits = tf.Variable([[0.0, 0.0]])
    with tf.GradientTape() as tape:
        log_probs = tf.nn.log_softmax(logits)[:, :1]
        loss = policy_gradient_loss(log_probs, tf.constant([3.0]))
    # d log π(0) / d logits = [1 - 1/2, -1/2]; the loss falls as the chosen logit rises.
    np.testing.assert_allclose(tape.gradient(loss, logits), [[-1.5, 1.5]], rtol=1e-6)


def test_entropy_ignores_forbidden_devices():
    logs = tf.constant([[[-LOG2, -LOG2, -1e9], [0.0, -1e9, -1e9]]])
    assert float(mean_entropy(logs)) == pytest.approx(LOG2 / 2)


def test_probability_ratio():
    ratio = policy_gradient.probability_ratio(tf.constant([[-LOG2]]), tf.constant([[-LOG4]]))
    np.testing.assert_allclose(ratio, [[2.0]], rtol=1e-6)


def test_probability_ratio_stays_finite():
    ratio = policy_gradient.probability_ratio(tf.constant([[0.0]]), tf.constant([[-1e9]]))
    assert np.isfinite(ratio.numpy()).all()


def test_divergence_is_of_the_old_from_the_new():
    old = tf.math.log([[[0.5, 0.5]]])
    new = tf.math.log([[[0.25, 0.75]]])
    # ½ log(½ / ¼) + ½ log(½ / ¾) = ½ log 2 + ½ log ⅔ = ½ log 4/3
    expected = 0.5 * (LOG4 - LOG3)
    np.testing.assert_allclose(policy_gradient.kl_divergence(old, new), [[expected]], rtol=1e-5)


def test_divergence_of_a_forbidden_device_is_nothing():
    logs = tf.constant([[[0.0, -1e9]]])
    np.testing.assert_array_equal(policy_gradient.kl_divergence(logs, logs), [[0.0]])


def test_penalised_loss():
    ratio = tf.constant([[2.0, 1.0], [0.5, 1.0]])
    divergence = tf.constant([[0.1, 0.0], [0.3, 0.2]])
    loss = policy_gradient.penalised_loss(ratio, tf.constant([1.0, -2.0]), divergence, beta=0.5)
    # rows: 2 + 1 - 0.05 = 2.95 and -1 - 2 - 0.25 = -3.25; minus their mean.
    assert float(loss) == pytest.approx(0.15)
