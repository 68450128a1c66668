"""Rules of recurrent cells and of what works on images, as in rules_test."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.rewrite.split.rules.run_rule import BATCH, check_case, floats

raw = tf.raw_ops
X, Y = floats(BATCH, 4), floats(BATCH, 4) + 3.0
IMAGES, COLOURS = floats(BATCH, 6, 6, 2), floats(BATCH, 4, 4, 3)
ZERO = [[0, 0], [0, 0]]
PEEPHOLES = {name: floats(4) for name in ("wci", "wcf", "wco")}
TIMED = {"seq_len_max": np.int64(3), "w": floats(7, 16), "b": floats(16), **PEEPHOLES}


def lstm_cell(x, cs, h):
    return raw.LSTMBlockCell(
        x=x, cs_prev=cs, h_prev=h, w=floats(8, 16), b=floats(16), **PEEPHOLES, use_peephole=True
    )


def gru_cell(x, h):
    return raw.GRUBlockCell(
        x=x, h_prev=h, w_ru=floats(8, 8), w_c=floats(8, 4), b_ru=floats(8), b_c=floats(4)
    )


def lstm_cell_gradient(x, cs, h):
    i, cs_now, f, o, ci, co, _ = lstm_cell(x, cs, h)
    return raw.LSTMBlockCellGrad(
        x=x, cs_prev=cs, h_prev=h, w=floats(8, 16), b=floats(16), **PEEPHOLES, use_peephole=True,
        i=i, cs=cs_now, f=f, o=o, ci=ci, co=co, cs_grad=x, h_grad=h,
    )  # fmt: skip


def gru_cell_gradient(x, h):
    r, u, c, _ = gru_cell(x, h)
    return raw.GRUBlockCellGrad(
        x=x, h_prev=h, w_ru=floats(8, 8), w_c=floats(8, 4), b_ru=floats(8), b_c=floats(4),
        r=r, u=u, c=c, d_h=x,
    )  # fmt: skip


def lstm(x, cs, h):
    return raw.BlockLSTMV2(x=x, cs_prev=cs, h_prev=h, **TIMED)


def dilation(x):
    return raw.Dilation2D(
        input=x, filter=floats(2, 2, 2), strides=[1] * 4, rates=[1] * 4, padding="SAME"
    )


def argmax_pool(x, is_across):
    return raw.MaxPoolWithArgmax(
        input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME",
        include_batch_in_index=is_across,
    )  # fmt: skip


def layer_norm(x, is_training=True):
    """As tf_keras has it: each entry's rows are channels of one image."""
    channels = x.shape[0] * x.shape[1]
    given = [] if is_training else np.abs(floats(channels))
    return raw.FusedBatchNormV3(
        x=tf.reshape(x, [1, channels, -1, 1]), scale=tf.ones([channels]),
        offset=floats(channels), mean=given, variance=given, data_format="NCHW",
        is_training=is_training,
    )  # fmt: skip


# {name: (what is fed, axes of the batch, the op, whether it is split)}
CASES = {
    "lstm cell": ([X, X, Y], [0, 0, 0], lambda x, c, h: lstm_cell(x, c, h)[1], True),
    "lstm cell's gradient": (
        [X, X, Y], [0, 0, 0],
        lambda x, c, h: lstm_cell_gradient(x, c, h)[2], True,
    ),
    "gru cell": ([X, Y], [0, 0], lambda x, h: gru_cell(x, h)[3], True),
    "gru cell's gradient": ([X, Y], [0, 0], lambda x, h: gru_cell_gradient(x, h)[3], True),
    "lstm": (
        [floats(3, BATCH, 3), X, Y], [1, 0, 0], lambda x, c, h: lstm(x, c, h)[6], True, 1e-4,
    ),
    "layer norm": ([IMAGES], [0], lambda x: layer_norm(x)[0], True, 1e-4),
    "layer norm's variance": ([IMAGES], [0], lambda x: layer_norm(x)[2], True, 1e-4),
    "layer norm, given": ([IMAGES], [0], lambda x: layer_norm(x, False)[0], True, 1e-4),
    "dilation": ([IMAGES], [0], dilation, True),
    "depth to space": ([floats(BATCH, 2, 2, 4)], [0], lambda x: tf.nn.depth_to_space(x, 2), True),
    "space to depth": ([IMAGES], [0], lambda x: tf.nn.space_to_depth(x, 2), True),
    "patches": (
        [IMAGES], [0],
        lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID"), 1,
    ),
    "dilated convolution": (
        [IMAGES], [0],
        lambda x: raw.BatchToSpaceND(input=tf.tanh(raw.SpaceToBatchND(
            input=x, block_shape=[2, 2], paddings=ZERO)), block_shape=[2, 2], crops=ZERO), True,
    ),
    "blocks of whole batches": (
        [floats(4, 2, 2, 1)], [0],
        lambda x: raw.BatchToSpaceND(input=x, block_shape=[2, 2], crops=ZERO), False,
    ),
    "nearest": ([IMAGES], [0], lambda x: tf.image.resize(x, [3, 3], "nearest"), True),
    "bicubic": ([IMAGES], [0], lambda x: raw.ResizeBicubic(images=x, size=[3, 4]), True),
    "area": ([IMAGES], [0], lambda x: raw.ResizeArea(images=x, size=[3, 4]), True),
    "scale and translate": (
        [IMAGES], [0], lambda x: raw.ScaleAndTranslate(
            images=x, size=[3, 3], scale=[0.5, 0.5], translation=[0.0, 0.0]), True,
    ),
    "contrast": ([COLOURS], [0], lambda x: raw.AdjustContrastv2(
        images=x, contrast_factor=0.5), True),
    "hue": ([COLOURS], [0], lambda x: raw.AdjustHue(images=x, delta=0.1), True),
    "hsv": ([COLOURS], [0], lambda x: tf.image.rgb_to_hsv(tf.abs(x)), True),
    "places of maxima": ([IMAGES], [0], lambda x: argmax_pool(x, False)[0], True),
    "places of maxima across": ([IMAGES], [0], lambda x: argmax_pool(x, True)[1], False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_parts_put_together_are_the_whole(name):
    check_case(*CASES[name])
