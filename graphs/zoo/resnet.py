"""ResNet-50 and ResNet-152 (He et al., 2016), batch 32, momentum 0.9, weight decay 1e-4.

The halving convolution of a bottleneck is the 3 x 3 one, as in most code today ("version 1.5"); in
`resnet50_v1` it is the 1 x 1 one before, as in the paper.
"""

from collections.abc import Mapping

import tensorflow as tf

from graphs.protos import Tensor
from graphs.zoo.convolutional import (
    batch_norm,
    conv_norm_relu,
    convolution,
    cross_entropy,
    dense,
    global_average,
)
from graphs.zoo.network import Network, Training, v1

_BLOCKS_OF_DEPTH = {50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}
_EXPANSION = 4
# 0.1 for the paper's batch of 256, in proportion for 32.
_LEARNING_RATE = 0.0125


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; parts are the blocks, stem with the first and head with the last."""
    batch_size, edge = settings["batch_size"], settings["image_size"]
    repeats = [min(count, settings["max_repeats"]) for count in _BLOCKS_OF_DEPTH[settings["depth"]]]
    width = max(1, 64 // settings["width_divisor"])
    network = Network(sum(repeats))
    with network.graph.as_default():
        images = network.placeholder("images", tf.float32, (batch_size, edge, edge, 3))
        labels = network.placeholder("labels", tf.int32, (batch_size,))
        with network.part(0), tf.name_scope("stem"):
            images = conv_norm_relu(network, "conv", images, width, 7, 2)
            images = tf.nn.max_pool2d(images, 3, 2, "SAME", name="pool")
        part = 0
        for stage, count in enumerate(repeats):
            for block in range(count):
                with network.part(part), tf.name_scope(f"stage_{stage}/block_{block}"):
                    stride = 2 if stage and not block else 1
                    strides = (stride, 1) if "narrow_stride" in settings else (1, stride)
                    images = _bottleneck(network, images, width << stage, strides)
                part += 1
        with network.part(part - 1), tf.name_scope("head"):
            logits = dense(network, "logits", global_average(images), settings["num_classes"])
            loss = cross_entropy(logits, labels)
    network.train(
        loss,
        Training(
            lambda: v1.train.MomentumOptimizer(_LEARNING_RATE, momentum=0.9), weight_decay=1e-4
        ),
    )
    return network


def _bottleneck(network: Network, images: Tensor, width: int, strides: tuple[int, int]) -> Tensor:
    """1 x 1, 3 x 3 and 1 x 1 convolutions around which the input, or its projection, is added."""
    outputs = conv_norm_relu(network, "narrow", images, width, 1, strides[0])
    outputs = conv_norm_relu(network, "middle", outputs, width, 3, strides[1])
    with tf.name_scope("wide"):
        outputs = batch_norm(network, convolution(network, outputs, _EXPANSION * width))
    if images.shape != outputs.shape:
        with tf.name_scope("shortcut"):
            images = convolution(network, images, _EXPANSION * width, stride=max(strides))
            images = batch_norm(network, images)
    return tf.nn.relu(outputs + images)
