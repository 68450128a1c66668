"""Losses of learned policies (REINFORCE, PPO, cross entropy), and the descent along them."""

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tf_keras

from graphs.op_graph import FloatArray, IntArray
from graphs.protos import Tensor
from tfplace.algorithms.learned.config import AdamConfig
from tfplace.grouping.quotient import BoolArray
from tfplace.search.kept import snapshot
from tfplace.search.trial import DivergedError

# Ratios are kept below e^10: one ascent step must not overflow f4.
_MAX_LOG_RATIO = 10.0


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


def probability_ratio(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """r_bg(θ) = π_θ(d_bg | s_bg) / π_old(d_bg | s_bg), f4[B, G], from the logarithms."""
    return tf.exp(tf.clip_by_value(log_probs - old_log_probs, -_MAX_LOG_RATIO, _MAX_LOG_RATIO))


def kl_divergence(old: Tensor, new: Tensor) -> Tensor:
    """KL(π_old ‖ π_θ) = Σ_d π_old (log π_old − log π_θ), f4[B, G], from log π: f4[B, G, D]."""
    return tf.reduce_sum(tf.exp(old) * (old - new), axis=-1)


def penalised_loss(ratio: Tensor, advantage: Tensor, divergence: Tensor, beta: float) -> Tensor:
    """L = −(1/B) Σ_b Σ_g [ r_bg · A_b − β · KL(π_old ‖ π_θ)_bg ].

    Source: Schulman et al. 2017, equation 8 (the penalty form), with β fixed as Spotlight has
    it (Gao et al., ICML 2018). A placement's advantage counts at each of its G stages.

    Args:
      ratio: f4[B, G].
      advantage: f4[B].
      divergence: f4[B, G].
      beta: β, 0 or more.
    """
    surrogate = ratio * advantage[:, tf.newaxis] - beta * divergence
    return -tf.reduce_mean(tf.reduce_sum(surrogate, axis=1))


def require_finite(learner: str, values: Mapping[str, np.ndarray | float]) -> None:
    """Raises DivergedError where a number that steers the learning is infinite or none."""
    for name, value in values.items():
        bad = np.ravel(value)[~np.isfinite(np.ravel(value))]
        if bad.size:
            raise DivergedError(
                f"training {learner}: its {name} became {bad[0]}; the policy has "
                "diverged and proposes nothing more; try another --seed or --algorithm"
            )


def elite_indices(rewards: FloatArray, fraction: float) -> IntArray:
    """i4[E], E = ⌈fraction · B⌉ at least 1: the trials of the highest rewards, best first.

    Among equal rewards the earlier trial comes first.
    """
    count = max(1, math.ceil(fraction * len(rewards) - 1e-9))
    return np.argsort(-rewards, kind="stable")[:count].astype(np.int32)


def elite_frequencies(devices: IntArray, num_devices: int) -> FloatArray:
    """f_gd = (1/E) Σ_e 1[d_eg = d]: the minimiser of the cross-entropy to the elite, f8[G, D].

    Source: Gao et al., NeurIPS 2018 (Post), the closed form of its equation for the softmax of
    independent groups.

    Args:
      devices: i4[E, G] of the elite, E at least 1.
      num_devices: D.
    """
    return (devices[:, :, np.newaxis] == np.arange(num_devices)).mean(axis=0)


def close_to(devices: IntArray, epsilon: float, allowed: BoolArray) -> FloatArray:
    """f8[G, D]: the fit to an elite of one placement i4[G], mixed: how a search goes on from it."""
    return mixed(elite_frequencies(devices[np.newaxis], allowed.shape[1]), epsilon, allowed)


def mixed(frequencies: FloatArray, epsilon: float, allowed: BoolArray) -> FloatArray:
    """f ← (1 − ε) f + ε / D, with D the number of a group's allowed devices; f8[G, D].

    Args:
      frequencies: f8[G, D], rows sum to 1.
      epsilon: ε, 0 to 1: how much is kept uniform, so that no device dies out.
      allowed: bool[G, D]; the others keep their frequency of 0.
    """
    uniform = allowed / allowed.sum(axis=1, keepdims=True)
    return (1.0 - epsilon) * frequencies + epsilon * uniform


class Descent:
    """Adam on all weights of a policy, with gradients clipped by their global norm.

    Attributes:
      optimizer: tf-keras' Adam; its learning rate may be assigned.
    """

    def __init__(
        self,
        policy: tf.Module,
        config: AdamConfig,
        names: tuple[str, str] = ("policy", "optimizer"),
    ) -> None:
        """Takes over the policy's weights."""
        self.optimizer = tf_keras.optimizers.Adam(
            config.learning_rate, global_clipnorm=config.gradient_clip
        )
        self.optimizer.build(policy.trainable_variables)
        self._policy, self._names = policy, names

    def step(self, tape: tf.GradientTape, loss: Tensor) -> None:
        """One step down the loss that the tape recorded."""
        weights = self._policy.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    def state(self) -> snapshot.Snapshot:
        """The weights ("policy/0", ...) and Adam's moments ("optimizer/0", ...)."""
        policy, optimizer = self._names
        return {
            **snapshot.of_variables(policy, self._policy.variables),
            **snapshot.of_variables(optimizer, self.optimizer.variables),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Assigns what `state` took; ValueError: it is of another problem or configuration."""
        policy, optimizer = self._names
        snapshot.into_variables(policy, self._policy.variables, state)
        snapshot.into_variables(optimizer, self.optimizer.variables, state)
