"""A recurrent language model: stacked LSTMs over Penn Treebank words, unrolled in time.

Zaremba et al., "Recurrent Neural Network Regularization", 2014, widened as in ColocRL: 2 layers of
2048, 40 steps, batch 64, full softmax over 10,000 words, SGD with clipping by global norm 5.
"""

from collections.abc import Mapping

import tensorflow as tf

from graphs.zoo.network import Network, Training, v1
from graphs.zoo.recurrent import embedded_steps, lstm_layer, softmax_loss


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; part l is LSTM layer l."""
    batch_size, num_steps = settings["batch_size"], settings["num_steps"]
    hidden_size, vocab_size = settings["hidden_size"], settings["vocab_size"]
    num_layers = settings["num_layers"]
    network = Network(num_layers)
    with network.graph.as_default():
        shape = (batch_size, num_steps)
        tokens = network.placeholder("tokens", tf.int32, shape)
        targets = network.placeholder("targets", tf.int32, shape)
        with network.part(0), tf.name_scope("embedding"):
            steps = embedded_steps(network, tokens, vocab_size, hidden_size)
        for layer in range(num_layers):
            with network.part(layer), tf.name_scope(f"lstm_{layer}"):
                steps = lstm_layer(network, steps, hidden_size)
        with network.part(num_layers - 1), tf.name_scope("softmax"):
            loss = softmax_loss(network, steps, targets, vocab_size)
    network.train(
        loss,
        Training(lambda: v1.train.GradientDescentOptimizer(1.0), clip_norm=5.0, running_sum=True),
    )
    return network
