"""A mixture-of-experts language model in the manner of GShard (Lepikhin et al., 2021).

6 causal transformer layers, 1024 wide, 128 tokens, batch 32; every feed-forward sublayer is 16
experts 4096 wide with top-2 gating of fixed capacity, so that shapes are static. 0.9 billion
parameters: with Adam's two slots they don't fit a GPU of 12 GB. A group, within which the tokens
compete for the experts' capacity, is one sequence.
"""

import math
from collections.abc import Mapping

import tensorflow as tf

from graphs.protos import Tensor
from graphs.zoo import attention
from graphs.zoo.convolutional import cross_entropy
from graphs.zoo.network import Network, Training, v1

_CAPACITY_FACTOR = 1.25
_BALANCE_WEIGHT = 0.01
_EXPERTS_PER_TOKEN = 2


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; part e is expert e of every layer, the rest is part 0."""
    batch_size, num_steps = settings["batch_size"], settings["num_steps"]
    hidden_size, vocab_size = settings["hidden_size"], settings["vocab_size"]
    network = Network(settings["num_experts"])
    with network.graph.as_default():
        shape = (batch_size, num_steps)
        tokens = network.placeholder("tokens", tf.int32, shape)
        targets = network.placeholder("targets", tf.int32, shape)
        with network.part(0), tf.name_scope("embedding"):
            words = attention.embedding_table(network, "words", vocab_size, hidden_size)
            positions = network.weights("positions", [num_steps, hidden_size], 0.02)
            states = tf.reshape(tf.gather(words, tokens) + positions, [-1, hidden_size])
            visible = tf.linalg.band_part(tf.ones([num_steps, num_steps]), -1, 0)
            bias = (1.0 - visible) * attention.MASKED
        balance = []
        for layer in range(settings["num_layers"]):
            with network.part(0), tf.name_scope(f"layer_{layer}"):
                states, imbalance = _layer(network, states, bias, settings)
                balance.append(imbalance)
        with network.part(0), tf.name_scope("softmax"):
            states = attention.layer_norm(network, states)
            logits = attention.projected(network, "words", states, vocab_size)
            loss = cross_entropy(logits, tf.reshape(targets, [-1]))
            loss += _BALANCE_WEIGHT * tf.add_n(balance)
    network.train(loss, Training(lambda: v1.train.AdamOptimizer(1e-4), dense_gradients=True))
    return network


def _layer(
    network: Network, states: Tensor, bias: Tensor, settings: Mapping[str, int]
) -> tuple[Tensor, Tensor]:
    """States f4[B·T, H] after the layer, and how unevenly it used its experts."""
    with tf.name_scope("attention"):
        normed = attention.layer_norm(network, states)
        states += attention.self_attention(network, normed, bias, settings["batch_size"])
    with tf.name_scope("mixture"):
        normed = attention.layer_norm(network, states)
        grouped = tf.reshape(normed, [settings["batch_size"], settings["num_steps"], -1])
        combine, imbalance = _gates(network, grouped, settings["num_experts"])
        outputs = _experts(network, grouped, combine, settings["inner_size"])
        return states + tf.reshape(outputs, states.shape), imbalance


def _gates(network: Network, grouped: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
    """Top-2 gating with capacity (GShard, algorithm 1, with the second expert always asked).

    Args:
      grouped: states f4[G, S, H], G groups of S tokens.
      num_experts: E, at least 2.

    Returns:
      Weights f4[G, S, E, C] with which a token's output is combined from the C slots of the
      experts, 0 where it has no slot; and the loss E · Σ_e (mean gate of e) (share first sent
      to e), scalar.
    """
    num_tokens = grouped.shape[1]
    capacity = math.ceil(_EXPERTS_PER_TOKEN * num_tokens * _CAPACITY_FACTOR / num_experts)
    kernel = network.weights("gate", [grouped.shape[2], num_experts], 0.02)
    flat = tf.matmul(tf.reshape(grouped, [-1, grouped.shape[2]]), kernel)
    gates = tf.reshape(tf.nn.softmax(flat), [-1, num_tokens, num_experts])
    chosen = tf.nn.top_k(gates, _EXPERTS_PER_TOKEN).indices
    masks = [tf.one_hot(index, num_experts) for index in tf.unstack(chosen, axis=2)]
    weights = [tf.reduce_sum(gates * mask, 2, keepdims=True) for mask in masks]
    total = tf.add_n(weights)
    # First choices take an expert's slots in the order of the tokens, second choices what is left.
    # A slot number beyond the capacity has a one-hot vector of zeros, so that token is dropped.
    first_users = tf.reduce_sum(masks[0], 1, keepdims=True)
    combine = []
    for mask, weight, taken in zip(masks, weights, (0.0, first_users), strict=True):
        slots = tf.reduce_sum((tf.cumsum(mask, axis=1, exclusive=True) + taken) * mask, 2)
        slot_mask = tf.one_hot(tf.cast(slots, tf.int32), capacity)
        combine.append(tf.expand_dims(mask * (weight / total), 3) * tf.expand_dims(slot_mask, 2))
    shares = tf.reduce_mean(gates, [0, 1]) * tf.reduce_mean(masks[0], [0, 1])
    return tf.add_n(combine), num_experts * tf.reduce_sum(shares)


def _experts(network: Network, grouped: Tensor, combine: Tensor, inner_size: int) -> Tensor:
    """Sends tokens to the experts' slots, runs the experts, and combines; f4[G, S, H]."""
    num_groups, num_tokens, num_experts, capacity = combine.shape
    hidden_size = grouped.shape[2]
    by_slot = tf.reshape(combine, [num_groups, num_tokens, num_experts * capacity])
    sent = tf.matmul(tf.cast(by_slot > 0.0, tf.float32), grouped, transpose_a=True)
    sent = tf.reshape(sent, [num_groups, num_experts, capacity, hidden_size])
    outputs = []
    for index, states in enumerate(tf.unstack(sent, axis=1)):
        with network.part(index), tf.name_scope(f"expert_{index}"):
            states = tf.reshape(states, [num_groups * capacity, hidden_size])
            states = attention.feed_forward(network, states, inner_size)
            outputs.append(tf.reshape(states, [num_groups, capacity, hidden_size]))
    return tf.matmul(by_slot, tf.reshape(tf.stack(outputs, axis=1), [num_groups, -1, hidden_size]))
