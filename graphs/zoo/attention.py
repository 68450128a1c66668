"""Pieces of transformer networks, whose states are f4[B·T, H], one row per token."""

import math

import tensorflow as tf

from graphs.errors import UsageError
from graphs.protos import Tensor, TfVariable
from graphs.zoo.network import Network

HEAD_SIZE = 64
MASKED = -10_000.0
"""Added to the scores of tokens that must not be attended to."""
_STDDEV = 0.02


def num_heads(hidden_size: int) -> int:
    """Heads of 64 units each, one where the network is narrower.

    Raises:
      UsageError: hidden_size is above 64 and no multiple of it.
    """
    if hidden_size > HEAD_SIZE and hidden_size % HEAD_SIZE:
        raise UsageError(
            f"building attention heads: hidden_size is {hidden_size}, wanted a multiple of "
            f"{HEAD_SIZE}, the width of a head"
        )
    return max(1, hidden_size // HEAD_SIZE)


def projected(network: Network, name: str, states: Tensor, width: int) -> Tensor:
    """A fully connected layer with bias."""
    with tf.name_scope(name):
        return network.dense(states, width, _STDDEV)


def layer_norm(network: Network, states: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + ε) · scale + offset over each row."""
    with tf.name_scope("norm"):
        scale = network.constant_weights("scale", [states.shape[-1]], 1.0)
        offset = network.constant_weights("offset", [states.shape[-1]])
        mean, variance = tf.nn.moments(states, [-1], keepdims=True)
        return tf.nn.batch_normalization(states, mean, variance, offset, scale, 1e-12)


def self_attention(network: Network, states: Tensor, bias: Tensor, batch_size: int) -> Tensor:
    """Multi-head scaled dot-product attention (Vaswani et al., 2017), without dropout.

    Args:
      states: f4[B·T, H].
      bias: added to the scores: f4, broadcast to [B, heads, T, T]; 0 or very negative.
      batch_size: B.

    Returns:
      f4[B·T, H], after the output projection.
    """
    hidden_size = states.shape[-1]
    heads = num_heads(hidden_size)
    width = hidden_size // heads
    num_steps = states.shape[0] // batch_size
    query, key, value = (
        tf.transpose(
            tf.reshape(
                projected(network, name, states, hidden_size), [batch_size, num_steps, heads, width]
            ),
            [0, 2, 1, 3],
        )
        for name in ("query", "key", "value")
    )
    scores = tf.matmul(query, key, transpose_b=True) * (1 / math.sqrt(width))
    context = tf.matmul(tf.nn.softmax(scores + bias), value)
    context = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, hidden_size])
    return projected(network, "output", context, hidden_size)


def feed_forward(network: Network, states: Tensor, inner_size: int) -> Tensor:
    """Two fully connected layers with a Gaussian error linear unit between them."""
    inner = tf.nn.gelu(projected(network, "inner", states, inner_size))
    return projected(network, "outer", inner, states.shape[-1])


def embedding_table(network: Network, name: str, num_rows: int, hidden_size: int) -> TfVariable:
    """A new table, as a variable."""
    shape = [num_rows, hidden_size]
    return network.variable(name, shape, lambda: tf.random.truncated_normal(shape, stddev=_STDDEV))
