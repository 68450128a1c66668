"""A sequence-to-sequence policy with its optimizer: samples, and climbs a given loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from graphs.op_graph import IntArray
from tfplace.config import AdamConfig, Seq2SeqConfig
from tfplace.learning import snapshot
from tfplace.learning.batch import Batch, ProbabilityArray
from tfplace.learning.policy_gradient import mean_entropy
from tfplace.policies import seq2seq

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
        """Devices i4[B, G] and log π f4[B, G, D] along them, from Gumbel noise f4[G, B, D]."""
        devices, logs = self._sample(sequence, tf.constant(noise))
        return devices.numpy(), logs.numpy()

    def learn(self, sequence: seq2seq.Sequence, batch: Batch, steps: int = 1) -> dict[str, float]:
        """Takes optimizer steps on one batch; returns the last one's loss and entropy."""
        arguments = (
            tf.constant(batch.log_distributions),
            tf.constant(batch.devices),
            tf.constant(batch.advantages, tf.float32),
        )
        scalars: Mapping[str, Any] = {}
        for _ in range(steps):
            scalars = self._descend(sequence, *arguments)
        return {name: float(value) for name, value in scalars.items()}

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
        return {"loss": loss, "entropy": mean_entropy(new)}
