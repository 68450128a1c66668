"""A translation model: LSTM encoder and decoder with attention, unrolled in time.

As in Wu et al., 2016 (GNMT), with half of the layers in the encoder and half in the decoder, as
HDP counts them (recalled): additive attention (Bahdanau et al., 2015) whose query is the decoder's
bottom layer of the step before and whose context feeds every decoder layer, so that decoder layers
run side by side; residual connections from a stack's third layer on. The first encoder layer is
unidirectional. Adam, clipping by global norm 5, full softmax over 30,000 words.
"""

import math
from collections.abc import Mapping, Sequence

import tensorflow as tf

from graphs.errors import UsageError
from graphs.protos import Tensor
from graphs.zoo.network import Network, Training, v1
from graphs.zoo.recurrent import LstmCell, embedded_steps, lstm_layer, softmax_loss

_FIRST_RESIDUAL_LAYER = 2


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; parts are LSTM layers, encoder first; UsageError: num_layers is odd."""
    num_layers = settings["num_layers"]
    if num_layers % 2:
        raise UsageError(
            f"building nmt: num_layers is {num_layers}, wanted an even number: "
            "one half is the encoder, the other the decoder"
        )
    vocab_size, hidden_size = settings["vocab_size"], settings["hidden_size"]
    network = Network(num_layers)
    with network.graph.as_default():
        shape = (settings["batch_size"], settings["num_steps"])
        feeds = [
            network.placeholder(name, tf.int32, shape)
            for name in ("source_tokens", "target_inputs", "target_outputs")
        ]
        with network.part(0), tf.name_scope("source_embedding"):
            states = embedded_steps(network, feeds[0], vocab_size, hidden_size)
        for layer in range(num_layers // 2):  # of the encoder
            with network.part(layer), tf.name_scope(f"encoder_{layer}"):
                is_residual = layer >= _FIRST_RESIDUAL_LAYER
                states = lstm_layer(network, states, hidden_size, is_residual)
        with network.part(num_layers - 1), tf.name_scope("attention"):
            attention = Attention(network, states, hidden_size)
        with network.part(num_layers // 2), tf.name_scope("target_embedding"):
            target = embedded_steps(network, feeds[1], vocab_size, hidden_size)
        outputs = _decoder(network, target, attention, settings)
        with network.part(num_layers - 1), tf.name_scope("softmax"):
            loss = softmax_loss(network, outputs, feeds[2], vocab_size)
    network.train(
        loss,
        Training(
            lambda: v1.train.AdamOptimizer(2e-4),
            clip_norm=5.0,
            running_sum=True,
            dense_gradients=True,
        ),
    )
    return network


class Attention:
    """Additive attention over the encoder's states.

    a_s = softmax_s(v · tanh(W q + U m_s));  context = Σ_s a_s m_s

    Args:
      network: what it is built into; its variables go into the current name scope.
      states: the encoder's output of each source step, f4[B, H].
      hidden_size: H, also the width of the score network.
    """

    def __init__(self, network: Network, states: Sequence[Tensor], hidden_size: int) -> None:
        stddev = 1 / math.sqrt(hidden_size)
        square = [hidden_size, hidden_size]
        self._memory = tf.stack(states, axis=1, name="memory")
        self._query_kernel = network.weights("query_kernel", square, stddev)
        self._score_kernel = network.weights("score_kernel", [hidden_size, 1], stddev)
        memory_kernel = network.weights("memory_kernel", square, stddev)
        batch_size, num_steps = self._memory.shape[0], len(states)
        flat = tf.matmul(tf.reshape(self._memory, [-1, hidden_size]), memory_kernel)
        self._keys = tf.reshape(flat, [batch_size, num_steps, hidden_size], name="keys")

    def __call__(self, query: Tensor) -> Tensor:
        """The context f4[B, H] for a query f4[B, H]."""
        batch_size, num_steps, hidden_size = self._memory.shape
        projected = tf.expand_dims(tf.matmul(query, self._query_kernel), 1)
        hidden = tf.reshape(tf.tanh(self._keys + projected), [-1, hidden_size])
        scores = tf.reshape(tf.matmul(hidden, self._score_kernel), [batch_size, num_steps])
        weights = tf.expand_dims(tf.nn.softmax(scores), 1)
        return tf.squeeze(tf.matmul(weights, self._memory), 1)


def _decoder(
    network: Network, steps: Sequence[Tensor], attention: Attention, settings: Mapping[str, int]
) -> Sequence[Tensor]:
    """The top layer's output of each target step."""
    depth, hidden_size = settings["num_layers"] // 2, settings["hidden_size"]
    cells, states = [], []
    for layer in range(depth):
        with network.part(depth + layer), tf.name_scope(f"decoder_{layer}"):
            cells.append(LstmCell(network, 2 * hidden_size, hidden_size))
            states.append(cells[-1].zero_state(settings["batch_size"]))
    outputs = []
    for step, inputs in enumerate(steps):
        with network.part(2 * depth - 1), tf.name_scope(f"attention/step_{step}"):
            context = attention(states[0][1])
        for layer, cell in enumerate(cells):
            with network.part(depth + layer), tf.name_scope(f"decoder_{layer}/step_{step}"):
                states[layer] = cell([inputs, context], states[layer])
                residual = layer >= _FIRST_RESIDUAL_LAYER
                inputs = states[layer][1] + inputs if residual else states[layer][1]
        outputs.append(inputs)
    return outputs
