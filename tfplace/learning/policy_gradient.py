"""REINFORCE: baselines, advantages and the loss."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from graphs.op_graph import FloatArray

Tensor = Any  # tf.Tensor; TensorFlow ships no types


@dataclasses.dataclass(frozen=True)
class MovingAverage:
    """A baseline b that follows the rewards: b ← γ·b + (1 − γ)·mean(R).

    Source: Mirhoseini et al. 2017, appendix; decay 0.9 as PUBLISHED.md has it.

    Attributes:
      value: b; None until the first update, which sets it to mean(R).
      decay: γ, 0 to 1.
    """

    value: float | None = None
    decay: float = 0.9

    def updated(self, rewards: FloatArray) -> MovingAverage:
        """The baseline after rewards f8[B]; the same one if there are none."""
        if len(rewards) == 0:
            return self
        mean = float(np.mean(rewards))
        value = mean if self.value is None else self.decay * self.value + (1 - self.decay) * mean
        return dataclasses.replace(self, value=value)


def advantages(rewards: FloatArray, baseline: float) -> FloatArray:
    """A_b = R_b − baseline, f8[B]."""
    return rewards - baseline


def normalised(values: FloatArray, limit: float = 3.0) -> FloatArray:
    """Values f8[B] over their root mean square (kept as they are where that is 0), within ±limit.

    The sign stays, unlike with centring: a batch that is all worse than the baseline is all
    discouraged. Clipping keeps one failed placement from drowning the differences of the rest.
    """
    scale = float(np.sqrt(np.mean(np.square(values)))) if len(values) else 0.0
    return np.clip(values / scale, -limit, limit) if scale > 1e-9 else values


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
