"""VGG16 and AlexNet as tf_cnn_benchmarks has them: convolutions, pools, three dense layers, SGD.

AlexNet is the one-tower network of Krizhevsky (2014): 227 pixels, 64 filters of 11 x 11 first, no
local response normalisation. Dropout is left out: it adds two small ops and random numbers.
"""

from collections.abc import Mapping

import tensorflow as tf

from graphs.zoo.convolutional import convolution, cross_entropy, dense
from graphs.zoo.network import Network, Training, v1

_POOL = (0, 0, 0)
# Filters, edge of the kernel, stride; of all blocks, which are the parts.
_VGG16 = [
    [*[(64 << min(stage, 3), 3, 1)] * count, _POOL] for stage, count in enumerate((2, 2, 3, 3, 3))
]
_ALEXNET = [
    [(64, 11, 4), _POOL],
    [(192, 5, 1), _POOL],
    [(384, 3, 1)],
    [(384, 3, 1)],
    [(256, 3, 1), _POOL],
]
_DENSE = (4096, 4096)


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; parts are the blocks of convolutions, and each dense layer."""
    blocks, pool = (_ALEXNET, 3) if settings["depth"] == 8 else (_VGG16, 2)
    batch_size, edge = settings["batch_size"], settings["image_size"]
    divisor = settings["width_divisor"]
    network = Network(len(blocks) + len(_DENSE) + 1)
    with network.graph.as_default():
        images = network.placeholder("images", tf.float32, (batch_size, edge, edge, 3))
        labels = network.placeholder("labels", tf.int32, (batch_size,))
        for part, block in enumerate(blocks):
            with network.part(part), tf.name_scope(f"block_{part}"):
                for number, (filters, kernel, stride) in enumerate(block):
                    if not filters:
                        images = tf.nn.max_pool2d(images, pool, 2, "SAME", name="pool")
                        continue
                    padding, width = "VALID" if stride > 1 else "SAME", max(1, filters // divisor)
                    with tf.name_scope(f"conv_{number}"):
                        outputs = convolution(network, images, width, kernel, stride, padding)
                        bias = network.constant_weights("bias", [width])
                        images = tf.nn.relu(tf.nn.bias_add(outputs, bias))
        outputs = tf.reshape(images, [batch_size, -1])
        for number, units in enumerate(_DENSE):
            with network.part(len(blocks) + number):
                width = max(1, units // divisor)
                outputs = tf.nn.relu(dense(network, f"dense_{number}", outputs, width))
        with network.part(len(blocks) + len(_DENSE)):
            loss = cross_entropy(dense(network, "logits", outputs, settings["num_classes"]), labels)
    network.train(
        loss, Training(lambda: v1.train.GradientDescentOptimizer(0.005), weight_decay=0.0)
    )
    return network
