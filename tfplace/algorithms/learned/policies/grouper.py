"""HDP's Grouper: a feed-forward network that gives each op a distribution over groups."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tf_keras

from graphs.op_graph import IntArray
from tfplace.algorithms.learned.config import GrouperConfig
from tfplace.algorithms.learned.features import FeatureArray
from tfplace.algorithms.learned.policies.dense import dense
from tfplace.algorithms.learned.tensor import Tensor


class Grouper(tf.Module):
    """π(g | op) = softmax(W₂ relu(W₁ [type embedding, features]) + s·1[g = start]), per op.

    Source: Mirhoseini, Goldie et al. 2018. Departure: s. With random groups to start from, nearly
    every edge is cut and placements differ by noise; s makes the untrained Grouper keep to given
    groups with `start_probability`. The output layer starts at zero, so s = 0 is uniform.
    """

    def __init__(
        self,
        type_ids: IntArray,
        features: FeatureArray,
        config: GrouperConfig,
        start: IntArray | None,
        seed: int,
    ) -> None:
        """Makes the weights.

        Args:
          type_ids: i4[N].
          features: f4[N, F].
          config: sizes.
          start: i4[N] groups to start from; None for uniform.
          seed: of the weights.
        """
        super().__init__()
        self._type_ids = tf.constant(type_ids)
        self._features = tf.constant(features)
        self._start = None if start is None else tf.constant(start)
        stay = config.start_probability * (config.num_groups - 1) / (1 - config.start_probability)
        self._start_logit = float(np.log(stay)) if config.num_groups > 1 else 0.0
        self._num_groups = config.num_groups
        types = int(type_ids.max(initial=0)) + 1
        start_of_types = tf_keras.initializers.GlorotUniform(seed)([types, config.type_units])
        self.type_embedding = tf.Variable(start_of_types, name="types")
        width = features.shape[1] + config.type_units
        self.hidden = dense(width, config.units, "relu", seed + 1)
        self.output = dense(config.units, config.num_groups, None, None)

    def log_distributions(self) -> Tensor:
        """log π(g | op), f4[N, G]."""
        types = tf.gather(self.type_embedding, self._type_ids)
        logits = self.output(self.hidden(tf.concat([types, self._features], axis=1)))
        if self._start is not None:
            logits += self._start_logit * tf.one_hot(self._start, self._num_groups)
        return tf.nn.log_softmax(logits)

    def sample(self, uniform: Tensor) -> Tensor:
        """Groups i4[N], where the cumulative distribution first exceeds uniform f4[N] in [0, 1)."""
        limits = tf.cumsum(tf.exp(self.log_distributions()), axis=1)
        # Rounding may leave the last limit below 1.
        below = tf.reduce_sum(tf.cast(limits <= uniform[:, tf.newaxis], tf.int32), axis=1)
        return tf.minimum(below, self._num_groups - 1)

    def log_probs(self, groups: Tensor) -> Tensor:
        """log π of each op's group f4[N], of groups i4[N]."""
        return tf.gather(self.log_distributions(), groups, batch_dims=1)
