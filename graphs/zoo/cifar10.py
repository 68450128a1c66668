"""The CNN of TensorFlow's CIFAR-10 tutorial: small enough that one device is best.

Two convolutions with pooling and local response normalisation, two local layers with weight decay,
softmax; images cropped to 24 x 24, batch 128, SGD. The tutorial's moving averages of the weights
and its input pipeline are left out.
"""

from collections.abc import Mapping

import tensorflow as tf

from graphs.protos import Tensor
from graphs.zoo.convolutional import cross_entropy, dense
from graphs.zoo.network import Network, Training, v1

_LOCAL_WEIGHT_DECAY = 0.004


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; one part."""
    batch_size, edge = settings["batch_size"], settings["image_size"]
    divisor, num_classes = settings["width_divisor"], settings["num_classes"]
    network = Network(1)
    with network.graph.as_default():
        outputs = network.placeholder("images", tf.float32, (batch_size, edge, edge, 3))
        labels = network.placeholder("labels", tf.int32, (batch_size,))
        with network.part(0):
            width = max(1, 64 // divisor)
            outputs = _normalised(_pooled(_convolved(network, "conv1", outputs, width)))
            outputs = _pooled(_normalised(_convolved(network, "conv2", outputs, width)))
            outputs = tf.reshape(outputs, [batch_size, -1])
            for name, units in (("local3", 384), ("local4", 192)):
                outputs = tf.nn.relu(dense(network, name, outputs, max(1, units // divisor)))
            loss = cross_entropy(dense(network, "softmax_linear", outputs, num_classes), labels)
    network.train(
        loss,
        Training(lambda: v1.train.GradientDescentOptimizer(0.1), weight_decay=_LOCAL_WEIGHT_DECAY),
    )
    return network


def _convolved(network: Network, name: str, images: Tensor, width: int) -> Tensor:
    with tf.name_scope(name):
        weights = network.weights("kernel", [5, 5, images.shape[3], width], 0.05, decay=False)
        bias = network.constant_weights("bias", [width], 0.1)
        outputs = tf.nn.conv2d(images, weights, strides=1, padding="SAME")
        return tf.nn.relu(tf.nn.bias_add(outputs, bias))


def _pooled(images: Tensor) -> Tensor:
    return tf.nn.max_pool2d(images, ksize=3, strides=2, padding="SAME", name="pool")


def _normalised(images: Tensor) -> Tensor:
    return tf.nn.local_response_normalization(
        images, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name="norm"
    )
