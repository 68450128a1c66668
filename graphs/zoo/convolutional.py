"""Pieces of convolutional networks, whose images are f4[B, height, width, channels]."""

import math
from typing import Any

import tensorflow as tf

from graphs.protos import Tensor
from graphs.zoo.network import Network, Training, v1

RMSPROP = Training(
    lambda: v1.train.RMSPropOptimizer(0.1, decay=0.9, momentum=0.9, epsilon=1.0), weight_decay=4e-5
)
"""How Inception-V3 and NASNet are trained."""

_MOVING_AVERAGE_DECAY = 0.997


def convolution(
    network: Network,
    images: Tensor,
    num_filters: int,
    kernel: tuple[int, int] | int = 1,
    stride: int = 1,
    padding: str = "SAME",
) -> Tensor:
    """A convolution without bias and with new He-initialised weights."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    fan_in = height * width * images.shape[3]
    shape = [height, width, images.shape[3], num_filters]
    weights = network.weights("kernel", shape, math.sqrt(2 / fan_in))
    return tf.nn.conv2d(images, weights, strides=stride, padding=padding)


def batch_norm(network: Network, images: Tensor) -> Tensor:
    """Batch normalisation with scale and offset; the step updates the moving averages."""
    with tf.name_scope("batch_norm"):
        channels = [images.shape[3]]
        scale = network.constant_weights("scale", channels, 1.0)
        outputs, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            images, scale, network.constant_weights("offset", channels), epsilon=1e-3
        )
        for name, batch_value, initial in (
            ("moving_mean", mean, 0.0),
            ("moving_variance", variance, 1.0),
        ):
            average = network.variable(name, channels, initial, trainable=False)
            change = (network.read(average) - batch_value) * (1 - _MOVING_AVERAGE_DECAY)
            network.updates.append(average.assign_sub(change, read_value=False))
        return outputs


def conv_norm_relu(
    network: Network, name: str, images: Tensor, num_filters: int, *window: Any
) -> Tensor:
    """Convolution, batch normalisation and rectifier in a name scope of their own.

    `window` is kernel, stride and padding, as `convolution` takes them.
    """
    with tf.name_scope(name):
        return tf.nn.relu(batch_norm(network, convolution(network, images, num_filters, *window)))


def dense(network: Network, name: str, inputs: Tensor, width: int) -> Tensor:
    """A fully connected layer with bias, f4[B, n] to f4[B, width]."""
    with tf.name_scope(name):
        return network.dense(inputs, width, 1 / math.sqrt(inputs.shape[1]))


def global_average(images: Tensor) -> Tensor:
    """Mean over height and width, f4[B, channels]."""
    return tf.reduce_mean(images, [1, 2], name="global_average")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean softmax cross entropy, scalar, of logits f4[B, K] and labels i4[B]."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
