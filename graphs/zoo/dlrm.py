"""A recommendation model whose embedding tables don't fit one GPU (Naumov et al., 2019).

26 tables with the row counts of the Criteo Kaggle data set, 128 wide as in MLPerf (17.3 GB in all,
5.2 GB the largest), perceptrons 13-512-256-128 and 479-1024-1024-512-256-1, dot interaction, batch
2048, SGD. Only the rows that a batch looks up are updated. vocab_size caps the rows of a table.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from graphs.protos import Tensor
from graphs.zoo.network import Network, Training, v1

_ROWS = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
_NUM_DENSE = 13
_NUM_PARTS = 8
_BOTTOM = (512, 256)
_TOP = (1024, 1024, 512, 256)


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; tables are spread over 8 parts, the rest is part 0."""
    batch_size, hidden_size = settings["batch_size"], settings["hidden_size"]
    rows = list(
        itertools.islice(
            itertools.cycle(min(count, settings["vocab_size"]) for count in _ROWS),
            settings["num_tables"],
        )
    )
    network = Network(_NUM_PARTS)
    with network.graph.as_default():
        dense = network.placeholder("dense", tf.float32, (batch_size, _NUM_DENSE))
        looked_up = []
        for table, part in enumerate(spread(rows, range(_NUM_PARTS))):
            ids = network.placeholder(f"ids_{table}", tf.int32, (batch_size,))
            with network.part(part), tf.name_scope(f"table_{table}"):
                shape, limit = [rows[table], hidden_size], 1 / math.sqrt(rows[table])
                start = functools.partial(tf.random.uniform, shape, -limit, limit)
                looked_up.append(tf.gather(network.variable("table", shape, start), ids))
        labels = network.placeholder("labels", tf.float32, (batch_size,))
        widths = [max(1, width // settings["width_divisor"]) for width in (*_BOTTOM, *_TOP)]
        with network.part(0):
            bottom = _perceptron(network, "bottom", dense, [*widths[: len(_BOTTOM)], hidden_size])
            pairs = interactions([tf.nn.relu(bottom), *looked_up])
            features = tf.concat([tf.nn.relu(bottom), pairs], 1)
            logits = _perceptron(network, "top", features, [*widths[len(_BOTTOM) :], 1])
            loss = tf.reduce_mean(
                tf.nn.sigmoid_cross_entropy_with_logits(
                    labels=labels, logits=tf.reshape(logits, [batch_size])
                )
            )
    network.train(loss, Training(lambda: v1.train.GradientDescentOptimizer(0.1)))
    return network


def spread(sizes: Sequence[int], parts: Sequence[int]) -> list[int]:
    """The part of each size, such that every half, quarter, … of the parts holds about the same.

    The sizes are halved, the largest first and each into the emptier half, and so again within each
    half. So the bytes are even on n = 2, 4 or 8 GPUs, where part p of P lies on GPU p·n//P.
    """
    if len(parts) == 1:
        return [parts[0]] * len(sizes)
    middle = len(parts) // 2
    members: tuple[list[int], list[int]] = ([], [])
    totals = [0, 0]
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        half = 0 if totals[0] <= totals[1] else 1
        members[half].append(index)
        totals[half] += sizes[index]
    part_of = [0] * len(sizes)
    for indices, side in zip(members, (parts[:middle], parts[middle:]), strict=True):
        for index, part in zip(indices, spread([sizes[i] for i in indices], side), strict=True):
            part_of[index] = part
    return part_of


def _perceptron(network: Network, name: str, inputs: Tensor, widths: Sequence[int]) -> Tensor:
    """Fully connected layers with rectifiers between them, none after the last."""
    for index, width in enumerate(widths):
        with tf.name_scope(f"{name}_{index}"):
            rows = inputs.shape[1]
            inputs = tf.nn.relu(inputs) if index else inputs
            inputs = network.dense(inputs, width, math.sqrt(2 / (rows + width)))
    return inputs


def interactions(vectors: Sequence[Tensor]) -> Tensor:
    """Dot products of all pairs of n vectors f4[B, H], f4[B, n(n-1)/2]."""
    with tf.name_scope("interaction"):
        count = len(vectors)
        stacked = tf.stack(vectors, axis=1)
        products = tf.matmul(stacked, stacked, transpose_b=True)
        # Rows are gathered, not columns: the gradient of a gather along axis 0 is the cheap one.
        by_pair = tf.transpose(tf.reshape(products, [-1, count * count]))
        below_diagonal = np.ravel_multi_index(np.tril_indices(count, -1), (count, count))
        return tf.transpose(tf.gather(by_pair, below_diagonal.astype(np.int32)))
