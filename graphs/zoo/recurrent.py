"""Pieces of statically unrolled recurrent networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from graphs.zoo.network import Network


class LstmCell:
    """A long short-term memory cell whose weights are read once for all time steps.

    i, j, f, o = split([x, h] W + b);  c' = c σ(f + 1) + σ(i) tanh(j);  h' = tanh(c') σ(o)
    (Zaremba et al., 2014, without dropout: a step has to be repeatable so that two placements'
    results can be compared.)

    Args:
      network: what it is built into; its variables go into the current name scope.
      input_size: summed width of the inputs.
      hidden_size: width H of the state.
    """

    def __init__(self, network: Network, input_size: int, hidden_size: int) -> None:
        rows = input_size + hidden_size
        self._kernel = network.weights("kernel", [rows, 4 * hidden_size], 1 / math.sqrt(rows))
        self._bias = network.constant_weights("bias", [4 * hidden_size])
        self._hidden_size = hidden_size

    def zero_state(self, batch_size: int) -> tuple[Any, Any]:
        """(c, h), each f4[B, H] of zeros."""
        zeros = tf.zeros([batch_size, self._hidden_size], name="zero_state")
        return zeros, zeros

    def __call__(self, inputs: Sequence[Any], state: tuple[Any, Any]) -> tuple[Any, Any]:
        """One time step.

        Args:
          inputs: f4[B, n] each, concatenated.
          state: (c, h) after the step before.

        Returns:
          (c, h) after this step.
        """
        c, h = state
        z = tf.nn.bias_add(tf.matmul(tf.concat([*inputs, h], 1), self._kernel), self._bias)
        i, j, f, o = tf.split(z, 4, axis=1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        return c, tf.tanh(c) * tf.sigmoid(o)


class Softmax:
    """A projection to the vocabulary and its cross entropy, one per time step.

    Args:
      network: what it is built into; its variables go into the current name scope.
      input_size: width of the states that are projected.
      vocab_size: number of words V.
    """

    def __init__(self, network: Network, input_size: int, vocab_size: int) -> None:
        self._kernel = network.weights(
            "kernel", [input_size, vocab_size], 1 / math.sqrt(input_size)
        )
        self._bias = network.constant_weights("bias", [vocab_size])

    def loss(self, state: Any, labels: Any) -> Any:
        """Mean cross entropy of one step, scalar, from f4[B, input_size] and labels i4[B]."""
        logits = tf.nn.bias_add(tf.matmul(state, self._kernel), self._bias)
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )


def embedded_steps(
    network: Network, tokens: Any, vocab_size: int, hidden_size: int
) -> Sequence[Any]:
    """Looks tokens i4[B, T] up in a new table; T tensors f4[B, H]."""
    table = network.variable(
        "table",
        [vocab_size, hidden_size],
        lambda: tf.random.truncated_normal([vocab_size, hidden_size], stddev=0.1),
    )
    steps: Sequence[Any] = tf.unstack(tf.gather(table, tokens), axis=1)
    return steps
