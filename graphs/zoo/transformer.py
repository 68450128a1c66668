"""BERT-base's masked language model (Devlin et al., 2019): 12 layers, 768 wide, 12 heads.

128 tokens of which 20 are predicted, batch 32, WordPiece's 30,522 words, the output projection tied
to the embedding, Adam. Next-sentence prediction and dropout are left out.
"""

from collections.abc import Mapping

import tensorflow as tf

from graphs.protos import Tensor
from graphs.zoo import attention
from graphs.zoo.convolutional import cross_entropy
from graphs.zoo.network import Network, Training, v1

_NUM_SEGMENTS = 2
_MAX_STEPS = 512


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; part l is encoder layer l."""
    batch_size, num_steps = settings["batch_size"], settings["num_steps"]
    num_layers, hidden_size = settings["num_layers"], settings["hidden_size"]
    network = Network(num_layers)
    with network.graph.as_default():
        shape = (batch_size, num_steps)
        tokens = network.placeholder("input_ids", tf.int32, shape)
        mask = network.placeholder("input_mask", tf.int32, shape)
        segments = network.placeholder("segment_ids", tf.int32, shape)
        with network.part(0), tf.name_scope("embedding"):
            words = attention.embedding_table(network, "words", settings["vocab_size"], hidden_size)
            states = _embedded(network, words, tokens, segments)
            hidden = tf.reshape(tf.equal(mask, 0), [batch_size, 1, 1, num_steps])
            bias = tf.cast(hidden, tf.float32) * attention.MASKED
        for layer in range(num_layers):
            with network.part(layer), tf.name_scope(f"layer_{layer}"):
                states = _layer(network, states, bias, batch_size)
        loss = _masked_loss(network, states, words, settings)
    network.train(loss, Training(lambda: v1.train.AdamOptimizer(1e-4), dense_gradients=True))
    return network


def _embedded(network: Network, words: Tensor, tokens: Tensor, segments: Tensor) -> Tensor:
    """Sum of word, segment and position embeddings, normalised; f4[B·T, H]."""
    batch_size, num_steps = tokens.shape
    hidden_size = words.shape[1]
    kinds = attention.embedding_table(network, "segments", _NUM_SEGMENTS, hidden_size)
    positions = network.weights("positions", [max(_MAX_STEPS, num_steps), hidden_size], 0.02)
    states = tf.gather(words, tokens) + tf.gather(kinds, segments) + positions[:num_steps]
    states = tf.reshape(states, [batch_size * num_steps, hidden_size])
    return attention.layer_norm(network, states)


def _layer(network: Network, states: Tensor, bias: Tensor, batch_size: int) -> Tensor:
    with tf.name_scope("attention"):
        context = attention.self_attention(network, states, bias, batch_size)
        states = attention.layer_norm(network, states + context)
    with tf.name_scope("feed_forward"):
        outputs = attention.feed_forward(network, states, 4 * states.shape[-1])
        return attention.layer_norm(network, states + outputs)


def _masked_loss(
    network: Network, states: Tensor, words: Tensor, settings: Mapping[str, int]
) -> Tensor:
    """Cross entropy of the words at the masked positions."""
    batch_size, num_steps = settings["batch_size"], settings["num_steps"]
    shape = (batch_size, settings["num_masked"])
    positions = network.placeholder("masked_positions", tf.int32, shape)
    labels = network.placeholder("masked_ids", tf.int32, shape)
    with network.part(settings["num_layers"] - 1), tf.name_scope("head"):
        states = tf.reshape(states, [batch_size, num_steps, -1])
        masked = tf.gather(states, positions, axis=1, batch_dims=1)
        masked = tf.reshape(masked, [-1, settings["hidden_size"]])
        masked = tf.nn.gelu(
            attention.projected(network, "transform", masked, settings["hidden_size"])
        )
        masked = attention.layer_norm(network, masked)
        logits = tf.matmul(masked, network.read(words), transpose_b=True)
        bias = network.constant_weights("output_bias", [settings["vocab_size"]])
        return cross_entropy(tf.nn.bias_add(logits, bias), tf.reshape(labels, [-1]))
