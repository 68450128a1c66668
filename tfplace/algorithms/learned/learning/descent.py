"""Gradient descent on the weights of one policy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tf_keras

from tfplace.algorithms.learned.config import AdamConfig
from tfplace.algorithms.learned.tensor import Tensor
from tfplace.search.kept import snapshot


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
        """Takes over the policy's weights.

        Args:
          policy: whose weights are trained.
          config: of Adam.
          names: of weights and of Adam's moments in a snapshot.
        """
        self.optimizer = tf_keras.optimizers.Adam(
            config.learning_rate, global_clipnorm=config.gradient_clip
        )
        self.optimizer.build(policy.trainable_variables)
        self._policy, self._names = policy, names

    def step(self, tape: tf.GradientTape, loss: Tensor) -> None:
        """One step down the loss that the tape recorded."""
        weights = self._policy.trainable_variables
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))

    def state(self) -> snapshot.Snapshot:
        """The weights ("policy/0", ...) and Adam's moments ("optimizer/0", ...)."""
        policy, optimizer = self._names
        return {
            **snapshot.of_variables(policy, self._policy.variables),
            **snapshot.of_variables(optimizer, self.optimizer.variables),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Assigns what `state` took.

        Raises:
          ValueError: the arrays are of another problem or configuration.
        """
        policy, optimizer = self._names
        snapshot.into_variables(policy, self._policy.variables, state)
        snapshot.into_variables(optimizer, self.optimizer.variables, state)
