"""Adam on a policy's weights: its first steps by hand, and what is kept of it."""

import numpy as np
import pytest
import tensorflow as tf

from tfplace.algorithms.learned.config import AdamConfig
from tfplace.algorithms.learned.learning.policy_gradient import Descent


class Slope(tf.Module):
    """Two weights; the loss is their sum, weighed."""

    def __init__(self, size=2):
        super().__init__()
        self.weights = tf.Variable(tf.zeros([size]))

    def descend(self, descent, slopes):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.weights * tf.constant(slopes))
        descent.step(tape, loss)
        return self.weights.numpy()


def test_the_first_step_is_the_rate_against_each_slope():
    policy = Slope()
    descent = Descent(policy, AdamConfig(learning_rate=0.1, gradient_clip=10.0))
    # m / sqrt(v) of a first gradient is its sign, whatever its size.
    np.testing.assert_allclose(policy.descend(descent, [3.0, -0.5]), [-0.1, 0.1], rtol=1e-4)


def test_gradients_are_clipped_together():
    policy = Slope()
    descent = Descent(policy, AdamConfig(learning_rate=0.1, gradient_clip=5.0))
    policy.descend(descent, [30.0, 40.0])  # of norm 50: 3 and 4 remain
    # The second gradient is (0, 4): m = 0.9 * 0.1 * (3, 4) + 0.1 * (0, 4) over 1 - 0.9^2, and v
    # likewise with 0.999; Adam's step is the rate times m / sqrt(v).
    m = (0.09 * np.array([3.0, 4.0]) + 0.1 * np.array([0.0, 4.0])) / 0.19
    v = (0.000999 * np.array([9.0, 16.0]) + 0.001 * np.array([0.0, 16.0])) / 0.001999
    expected = np.array([-0.1, -0.1]) - 0.1 * m / np.sqrt(v)
    np.testing.assert_allclose(policy.descend(descent, [0.0, 4.0]), expected, rtol=1e-5)


def test_state_holds_weights_and_moments():
    config = AdamConfig(learning_rate=0.1)
    one, other = Slope(), Slope()
    descent, resumed = (Descent(policy, config, ("w", "adam")) for policy in (one, other))
    one.descend(descent, [1.0, 0.2])
    state = descent.state()
    assert {name.split("/")[0] for name in state} == {"w", "adam"}
    resumed.set_state(state)
    expected = one.descend(descent, [0.3, -0.4])
    np.testing.assert_array_equal(other.descend(resumed, [0.3, -0.4]), expected)


def test_another_policys_state_is_refused():
    config = AdamConfig()
    with pytest.raises(ValueError, match="restoring a policy: policy/0 has shape"):
        Descent(Slope(3), config).set_state(Descent(Slope(2), config).state())
