"""An independent softmax over devices for each group: a policy without a network."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graphs.op_graph import FloatArray, IntArray
from tfplace.algorithms.learned.learning.proposal import ProbabilityArray
from tfplace.algorithms.learned.tensor import Tensor

# A frequency of 0 becomes e^-30: as good as never, and a logit that a gradient can still move.
_LEAST_LOG = -30.0


class Categorical(tf.Module):
    """π(d_1 … d_G) = Π_g softmax(θ_g)_d, all θ = 0 at first (Post, Gao et al. 2018).

    Attributes:
      logits: θ, f4[G, D].
    """

    def __init__(self, log_prior: ProbabilityArray) -> None:
        """Uniform over what `log_prior` f4[G, D] (see distributions.log_prior) leaves."""
        super().__init__()
        self._log_prior = tf.constant(log_prior, tf.float32)
        self.logits = tf.Variable(tf.zeros(log_prior.shape), name="logits")

    def log_distributions(self) -> Tensor:
        """log π, f4[G, D]."""
        return tf.nn.log_softmax(self.logits + self._log_prior)

    def sample(self, rng: np.random.Generator, num_samples: int) -> IntArray:
        """Devices i4[B, G]."""
        logs = self.log_distributions().numpy()
        noise = rng.gumbel(size=(num_samples, *logs.shape))
        return np.argmax(logs + noise, axis=-1).astype(np.int32)

    def assign(self, frequencies: FloatArray) -> None:
        """Makes π_g the frequencies f8[G, D], which sum to 1 in each row."""
        with np.errstate(divide="ignore"):
            self.logits.assign(np.maximum(np.log(frequencies), _LEAST_LOG))
