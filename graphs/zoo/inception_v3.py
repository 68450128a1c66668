"""Inception-V3 with its auxiliary head (Szegedy et al., 2016), 299 x 299 images, batch 32.

Batch normalisation with scale; no dropout and no label smoothing, so that a step is repeatable.
RMSProp with the paper's decay 0.9, momentum 0.9 and epsilon 1.0.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from graphs.protos import Tensor
from graphs.zoo.convolutional import RMSPROP, conv_norm_relu, cross_entropy, dense, global_average
from graphs.zoo.network import Network

_AUXILIARY_WEIGHT = 0.4

# A chain of (filters, kernel) convolutions, each of stride 1 and keeping the image's size.
_Chain = Sequence[tuple[int, tuple[int, int] | int]]
_Block = Callable[["_Stages", Tensor], Tensor]


class _Stages:
    """Builds the branches of blocks at a fraction of the published width."""

    def __init__(self, network: Network, width_divisor: int) -> None:
        self.network = network
        self._width_divisor = width_divisor

    def conv(self, name: str, images: Tensor, filters: int, *window: Any) -> Tensor:
        """A convolution; `window` is kernel, stride and padding."""
        width = max(1, filters // self._width_divisor)
        return conv_norm_relu(self.network, name, images, width, *window)

    def chain(self, name: str, images: Tensor, chain: _Chain) -> Tensor:
        with tf.name_scope(name):
            for index, (filters, kernel) in enumerate(chain):
                images = self.conv(f"conv_{index}", images, filters, kernel)
            return images

    def shrunk(self, name: str, images: Tensor, chain: _Chain, filters: int) -> Tensor:
        """A chain and then a 3 x 3 convolution that halves the image."""
        with tf.name_scope(name):
            images = self.chain("chain", images, chain)
            return self.conv("shrink", images, filters, 3, 2, "VALID")

    def pooled(self, images: Tensor, filters: int) -> Tensor:
        with tf.name_scope("pool"):
            return self.conv("conv", tf.nn.avg_pool2d(images, 3, 1, "SAME"), filters)


def build(settings: Mapping[str, int]) -> Network:
    """The training graph; parts are stem, blocks and head in order."""
    batch_size, edge = settings["batch_size"], settings["image_size"]
    blocks, auxiliary_block = _blocks(settings["max_repeats"])
    network = Network(len(blocks) + 2)
    stages = _Stages(network, settings["width_divisor"])
    num_classes = settings["num_classes"]
    with network.graph.as_default():
        images = network.placeholder("images", tf.float32, (batch_size, edge, edge, 3))
        labels = network.placeholder("labels", tf.int32, (batch_size,))
        with network.part(0), tf.name_scope("stem"):
            images = _stem(stages, images)
        for index, (name, block) in enumerate(blocks):
            with network.part(index + 1), tf.name_scope(name):
                images = block(stages, images)
                if index == auxiliary_block:
                    auxiliary = _auxiliary_loss(stages, images, labels, num_classes)
        with network.part(len(blocks) + 1), tf.name_scope("head"):
            logits = dense(network, "logits", global_average(images), num_classes)
            loss = cross_entropy(logits, labels) + _AUXILIARY_WEIGHT * auxiliary
    network.train(loss, RMSPROP)
    return network


def _blocks(max_repeats: int) -> tuple[list[tuple[str, _Block]], int]:
    """The names and builders of all blocks; the index of the block with the auxiliary head."""
    coarse = [(f"a_{i}", _block_a(pool)) for i, pool in enumerate((32, 64, 64)[:max_repeats])]
    middle = [
        (f"b_{i}", _block_b(width)) for i, width in enumerate((128, 160, 160, 192)[:max_repeats])
    ]
    fine = [(f"c_{i}", _block_c) for i in range(min(2, max_repeats))]
    blocks = [*coarse, ("reduction_a", _reduction_a), *middle, ("reduction_b", _reduction_b), *fine]
    return blocks, len(coarse) + len(middle)


def _stem(stages: _Stages, images: Tensor) -> Tensor:
    images = stages.conv("conv_0", images, 32, 3, 2, "VALID")
    images = stages.conv("conv_1", images, 32, 3, 1, "VALID")
    images = stages.conv("conv_2", images, 64, 3)
    images = tf.nn.max_pool2d(images, 3, 2, "VALID", name="pool_0")
    images = stages.conv("conv_3", images, 80)
    images = stages.conv("conv_4", images, 192, 3, 1, "VALID")
    return tf.nn.max_pool2d(images, 3, 2, "VALID", name="pool_1")


def _block_a(pool_filters: int) -> _Block:
    def block(stages: _Stages, images: Tensor) -> Tensor:
        branches = [
            stages.conv("single", images, 64),
            stages.chain("five", images, [(48, 1), (64, 5)]),
            stages.chain("double_three", images, [(64, 1), (96, 3), (96, 3)]),
            stages.pooled(images, pool_filters),
        ]
        return tf.concat(branches, 3)

    return block


def _reduction_a(stages: _Stages, images: Tensor) -> Tensor:
    branches = [
        stages.shrunk("three", images, [], 384),
        stages.shrunk("double_three", images, [(64, 1), (96, 3)], 96),
        tf.nn.max_pool2d(images, 3, 2, "VALID", name="pool"),
    ]
    return tf.concat(branches, 3)


def _block_b(width: int) -> _Block:
    across, down = (1, 7), (7, 1)

    def block(stages: _Stages, images: Tensor) -> Tensor:
        double: _Chain = [(width, 1), (width, down), (width, across), (width, down), (192, across)]
        branches = [
            stages.conv("single", images, 192),
            stages.chain("seven", images, [(width, 1), (width, across), (192, down)]),
            stages.chain("double_seven", images, double),
            stages.pooled(images, 192),
        ]
        return tf.concat(branches, 3)

    return block


def _reduction_b(stages: _Stages, images: Tensor) -> Tensor:
    branches = [
        stages.shrunk("three", images, [(192, 1)], 320),
        stages.shrunk("seven", images, [(192, 1), (192, (1, 7)), (192, (7, 1))], 192),
        tf.nn.max_pool2d(images, 3, 2, "VALID", name="pool"),
    ]
    return tf.concat(branches, 3)


def _block_c(stages: _Stages, images: Tensor) -> Tensor:
    three = stages.conv("three", images, 384)
    double_three = stages.chain("double_three", images, [(448, 1), (384, 3)])
    branches = [
        stages.conv("single", images, 320),
        stages.conv("three_across", three, 384, (1, 3)),
        stages.conv("three_down", three, 384, (3, 1)),
        stages.conv("double_three_across", double_three, 384, (1, 3)),
        stages.conv("double_three_down", double_three, 384, (3, 1)),
        stages.pooled(images, 192),
    ]
    return tf.concat(branches, 3)


def _auxiliary_loss(stages: _Stages, images: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Cross entropy of the head on the last 17 x 17 block; small images get smaller kernels."""
    with tf.name_scope("auxiliary"):
        images = tf.nn.avg_pool2d(images, min(5, images.shape[1]), 3, "VALID", name="pool")
        images = stages.conv("conv_0", images, 128)
        images = stages.conv("conv_1", images, 768, images.shape[1], 1, "VALID")
        flat = tf.squeeze(images, [1, 2])
        return cross_entropy(dense(stages.network, "logits", flat, num_classes), labels)
