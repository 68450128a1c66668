"""A sequence-to-sequence policy with its optimizer: samples, and climbs a given loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from graphs.op_graph import FloatArray, IntArray
from tfplace.algorithms.learned.config import AdamConfig, Seq2SeqConfig
from tfplace.algorithms.learned.learning.divergence import require_finite
from tfplace.algorithms.learned.learning.policy_gradient import mean_entropy
from tfplace.algorithms.learned.learning.proposal import GroupedProposal, ProbabilityArray
from tfplace.algorithms.learned.learning.proximal import kl_divergence
from tfplace.algorithms.learned.policies import seq2seq
from tfplace.search.kept import snapshot

Tensor = Any  # tf.Tensor; TensorFlow ships no types

# (new log π f4[B, G, D], old log π f4[B, G, D], devices i4[B, G], advantages f4[B]) → scalar
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class SequenceLearner:
    """What ColocRL, HDP's Placer and Spotlight share; they differ in groups, batches and loss.

    Shapes are compiled in: a batch of another size than before compiles again.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        policy: Seq2SeqConfig,
        optimizer: AdamConfig,
        loss: Loss,
        seed: int,
    ) -> None:
        """Makes an untrained policy.

        Args:
          shape: features per group F and devices D.
          policy, optimizer: configurations.
          loss: of what `learn` descends.
          seed: of the weights.
        """
        self._policy = seq2seq.Seq2Seq(*shape, policy, seed)
        self._optimizer = tf_keras.optimizers.Adam(
            optimizer.learning_rate, global_clipnorm=optimizer.gradient_clip
        )
        self._optimizer.build(self._policy.trainable_variables)
        self._loss = loss
        self._sample = tf.function(self._policy.sample, jit_compile=policy.compiled)
        self._descend = tf.function(self._descent_step, jit_compile=policy.compiled)

    def sample(
        self, sequence: seq2seq.Sequence, noise: ProbabilityArray
    ) -> tuple[IntArray, ProbabilityArray]:
        """Devices i4[B, G] and log π f4[B, G, D] along them, from Gumbel noise f4[G, B, D].

        Raises:
          DivergedError: a probability is not a number.
        """
        devices, logs = (part.numpy() for part in self._sample(sequence, tf.constant(noise)))
        require_finite("a sequence-to-sequence policy", {"log-probability": logs})
        return devices, logs

    def learn(
        self,
        sequence: seq2seq.Sequence,
        proposal: GroupedProposal,
        advantages: FloatArray,
        steps: int = 1,
    ) -> dict[str, float]:
        """Takes optimizer steps on one batch; returns the last one's loss, entropy and KL.

        Args:
          sequence: what was placed.
          proposal: B placements of it.
          advantages: f8[B].
          steps: 1 or more.

        Raises:
          DivergedError: the loss is not a number.
        """
        arguments = (
            tf.constant(proposal.log_distributions),
            tf.constant(proposal.devices),
            tf.constant(advantages, tf.float32),
        )
        for _ in range(steps):
            found = self._descend(sequence, *arguments)
        scalars = {name: float(value) for name, value in found.items()}
        require_finite("a sequence-to-sequence policy", scalars)
        return scalars

    def state(self) -> snapshot.Snapshot:
        """Weights ("policy/…") and the optimizer's moments ("optimizer/…")."""
        return {
            **snapshot.of_variables("policy", self._policy.variables),
            **snapshot.of_variables("optimizer", self._optimizer.variables),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Assigns what `state` took.

        Raises:
          ValueError: the arrays are of another problem or configuration.
        """
        snapshot.into_variables("policy", self._policy.variables, state)
        snapshot.into_variables("optimizer", self._optimizer.variables, state)

    def _descent_step(
        self, sequence: seq2seq.Sequence, old: Tensor, devices: Tensor, advantage: Tensor
    ) -> dict[str, Tensor]:
        with tf.GradientTape() as tape:
            new = self._policy.log_distributions(sequence, devices)
            loss = self._loss(new, old, devices, advantage)
        variables = self._policy.trainable_variables
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        kl = tf.reduce_mean(kl_divergence(old, new))
        return {"loss": loss, "entropy": mean_entropy(new), "kl": kl}
