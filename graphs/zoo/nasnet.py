"""NASNet-A (Zoph et al., 2018), by default the Mobile one: 4 cells a stage, 1056 filters, 224².

num_layers is the number of normal cells in each of the three stages and hidden_size the number of
filters before the classifier, so that num_layers=6,hidden_size=4032,stem_filters=96,image_size=331
is NASNet-A Large. No auxiliary head and no drop path; RMSProp as for Inception-V3.
"""

import math
from collections.abc import Mapping

import tensorflow as tf

from graphs.errors import UsageError
from graphs.protos import Tensor
from graphs.zoo.convolutional import (
    RMSPROP,
    batch_norm,
    convolution,
    cross_entropy,
    dense,
    global_average,
)
from graphs.zoo.network import Network

# A normal cell concatenates 6 tensors.
_TENSORS_OF_CELL = 6
# The stem's first cell has a quarter of the filters and halves them once more where it fits sizes.
_MIN_FILTERS = 8


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; parts are the cells, stem with the first and head with the last.

    Raises:
      UsageError: hidden_size can't be split evenly over the last cell's tensors.
    """
    batch_size, edge = settings["batch_size"], settings["image_size"]
    plan = _plan(_filters(settings), settings["num_layers"], settings["num_stages"])
    network = Network(len(plan))
    with network.graph.as_default():
        images = network.placeholder("images", tf.float32, (batch_size, edge, edge, 3))
        labels = network.placeholder("labels", tf.int32, (batch_size,))
        with network.part(0), tf.name_scope("stem"):
            outputs = convolution(network, images, settings["stem_filters"], 3, 2, "VALID")
            outputs = batch_norm(network, outputs)
        previous = outputs
        for part, (name, is_reduction, width) in enumerate(plan):
            cell = _reduction_cell if is_reduction else _normal_cell
            with network.part(part), tf.name_scope(name):
                outputs, previous = cell(network, outputs, previous, width), outputs
        with network.part(len(plan) - 1), tf.name_scope("head"):
            pooled = global_average(tf.nn.relu(outputs))
            loss = cross_entropy(dense(network, "logits", pooled, settings["num_classes"]), labels)
    network.train(loss, RMSPROP)
    return network


def _filters(settings: Mapping[str, int]) -> int:
    """Filters of the first stage; every stage doubles them."""
    widening = _TENSORS_OF_CELL << (settings["num_stages"] - 1)
    filters, remainder = divmod(settings["hidden_size"], widening)
    if remainder or filters < _MIN_FILTERS:
        raise UsageError(
            f"building nasnet: hidden_size is {settings['hidden_size']}, wanted a multiple of "
            f"{widening}, at least {_MIN_FILTERS * widening}, as 1056 (Mobile) or 4032 (Large) "
            "are with three stages"
        )
    return filters


def _plan(filters: int, num_layers: int, num_stages: int) -> list[tuple[str, bool, int]]:
    """(name, whether it is a reduction cell, filters) of every cell in order."""
    plan = [("stem_0", True, filters // 4), ("stem_1", True, filters // 2)]
    for stage in range(num_stages):
        if stage:
            plan.append((f"reduction_{stage}", True, filters << stage))
        plan += [(f"cell_{stage}_{i}", False, filters << stage) for i in range(num_layers)]
    return plan


def _normal_cell(network: Network, inputs: Tensor, previous: Tensor, filters: int) -> Tensor:
    """Five sums of pairs, concatenated with the cell before's output."""
    p = _fitted(network, previous, inputs, filters)
    h = _squeezed(network, "squeeze", inputs, filters)
    outputs = [
        p,
        _separable(network, "left_0", h, filters, 5)
        + _separable(network, "right_0", p, filters, 3),
        _separable(network, "left_1", p, filters, 5)
        + _separable(network, "right_1", p, filters, 3),
        _average(h) + p,
        _average(p) + _average(p),
        _separable(network, "left_4", h, filters, 3) + h,
    ]
    return tf.concat(outputs, 3)


def _reduction_cell(network: Network, inputs: Tensor, previous: Tensor, filters: int) -> Tensor:
    """The cell that halves height and width."""
    p = _fitted(network, previous, inputs, filters)
    h = _squeezed(network, "squeeze", inputs, filters)
    first = _separable(network, "left_0", h, filters, 5, 2) + _separable(
        network, "right_0", p, filters, 7, 2
    )
    largest = tf.nn.max_pool2d(h, 3, 2, "SAME")
    second = largest + _separable(network, "right_1", p, filters, 7, 2)
    third = _average(h, 2) + _separable(network, "right_2", p, filters, 5, 2)
    fourth = _average(first) + second
    fifth = _separable(network, "left_4", first, filters, 3) + largest
    return tf.concat([second, third, fourth, fifth], 3)


def _average(images: Tensor, stride: int = 1) -> Tensor:
    return tf.nn.avg_pool2d(images, 3, stride, "SAME")


def _squeezed(network: Network, name: str, images: Tensor, filters: int) -> Tensor:
    with tf.name_scope(name):
        return batch_norm(network, convolution(network, tf.nn.relu(images), filters))


def _fitted(network: Network, previous: Tensor, inputs: Tensor, filters: int) -> Tensor:
    """The output of the cell before, brought to the inputs' size and `filters` channels.

    Where it is twice as large, it is sampled on two grids that are a pixel apart. The first cell
    has none before it and takes its inputs twice, as they are.
    """
    if previous is inputs:
        return inputs
    if previous.shape[1] == inputs.shape[1]:
        if previous.shape[3] == filters:
            return previous
        return _squeezed(network, "fit", previous, filters)
    with tf.name_scope("fit"):
        images = tf.nn.relu(previous)
        shifted = tf.pad(images, [[0, 0], [0, 1], [0, 1], [0, 0]])[:, 1:, 1:, :]
        halves = []
        for name, grid, width in (
            ("even", images, filters // 2),
            ("odd", shifted, filters - filters // 2),
        ):
            with tf.name_scope(name):
                halves.append(convolution(network, tf.nn.avg_pool2d(grid, 1, 2, "SAME"), width))
        return batch_norm(network, tf.concat(halves, 3))


def _separable(
    network: Network, name: str, images: Tensor, filters: int, kernel: int, stride: int = 1
) -> Tensor:
    """Twice: rectifier, depthwise and pointwise convolution, batch normalisation."""
    with tf.name_scope(name):
        for index in range(2):
            with tf.name_scope(f"separable_{index}"):
                channels = images.shape[3]
                depthwise = network.weights(
                    "depthwise", [kernel, kernel, channels, 1], math.sqrt(2) / kernel
                )
                strides = [1, stride, stride, 1] if index == 0 else [1, 1, 1, 1]
                images = tf.nn.depthwise_conv2d(tf.nn.relu(images), depthwise, strides, "SAME")
                images = batch_norm(network, convolution(network, images, filters))
        return images
