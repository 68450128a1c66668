"""Tests of tfplace.algorithms.learned.policies.seq2seq."""

import numpy as np
import pytest
import tensorflow as tf

from tfplace.algorithms.learned.config import Seq2SeqConfig
from tfplace.algorithms.learned.policies.distributions import gumbel_noise, log_prior
from tfplace.algorithms.learned.policies.seq2seq import Seq2Seq, Sequence

GROUPS, FEATURES, DEVICES, SAMPLES = 4, 5, 3, 6
ALLOWED = np.ones((GROUPS, DEVICES), dtype=bool)
ALLOWED[1] = [True, False, True]
ALLOWED[2] = [False, True, False]


def trained_looking(config):
    """A policy whose output layer is no longer zero."""
    policy = Seq2Seq(FEATURES, DEVICES, config, seed=0)
    rng = np.random.default_rng(0)
    policy.output.set_weights([rng.normal(size=w.shape) for w in policy.output.get_weights()])
    return policy


def sequence():
    features = np.random.default_rng(1).normal(size=(GROUPS, FEATURES))
    return Sequence(tf.constant(features, tf.float32), tf.constant(log_prior(ALLOWED)))


def samples(policy):
    noise = gumbel_noise(np.random.default_rng(2), (GROUPS, SAMPLES, DEVICES))
    return policy.sample(sequence(), tf.constant(noise))


def test_an_untrained_policy_is_uniform_over_what_is_allowed():
    policy = Seq2Seq(FEATURES, DEVICES, Seq2SeqConfig(units=8), seed=0)
    logs = policy.log_distributions(sequence(), tf.zeros([2, GROUPS], tf.int32))
    expected = ALLOWED / ALLOWED.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(tf.exp(logs), [expected, expected], atol=1e-6)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_sampling_and_the_pass_over_known_devices_agree(bidirectional):
    policy = trained_looking(Seq2SeqConfig(units=8, bidirectional=bidirectional))
    devices, logs = samples(policy)
    again = policy.log_distributions(sequence(), devices)
    np.testing.assert_allclose(tf.exp(logs), tf.exp(again), atol=1e-5)
    assert np.ptp(tf.exp(logs).numpy()[:, 3], axis=0).max() > 1e-4  # depends on earlier devices


def test_samples_keep_to_allowed_devices():
    devices = samples(trained_looking(Seq2SeqConfig(units=8)))[0].numpy()
    assert devices.shape == (SAMPLES, GROUPS)
    assert ALLOWED[np.arange(GROUPS), devices].all()


def test_the_first_group_is_sampled_by_the_largest_noisy_logit():
    policy = Seq2Seq(FEATURES, DEVICES, Seq2SeqConfig(units=8), seed=0)
    noise = np.zeros((GROUPS, 2, DEVICES), dtype=np.float32)
    noise[0, 0, 2] = noise[0, 1, 1] = 5.0
    devices, _ = policy.sample(sequence(), tf.constant(noise))
    np.testing.assert_array_equal(devices[:, 0], [2, 1])


def test_bound_and_temperature_flatten_the_distributions():
    policy = trained_looking(Seq2SeqConfig(units=8, logit_bound=5.0, temperature=10.0))
    _, logs = samples(policy)
    free = tf.exp(logs).numpy()[:, 0]
    # Logits lie within ±0.5: no device is more than e times as likely as another.
    assert (free.max(axis=1) / free.min(axis=1)).max() <= np.e


def test_same_seed_same_weights():
    one, two = (Seq2Seq(FEATURES, DEVICES, Seq2SeqConfig(units=8), seed=3) for _ in range(2))
    for ours, theirs in zip(one.variables, two.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
