"""REINFORCE's loss, and the entropy of a policy."""

from __future__ import annotations

import tensorflow as tf

from tfplace.algorithms.learned.tensor import Tensor


def policy_gradient_loss(log_probs: Tensor, advantage: Tensor) -> Tensor:
    """L = −(1/B) Σ_b A_b · Σ_g log π(d_bg | d_b1 … d_b,g−1).

    Its gradient is minus that of REINFORCE: ∇J ≈ (1/B) Σ_b (R_b − b) ∇ log π(P_b).

    Source: Williams 1992; Mirhoseini et al. 2017, equation 2.

    Args:
      log_probs: f4[B, G].
      advantage: f4[B].
    """
    return -tf.reduce_mean(advantage * tf.reduce_sum(log_probs, axis=1))


def mean_entropy(log_probs: Tensor) -> Tensor:
    """H = −(1/BG) Σ_b Σ_g Σ_d π log π, in nats, of distributions log π: f4[B, G, D].

    Devices that are not allowed have log π = −large and π = 0 and count for nothing.
    """
    return -tf.reduce_mean(tf.reduce_sum(tf.exp(log_probs) * log_probs, axis=-1))
