"""Pieces of statically unrolled recurrent networks."""

import math
from collections.abc import Sequence

import tensorflow as tf

from graphs.protos import Tensor
from graphs.zoo.convolutional import cross_entropy
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

    def zero_state(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """(c, h), each f4[B, H] of zeros."""
        zeros = tf.zeros([batch_size, self._hidden_size], name="zero_state")
        return zeros, zeros

    def __call__(
        self, inputs: Sequence[Tensor], state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """One time step, of inputs f4[B, n] that are concatenated; states are (c, h)."""
        c, h = state
        z = tf.nn.bias_add(tf.matmul(tf.concat([*inputs, h], 1), self._kernel), self._bias)
        i, j, f, o = tf.split(z, 4, axis=1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        return c, tf.tanh(c) * tf.sigmoid(o)


def lstm_layer(
    network: Network, steps: Sequence[Tensor], hidden_size: int, is_residual: bool = False
) -> Sequence[Tensor]:
    """The outputs f4[B, H] of an LSTM layer, from its inputs at each time step, f4[B, H].

    With `is_residual` the inputs are added to the outputs.
    """
    cell = LstmCell(network, hidden_size, hidden_size)
    state = cell.zero_state(steps[0].shape[0])
    outputs = []
    for step, inputs in enumerate(steps):
        with tf.name_scope(f"step_{step}"):
            state = cell([inputs], state)
            outputs.append(state[1] + inputs if is_residual else state[1])
    return outputs


def softmax_loss(
    network: Network, states: Sequence[Tensor], targets: Tensor, vocab_size: int
) -> Tensor:
    """The loss of a projection to the vocabulary: mean cross entropies, summed over time steps.

    `states` are f4[B, H] of each of T steps, `targets` i4[B, T].
    """
    rows = states[0].shape[1]
    kernel = network.weights("kernel", [rows, vocab_size], 1 / math.sqrt(rows))
    bias = network.constant_weights("bias", [vocab_size])
    losses = []
    for step, labels in enumerate(tf.unstack(targets, axis=1)):
        with tf.name_scope(f"step_{step}"):
            logits = tf.nn.bias_add(tf.matmul(states[step], kernel), bias)
            losses.append(cross_entropy(logits, labels))
    return tf.add_n(losses)


def embedded_steps(
    network: Network, tokens: Tensor, vocab_size: int, hidden_size: int
) -> Sequence[Tensor]:
    """Looks tokens i4[B, T] up in a new table; T tensors f4[B, H]."""
    table = network.variable(
        "table",
        [vocab_size, hidden_size],
        lambda: tf.random.truncated_normal([vocab_size, hidden_size], stddev=0.1),
    )
    return tf.unstack(tf.gather(table, tokens), axis=1)
